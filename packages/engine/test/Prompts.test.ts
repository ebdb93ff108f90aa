import { assert, describe, it } from "@effect/vitest"
import { type ActivationPolicy, activationsOn } from "../src/ActivationPolicy.ts"
import { promptShape } from "../src/Prompts.ts"
import { tiny } from "./support/models.ts"

describe("what prompts read", () => {
  type Profile = Parameters<typeof promptShape>[1]["profile"]
  const cpu: Profile = { kind: "cpu", packedDot: true, maxBindingBytes: 2 ** 31 }
  const gpu: Profile = { ...cpu, kind: "gpu" }
  const hasBatches = (profile: Profile, activations: ActivationPolicy) =>
    promptShape(tiny.config, { activations, asked: undefined, context: 1024, profile }).batchFrom < Infinity

  it("tiles of floats or of bytes; a CPU that multiplies bytes has no tiles of them", () => {
    const policies: ReadonlyArray<ActivationPolicy> = ["float", "int8", "auto"]
    assert.deepStrictEqual(policies.map((p) => hasBatches(gpu, p)), [true, true, true])
    assert.deepStrictEqual(policies.map((p) => hasBatches(cpu, p)), [true, false, false])
    assert.isTrue(hasBatches({ ...cpu, packedDot: false }, "auto"))
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
