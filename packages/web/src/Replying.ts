/** Replies of the model that is loaded, in the worker: as text, or in parts. */
import { Messages, Reply, ReplyStyle } from "@tg/dialogue"
import type { Token } from "@tg/engine/Engine"
import * as Sampler from "@tg/engine/Sampler"
import type { Message } from "@tg/tokenizer/ChatTemplate"
import { Effect, Random, Stream } from "effect"
import { grouped, type Writing } from "./internal/grouping.ts"
import type { Part } from "./internal/messages.ts"
import { fromTagged, type ModelError } from "./ModelError.ts"
import type { Running } from "./Opening.ts"
import type { ChatOptions, GenerateOptions, Piece } from "./Protocol.ts"

/** What the template makes of messages. */
const render = ({ engine: { model } }: Running, messages: ReadonlyArray<Message>, options: typeof ChatOptions.Type) =>
  Effect.gen(function*() {
    const { codec } = model
    const template = yield* Effect.fromResult(model.template)
    const style = ReplyStyle.of(template, codec)
    const taken = yield* Effect.fromResult(Messages.make(template, style).write({ messages }))
    const prompt = yield* Effect.fromResult(
      template.render({ ...taken, variables: options.variables ?? {} }, new Date())
    )
    return {
      tokens: codec.encodeSegments(prompt.segments),
      style,
      thinkingOpen: ReplyStyle.isThinkingOpen(style, prompt)
    }
  }).pipe(Effect.mapError(fromTagged))

/** Tokens as they are computed. */
const generate = Effect.fn("Replying.generate")(function*(
  { engine }: Running,
  tokens: ReadonlyArray<number>,
  { maxTokens, minP, seed, stop, temperature, topK, topP }: typeof GenerateOptions.Type
) {
  const { greedy } = Sampler
  const sampling: Sampler.Settings = {
    temperature: temperature ?? greedy.temperature,
    topK: topK ?? greedy.topK,
    topP: topP ?? greedy.topP,
    minP: minP ?? greedy.minP,
    seed: seed ?? (yield* Random.nextIntBetween(0, 2 ** 32))
  }
  return Stream.mapError(engine.generate({ tokens, maxTokens, stop, sampling }), fromTagged)
})

/** Their texts, without what is not complete yet. */
const texts: Writing<Token, string> = { each: ({ text }) => text === "" ? [] : [text], end: () => [] }

/** What a model goes on with behind a text. */
export const text = (running: Running, prompt: string, options: typeof GenerateOptions.Type) =>
  Effect.map(
    generate(running, running.engine.model.codec.encode(prompt, { addSpecial: true }), options),
    grouped(texts)
  )

/** The answer to a conversation, as the model writes it. */
export const chat = (running: Running, messages: ReadonlyArray<Message>, options: typeof ChatOptions.Type) =>
  Effect.gen(function*() {
    const { tokens } = yield* render(running, messages, options)
    return grouped(texts)(yield* generate(running, tokens, options))
  })

/** The answer to a conversation in parts. */
export const reply = (
  running: Running,
  messages: ReadonlyArray<Message>,
  options: typeof ChatOptions.Type
): Effect.Effect<Stream.Stream<Part<Piece>, ModelError>, ModelError> =>
  Effect.gen(function*() {
    const { style, thinkingOpen, tokens } = yield* render(running, messages, options)
    const cachedTokens = Math.min(commonPrefix(yield* running.engine.cached, tokens), tokens.length - 1)
    const reader = Reply.make(style, { toolsGiven: [], thinkingOpen })
    let answerTokens = 0
    let stop: Token["stop"]
    const pieces = (parts: ReadonlyArray<Reply.Part>): ReadonlyArray<Piece> =>
      parts.flatMap((part) => part.type === "text" || part.type === "reasoning" ? [part] : [])
    const writing: Writing<Token, Piece> = {
      each: (token) => {
        answerTokens++
        stop = token.stop
        return pieces(reader.push(token))
      },
      end: () => [...pieces(reader.end()), {
        type: "done",
        ending: stop === "length" || stop === "context" ? "length" : "end",
        promptTokens: tokens.length,
        cachedTokens,
        answerTokens
      }]
    }
    return grouped(writing)(yield* generate(running, tokens, options))
  })

const commonPrefix = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): number => {
  let n = 0
  while (n < a.length && n < b.length && a[n] === b[n]) n++
  return n
}
