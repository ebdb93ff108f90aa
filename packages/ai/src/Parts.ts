/** A reply's tokens as the parts that `LanguageModel` streams. */
import type * as Reply from "@tg/dialogue/Reply"
import type { Generation } from "@tg/engine/Conversations"
import type { EngineError, Token } from "@tg/engine/Engine"
import { Effect, Stream } from "effect"
import { AiError, type IdGenerator, type Response } from "effect/ai"

/** A call that is being read. */
interface Call {
  readonly id: string
  readonly name: string
  text: string
}

/** A section of text or of thinking that is open. */
interface Section {
  readonly type: "text" | "reasoning"
  readonly id: string
}

/** Turns what a reply consists of into parts, each section with a start and an end. */
export const writer = (newId: Effect.Effect<string>) => {
  const calls = new Map<number, Call>()
  let section: Section | undefined
  let complete = 0

  const close = (): ReadonlyArray<Response.StreamPartEncoded> => {
    const open = section
    section = undefined
    return open === undefined ? [] : [{ type: `${open.type}-end`, id: open.id }]
  }

  const write = Effect.fnUntraced(function*(
    part: Reply.Part
  ): Effect.fn.Return<ReadonlyArray<Response.StreamPartEncoded>> {
    switch (part.type) {
      case "text":
      case "reasoning": {
        const ended = section?.type === part.type ? [] : close()
        const started = section === undefined
        section ??= { type: part.type, id: yield* newId }
        const { id, type } = section
        return [...ended, ...(started ? [{ type: `${type}-start`, id } as const] : []), {
          type: `${type}-delta`,
          id,
          delta: part.text
        }]
      }
      case "tool-start": {
        const ended = close()
        const call: Call = { id: yield* newId, name: part.name, text: "" }
        calls.set(part.index, call)
        return [...ended, { type: "tool-params-start", id: call.id, name: call.name }]
      }
      case "tool-arguments": {
        const call = calls.get(part.index)!
        call.text += part.text
        return [{ type: "tool-params-delta", id: call.id, delta: part.text }]
      }
      case "tool-end": {
        const { id, name, text } = calls.get(part.index)!
        const end = { type: "tool-params-end", id } as const
        if (!part.complete) return [end]
        complete++
        return [end, { type: "tool-call", id, name, params: JSON.parse(text) }]
      }
    }
  })
  return { write, close, calls: () => complete }
}

/** Why the generation ended, in the words of `LanguageModel`. */
const reasonOf = (stop: Token["stop"], calls: number): typeof Response.FinishReason.Type =>
  stop === "length" || stop === "context" ? "length" : calls > 0 ? "tool-calls" : "stop"

/** An engine's failure as an error of `LanguageModel`. */
export const failed = (error: EngineError): AiError.AiError => {
  const { message: description } = error
  const isAsked = ["ContextFull", "InvalidTokens", "InvalidRequest", "InvalidSampling", "NothingAllowed"].includes(
    error._tag
  )
  return AiError.make({
    module: "@tg/ai",
    method: "generateText",
    reason: isAsked
      ? new AiError.InvalidRequestError({ description })
      : new AiError.InternalProviderError({ description })
  })
}

/** The parts of a reply, with what was used at the end. */
export const stream = (
  { cachedTokens, promptTokens, tokens }: Generation,
  reply: Reply.Reply,
  ids: IdGenerator.Service
): Stream.Stream<Response.StreamPartEncoded, AiError.AiError> =>
  Stream.suspend(() => {
    const { calls, close, write } = writer(ids.generateId())
    let count = 0
    let stop: Token["stop"]
    const writeAll = (parts: ReadonlyArray<Reply.Part>) => Effect.map(Effect.forEach(parts, write), (all) => all.flat())
    const body = tokens.pipe(
      Stream.mapError(failed),
      Stream.mapEffect((token) => {
        count++
        stop = token.stop
        return writeAll(reply.push(token))
      }),
      Stream.flatMap(Stream.fromIterable)
    )
    const end = Stream.unwrap(Effect.gen(function*() {
      const rest = yield* writeAll(reply.end())
      const finish: Response.FinishPartEncoded = {
        type: "finish",
        reason: reasonOf(stop, calls()),
        usage: {
          inputTokens: { total: promptTokens, uncached: promptTokens - cachedTokens, cacheRead: cachedTokens },
          outputTokens: { total: count }
        }
      }
      return Stream.fromIterable<Response.StreamPartEncoded>([...rest, ...close(), finish])
    }))
    return Stream.concat(body, end)
  })

/** Streamed parts as those of a whole answer: what was written in pieces as one. */
export const collect = (parts: Iterable<Response.StreamPartEncoded>): Array<Response.PartEncoded> => {
  const whole: Array<Response.PartEncoded> = []
  let text = ""
  for (const part of parts) {
    if (part.type === "text-delta" || part.type === "reasoning-delta") text += part.delta
    else if (part.type === "text-end" || part.type === "reasoning-end") {
      whole.push({ type: part.type === "text-end" ? "text" : "reasoning", text })
      text = ""
    } else if (part.type === "tool-call" || part.type === "finish") whole.push(part)
  }
  return whole
}
