import { Result } from "effect"
import { describe, expect, it } from "vitest"
import * as Synthetic from "../src/Synthetic.ts"
import * as Tokenizer from "../src/Tokenizer.ts"

const families = ["glm4", "deepseek-llm", "youtu"] as const

const ofPieces = ["mistral", "gemma"] as const

const codecOf = (made: Synthetic.Synthetic, pre: string): Tokenizer.Codec =>
  Result.getOrThrow(Tokenizer.make(
    new Map<string, unknown>([
      ["tokenizer.ggml.model", made.model],
      ["tokenizer.ggml.pre", pre],
      ["tokenizer.ggml.tokens", made.tokens],
      ["tokenizer.ggml.token_type", made.types],
      ["tokenizer.ggml.merges", made.merges],
      ...(made.scores === undefined ? [] : [["tokenizer.ggml.scores", made.scores] as const]),
      ...(made.addSpacePrefix === undefined
        ? []
        : [["tokenizer.ggml.add_space_prefix", made.addSpacePrefix] as const]),
      ["tokenizer.ggml.add_bos_token", made.addBos],
      ...[...made.ids].map(([name, id]) => [`tokenizer.ggml.${name}_token_id`, id] as const)
    ])
  ))

describe("Synthetic", () => {
  it.each(families)("%s: any text survives encoding", (family) => {
    const codec = codecOf(Synthetic.make({ family, size: 512, specialsAt: 448 }), family)
    for (const text of ["hello there", "  f(x) = 3.14\n\n", "Straße 北京 😀", ""]) {
      expect(codec.decode(codec.encode(text))).toBe(text)
    }
    // merged: fewer tokens than bytes
    expect(codec.encode("the other one").length).toBeLessThan(13)
  })

  it.each(families)("%s: ends at tokens of its own", (family) => {
    const made = Synthetic.make({ family, size: 512, specialsAt: 448 })
    const codec = codecOf(made, family)
    expect(codec.vocabulary.eog.size).toBeGreaterThan(0)
    for (const id of codec.vocabulary.eog) expect(codec.vocabulary.kinds[id]).toBe("control")
    expect(codec.encode("", { addSpecial: true })).toEqual(made.addBos ? [made.ids.get("bos")] : [])
  })

  it.each(ofPieces)("%s: any text survives pieces, and words are made of them", (family) => {
    const made = Synthetic.make({ family, size: 512, specialsAt: 0 })
    const codec = codecOf(made, "default")
    for (const text of ["hello there", "  f(x) = 3.14\n\n", "Straße 北京 😀", ""]) {
      expect(codec.decode(codec.encode(text))).toBe(text)
    }
    expect(codec.encode("the other one").length).toBeLessThan(13)
    expect(codec.vocabulary.eog.size).toBeGreaterThan(0)
    for (const id of codec.vocabulary.eog) expect(codec.vocabulary.kinds[id]).toBe("control")
    expect(codec.encode("", { addSpecial: true })).toEqual([made.ids.get("bos")])
    expect(made.tokens[made.ids.get("unknown")!]).toBe("<unk>")
  })

  it("fills a vocabulary of pieces of the size of Gemma's without repeating one", () => {
    const made = Synthetic.make({ family: "gemma", size: 262144, specialsAt: 0 })
    expect(new Set(made.tokens).size).toBe(262144)
    expect(made.scores).toHaveLength(262144)
    expect(() => Synthetic.make({ family: "gemma", size: 300, specialsAt: 0 })).toThrow(/cannot hold/)
  })

  it("fills a vocabulary of the size of real ones without repeating a token", () => {
    const made = Synthetic.make({ family: "glm4", size: 154880, specialsAt: 154820 })
    expect(made.tokens.length).toBe(154880)
    expect(new Set(made.tokens).size).toBe(154880)
    expect(made.merges.length).toBe(154820 - 256)
    expect(made.tokens[154820]).toBe("<|endoftext|>")
  })

  it("refuses a vocabulary without room", () => {
    expect(() => Synthetic.make({ family: "youtu", size: 256, specialsAt: 256 })).toThrow(/cannot hold/)
  })
})
