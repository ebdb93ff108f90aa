import { assert, describe, it } from "@effect/vitest"
import * as GgufType from "../src/GgufType.ts"

describe("GgufType", () => {
  it("has the sizes of the format", () =>
    assert.strictEqual(
      GgufType.names.map((name) => {
        const { blockBytes, blockValues, id } = GgufType.table[name]
        return `${id} ${name} ${blockBytes}/${blockValues}`
      }).join(", "),
      "0 F32 4/1, 1 F16 2/1, 2 Q4_0 18/32, 3 Q4_1 20/32, 6 Q5_0 22/32, 7 Q5_1 24/32, 8 Q8_0 34/32, 10 Q2_K 84/256, " +
        "11 Q3_K 110/256, 12 Q4_K 144/256, 13 Q5_K 176/256, 14 Q6_K 210/256, 16 IQ2_XXS 66/256, 17 IQ2_XS 74/256, " +
        "18 IQ3_XXS 98/256, 19 IQ1_S 50/256, 20 IQ4_NL 18/32, 21 IQ3_S 110/256, 22 IQ2_S 82/256, 23 IQ4_XS 136/256, " +
        "24 I8 1/1, 25 I16 2/1, 26 I32 4/1, 27 I64 8/1, 28 F64 8/1, 29 IQ1_M 56/256, 30 BF16 2/1, 34 TQ1_0 54/256, " +
        "35 TQ2_0 66/256, 39 MXFP4 17/32, 40 NVFP4 36/64, 41 Q1_0 18/128, 42 Q2_0 18/64"
    ))

  it("finds types by id", () => {
    for (const name of GgufType.names) assert.strictEqual(GgufType.fromId(GgufType.table[name].id), name)
    assert.strictEqual(GgufType.fromId(4), undefined)
  })

  it("counts the bytes of so many elements", () => {
    assert.strictEqual(GgufType.bytesOf("Q6_K", [512, 3]), 2 * 3 * 210)
    assert.strictEqual(GgufType.bytesOf("F32", [1]), 4)
    assert.deepInclude(GgufType.bytesOf("F32", [0.5, 4]), { problem: "zero-dimension" })
    assert.deepInclude(GgufType.bytesOf("F32", [-1]), { problem: "zero-dimension" })
  })
})
