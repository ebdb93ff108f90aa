import { assert, describe, it } from "@effect/vitest"
import { type ActivationPolicy, activationsOn } from "../src/ActivationPolicy.ts"
import { promptShape } from "../src/Prompts.ts"
import { tiny } from "./support/models.ts"

describe("what prompts read", () => {
  type Profile = Parameters<typeof promptShape>[1]["profile"]
  const cpu: Profile = { kind: "cpu", packedDot: true, maxBindingBytes: 2 ** 31 }
  const gpu: Profile = { ...cpu, kind: "gpu" }
  /** What a batch reads, if there are batches. */
  const readOf = (profile: Profile, activations: ActivationPolicy) => {
    const { batchFrom, batchReads } = promptShape(tiny.config, {
      activations,
      asked: undefined,
      context: 1024,
      profile
    })
    return batchFrom < Infinity ? batchReads : undefined
  }

  it("floats or bytes in tiles, as somebody asks, floats if nobody does; a CPU that multiplies bytes has no tiles of them", () => {
    const policies: ReadonlyArray<ActivationPolicy> = ["float", "int8", "auto"]
    assert.deepStrictEqual(policies.map((p) => readOf(gpu, p)), ["float", "int8", "float"])
    assert.deepStrictEqual(policies.map((p) => readOf(cpu, p)), ["float", undefined, undefined])
    assert.strictEqual(readOf({ ...cpu, packedDot: false }, "auto"), "float")
  })
  it("a CPU rounds for all products, a GPU for those with many rows", () => {
    assert.deepStrictEqual(
      ["auto", "int8", "float"].map((p) => activationsOn(cpu, p as ActivationPolicy)),
      [
        "int8-all",
        "int8-all",
        "float"
      ]
    )
    assert.strictEqual(activationsOn(gpu), "int8")
  })
})
