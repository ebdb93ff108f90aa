import { ChatTemplate, Decoder, Tokenizer } from "@tg/tokenizer"
import { Result } from "effect"

export const reply = (metadata: ReadonlyMap<string, unknown>, ids: ReadonlyArray<number>) =>
  Result.gen(function*() {
    const codec = yield* Tokenizer.make(metadata)
    const template = yield* ChatTemplate.make(metadata, codec)
    const conversation = { messages: [{ role: "user", content: "What is 37 + 48?" }] }
    const { segments } = yield* template.render(conversation, new Date())
    const prompt = codec.encodeSegments(segments)

    const decoder = Decoder.make(codec) // a token may end inside a character
    const answer = ids.filter((id) => !codec.vocabulary.eog.has(id)).map(decoder.push).join("") + decoder.flush()
    return { prompt, answer }
  })
