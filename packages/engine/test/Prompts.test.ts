import { assert, describe, it } from "@effect/vitest"
import { type ActivationPolicy, activationsOn } from "../src/ActivationPolicy.ts"
import { promptShape } from "../src/Prompts.ts"
import { tiny } from "./support/models.ts"

describe("what prompts read", () => {
  type Profile = Parameters<typeof promptShape>[1]["profile"]
  const cpu: Profile = { kind: "cpu", packedDot: true, maxBindingBytes: 2 ** 31 }
  const gpu: Profile = { ...cpu, kind: "gpu" }
  const isBatched = (profile: Profile, activations: ActivationPolicy): boolean =>
    promptShape(tiny.config, { activations, asked: undefined, context: 1024, profile }).batchFrom < Infinity

  it("bytes, token by token, where somebody asks for bytes or a CPU multiplies them; else floats, in tiles", () => {
    for (const profile of [cpu, gpu]) {
      assert.isTrue(isBatched(profile, "float"))
      assert.isFalse(isBatched(profile, "int8"))
    }
    assert.deepStrictEqual([isBatched(cpu, "auto"), isBatched(gpu, "auto")], [false, true])
    assert.isTrue(isBatched({ ...cpu, packedDot: false }, "auto"))
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
