import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as ChatTemplate from "../src/ChatTemplate.ts"
import * as Decoder from "../src/Decoder.ts"
import * as Tokenizer from "../src/Tokenizer.ts"
import { codecOf, metadataOf, readText, vocabularies } from "./support/files.ts"

interface Vectors {
  readonly info: {
    readonly eog: ReadonlyArray<number>
    readonly bos: number
    readonly eos: number
    readonly eot: number
    readonly add_bos: number
    readonly add_eos: number
  }
  readonly vectors: ReadonlyArray<{
    readonly text: string
    readonly add_special: boolean
    readonly parse_special: boolean
    readonly ids: ReadonlyArray<number>
  }>
}

describe.each(vocabularies)("%s", (name) => {
  const codec = codecOf(name)
  const { info, vectors } = JSON.parse(readText(`test/vectors/tokenizer/${name}.json`)) as Vectors

  it("has the ids with a meaning", () => {
    const { addBos, addEos, bos, eog, eos, eot } = codec.vocabulary
    // of several end-of-turn texts in a file without a key for it, any may be found first
    const usual = name === "llama-bpe" ? codec.vocabulary.tokens.indexOf("<|eot_id|>") : info.eot
    assert.deepStrictEqual([bos, eos, eot, addBos, addEos], [
      info.bos,
      info.eos,
      usual,
      info.add_bos === 1,
      info.add_eos === 1
    ])
    assert.deepStrictEqual([...eog], info.eog)
  })

  it.each(vectors)("encodes and decodes $text (special: add $add_special, parse $parse_special)", (vector) => {
    const ids = codec.encode(vector.text, { addSpecial: vector.add_special, parseSpecial: vector.parse_special })
    assert.deepStrictEqual(ids, vector.ids)
    const bos = vector.add_special && info.add_bos === 1 ? codec.vocabulary.tokens[info.bos]! : ""
    assert.strictEqual(codec.decode(ids, { printSpecial: true }), bos + vector.text)
    const decoder = Decoder.make(codec, { printSpecial: true })
    assert.strictEqual(ids.map(decoder.push).join("") + decoder.flush(), bos + vector.text)
  })
})

interface Evaluation {
  readonly id: string
  readonly messages: ReadonlyArray<ChatTemplate.Message>
  readonly thinking: boolean
  readonly prompt: string
  readonly prompt_tokens: ReadonlyArray<number>
  readonly llama_cpp: Readonly<Record<string, { readonly text: string; readonly tokens: ReadonlyArray<number> }>>
}

describe("tg-tiny", () => {
  const metadata = metadataOf("apps/cli/models/tg-tiny-Q4_0.gguf")
  const codec = Result.getOrThrow(Tokenizer.make(metadata))
  const template = Result.getOrThrow(ChatTemplate.make(metadata, codec))
  const lines = readText("apps/cli/models/eval.jsonl").trim().split("\n").map((line) => JSON.parse(line) as Evaluation)

  it("renders and encodes the 200 evaluation prompts", () => {
    assert.strictEqual(lines.length, 200)
    for (const { id, messages, prompt, prompt_tokens, thinking } of lines) {
      const rendered = Result.getOrThrow(
        template.render({ messages, variables: { enable_thinking: thinking } }, new Date(0))
      )
      assert.strictEqual(rendered.text, prompt, id)
      assert.deepStrictEqual(codec.encodeSegments(rendered.segments), prompt_tokens, id)
      assert.deepStrictEqual(codec.encode(prompt, { parseSpecial: true }), prompt_tokens, id)
    }
  })

  it("prints the answers of the evaluation", () => {
    for (const { id, llama_cpp } of lines) {
      for (const { text, tokens } of Object.values(llama_cpp)) assert.strictEqual(codec.decode(tokens), text, id)
    }
  })

  it("ends a generation at the end of text and at the next role", () => {
    const ends = ["<|endoftext|>", "<|observation|>", "<|user|>"]
    assert.sameMembers([...codec.vocabulary.eog].map((id) => codec.vocabulary.tokens[id]!), ends)
  })
})
