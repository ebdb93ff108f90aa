import { assert, describe, it } from "@effect/vitest"
import type { ModelFamily } from "@tg/model-parts/Family"
import { known } from "@tg/models/Models"
import { Result } from "effect"
import * as ModelFile from "../src/ModelFile.ts"
import { tiny, tinyCodec } from "./support/models.ts"

const without = (...keys: ReadonlyArray<string>) => ({
  ...tiny.gguf,
  metadata: new Map([...tiny.gguf.metadata].filter(([key]) => !keys.includes(key)))
})
const [template, eot] = ["tokenizer.chat_template", "tokenizer.ggml.eot_token_id"] as const
const own = known.families.find(({ architectures }) => architectures.includes("deepseek2"))!
const id = 1000
const chat = { template: "{{ messages[0].content }}!", endOfTurn: tinyCodec.vocabulary.tokens[id]! }
const opened = (gguf: typeof tiny.gguf, given: ModelFamily["chat"]) =>
  Result.getOrThrow(ModelFile.fromGguf(gguf, { families: [{ ...own, chat: given }] }))

const rendered = ({ template }: ModelFile.ModelFile): string => {
  const renderer = Result.getOrThrow(template)
  const { segments } = Result.getOrThrow(renderer.render({ messages: [{ role: "user", content: "Hi" }] }, new Date(0)))
  return segments.map(({ text }) => text).join("")
}

describe("what a family says of chats", () => {
  it("holds where the file says nothing", () => {
    const file = opened(without(template, eot), chat)
    assert.strictEqual(rendered(file), "Hi!")
    assert.isTrue(file.codec.vocabulary.eog.has(id))
  })
  it("does not hold where it does", () => {
    const file = opened(tiny.gguf, { template: chat.template })
    assert.strictEqual(file.gguf, tiny.gguf)
    assert.notStrictEqual(rendered(file), "Hi!")
    assert.isFalse(file.codec.vocabulary.eog.has(id))
  })
  it("leaves a file without a template alone, if it says nothing", () => {
    const file = opened(without(template), undefined)
    const error = Result.getOrThrow(Result.flip(file.template))
    assert.strictEqual(error._tag, "NoChatTemplate")
  })
})
