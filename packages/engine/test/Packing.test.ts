import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Packing from "../src/Packing.ts"

const sized = (name: string, bytes: number): Packing.Sized => ({ name, bytes })

/** Two blocks: the first has a matrix of its own, and `down` has another size in each. */
const tensors = [
  sized("token_embd.weight", 5000),
  sized("blk.0.ffn_down.weight", 700),
  sized("blk.0.attn_norm.weight", 40),
  sized("blk.0.ffn_up.weight", 300),
  sized("blk.0.attn_q.weight", 600),
  sized("blk.1.attn_q.weight", 600),
  sized("blk.1.ffn_down.weight", 900),
  sized("blk.1.attn_norm.weight", 40)
]

const placesIn = (packed: ReadonlyArray<Packing.Packed>, label: string) =>
  packed.filter((own) => own.label === label)
    .map(({ bytes, parts }) => [bytes, ...parts.map(({ name, offset }) => `${name.slice(6)} at ${offset}`)])

describe("packing", () => {
  it("puts a block's tensors into one buffer, those of one size at the same offsets in all blocks", () => {
    const packed = Packing.pack(tensors, 1e6)
    assertEquals(placesIn(packed, "blk.0"), [
      [2236, "attn_norm.weight at 0", "attn_q.weight at 256", "ffn_up.weight at 1024", "ffn_down.weight at 1536"]
    ])
    assertEquals(placesIn(packed, "blk.1"), [
      [1924, "attn_norm.weight at 0", "attn_q.weight at 256", "ffn_down.weight at 1024"]
    ])
    assertEquals(packed.filter(({ label }) => label === "token_embd.weight").map(({ bytes }) => bytes), [5000])
  })

  it("begins another buffer where one would be larger than a binding, and leaves a tensor alone that is", () => {
    const packed = Packing.pack(tensors, 800)
    assert.isTrue(packed.every(({ bytes, parts }) => bytes <= 800 || parts.length === 1))
    const names = packed.flatMap(({ parts }) => parts.map(({ name }) => name))
    assertEquals(names.toSorted(), tensors.map(({ name }) => name).toSorted())
  })
})
