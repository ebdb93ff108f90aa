/** An answer of the model to a conversation, in parts, and how fast it came. */
import { Engine, type Token } from "@tg/engine/Engine"
import type * as Sampler from "@tg/engine/Sampler"
import type * as Speculation from "@tg/engine/Speculation"
import { Messages, Reply, ReplyStyle } from "@tg/dialogue"
import { Clock, Effect, Stream } from "effect"
import * as Drafts from "../Drafts.ts"
import * as Words from "../Words.ts"
import * as Talk from "./Talk.ts"

/** How to answer. */
export interface Settings {
  readonly sampling: Sampler.Settings
  readonly maxTokens: number | undefined
  /** Whether the model is asked to think; as its template likes if this is not said. */
  readonly thinking: boolean | undefined
}

/** What an answer took. */
export interface Stats {
  readonly promptTokens: number
  /** Of the prompt, what the cache had already. */
  readonly cachedTokens: number
  readonly firstTokenMillis: number
  readonly generatedTokens: number
  readonly tokensPerSecond: number
  /** Tokens of the conversation, and what the context can hold. */
  readonly contextTokens: number
  readonly context: number
  readonly stop: "end" | "length" | "text" | "context" | undefined
  /** What became of its drafts, where there are any. */
  readonly drafts: Speculation.Drafts | undefined
}

/** A line about an answer. */
export const show = (stats: Stats): string =>
  `${Words.count(stats.generatedTokens, "token")}, ${stats.tokensPerSecond} tokens/s; first token after ` +
  `${stats.firstTokenMillis} ms (${
    Words.count(stats.promptTokens, "token")
  } of prompt, ${stats.cachedTokens} of them cached); ` +
  `${stats.contextTokens} of ${Words.count(stats.context, "token")} of context` +
  (stats.drafts === undefined ? "" : `; ${Drafts.show(stats.drafts)}`)

/** What answers with the model that is loaded. */
export const make = Effect.fn("cli.chat.answering")(function*() {
  const engine = yield* Engine
  const codec = yield* engine.tokenizer
  const template = yield* Effect.fromResult(engine.model.template)
  const style = ReplyStyle.of(template, codec)
  const writer = Messages.make(template, style)

  /** Tokens of the conversation, and whether the answer begins inside of the thinking section. */
  const prompt = Effect.fnUntraced(function*(talk: Talk.Talk, thinking: boolean | undefined) {
    const now = new Date(yield* Clock.currentTimeMillis)
    const taken = yield* Effect.fromResult(writer.write({ messages: Talk.toMessages(talk) }))
    const variables = thinking === undefined ? {} : { enable_thinking: thinking }
    const rendered = yield* Effect.fromResult(template.render({ ...taken, variables }, now))
    return {
      tokens: codec.encodeSegments(rendered.segments),
      thinkingOpen: ReplyStyle.isThinkingOpen(style, rendered)
    }
  })

  /**
   * Answers a conversation, and hands over the parts as they come. `told` hears at the end what it took, also when it is
   * interrupted or fails.
   */
  const answer = Effect.fnUntraced(function*<E, R>(
    talk: Talk.Talk,
    { maxTokens, sampling, thinking }: Settings,
    hear: { readonly part: (part: Reply.Part) => Effect.Effect<void, E, R>; readonly told: (stats: Stats) => void }
  ) {
    const started = yield* Clock.currentTimeMillis
    const { thinkingOpen, tokens } = yield* prompt(talk, thinking)
    const cached = commonPrefix(yield* engine.cached, tokens)
    const reply = Reply.make(style, { toolsGiven: [], thinkingOpen })
    let count = 0
    let firstAt: number | undefined
    let lastAt = started
    let last: Token | undefined
    const tell = (): void =>
      hear.told({
        promptTokens: tokens.length,
        cachedTokens: Math.min(cached, tokens.length - 1),
        firstTokenMillis: Math.round((firstAt ?? lastAt) - started),
        generatedTokens: count,
        tokensPerSecond: rate(count - 1, lastAt - (firstAt ?? lastAt)),
        contextTokens: tokens.length + count,
        context: engine.context,
        stop: last?.stop,
        drafts: last?.drafts
      })
    yield* engine.generate({ tokens, maxTokens, sampling }).pipe(
      Stream.runForEach((token) =>
        Effect.gen(function*() {
          lastAt = yield* Clock.currentTimeMillis
          firstAt ??= lastAt
          count++
          last = token
          yield* Effect.forEach(reply.push(token), hear.part, { discard: true })
        })
      ),
      Effect.andThen(Effect.suspend(() => Effect.forEach(reply.end(), hear.part, { discard: true }))),
      Effect.ensuring(Effect.sync(tell))
    )
  })
  return { answer, name: engine.model.config.name, thinks: style.thinking !== undefined }
})

/** What answers. */
export type Answering = Effect.Success<ReturnType<typeof make>>

const commonPrefix = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): number => {
  let n = 0
  while (n < a.length && n < b.length && a[n] === b[n]) n++
  return n
}

const rate = (count: number, millis: number): number =>
  count < 1 || millis <= 0 ? 0 : Math.round(count / millis * 10_000) / 10
