import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Decoder from "../src/Decoder.ts"
import { smallCodec } from "./support/files.ts"

const codec = smallCodec({ specials: [["<stop>", 3], ["<think>", 4]] })

describe("Decoder", () => {
  it("holds back what is not complete", () => {
    const decoder = Decoder.make(codec)
    const ids = codec.encode("é😀")
    assert.deepStrictEqual(ids.map(decoder.push), ["", "é", "", "", "", "😀"])
    assert.strictEqual(decoder.flush(), "")
  })

  it("prints what never completes as U+FFFD, and begins anew", () => {
    const decoder = Decoder.make(codec)
    const [lead] = codec.encode("😀")
    assert.strictEqual(decoder.push(lead!), "")
    assert.strictEqual(decoder.push(97), "\ufffda")
    assert.strictEqual(decoder.push(lead!), "")
    assert.strictEqual(decoder.flush(), "\ufffd")
    assert.strictEqual(decoder.flush(), "")
  })

  it("prints special tokens when asked", () => {
    const [stop, think] = [256, 257]
    const quiet = Decoder.make(codec)
    const loud = Decoder.make(codec, { printSpecial: true })
    assert.deepStrictEqual([stop, think].map(quiet.push), ["", "<think>"])
    assert.deepStrictEqual([stop, think].map(loud.push), ["<stop>", "<think>"])
  })

  it.prop("gives the text of all tokens, whatever the bytes", {
    ids: Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 257 })))
  }, ({ ids }) => {
    const decoder = Decoder.make(codec)
    assert.strictEqual(ids.map(decoder.push).join("") + decoder.flush(), codec.decode(ids))
  })
})
