/** Answers as they are generated: a turn in the line, one generation after the other, and everything given back at the end. */
import { Conversations, type Generation } from "@tg/engine/Conversations"
import type { EngineError, Request, Token } from "@tg/engine/Engine"
import { Context, Effect, Exit, Layer, Scope, Stream } from "effect"
import * as ApiError from "./ApiError.ts"
import { FairQueue } from "./FairQueue.ts"
import type { Limits } from "./Limits.ts"
import * as Metrics from "./Metrics.ts"
import type { Part } from "@tg/dialogue/Reply"

/** One of the answers to a request. */
export type Event =
  | {
    readonly type: "begin"
    readonly index: number
    readonly promptTokens: number
    readonly cachedTokens: number
  }
  | {
    readonly type: "token"
    readonly index: number
    readonly token: Token
    /** What is certain with it. */
    readonly parts: ReadonlyArray<Part>
  }
  | {
    readonly type: "end"
    readonly index: number
    /** The rest. */
    readonly parts: ReadonlyArray<Part>
  }

/** Reads one answer, token by token. */
export interface Reader {
  readonly push: (token: Token) => ReadonlyArray<Part>
  readonly end: () => ReadonlyArray<Part>
}

/** Takes all text as it is. */
export const plain = (): Reader => ({
  push: ({ text }) => text === "" ? [] : [{ type: "text", text }],
  end: () => []
})

/** What is to be answered. */
export interface Job {
  /** Whose turn it is. */
  readonly client: string
  /** One for each answer. A function, since a constraint serves one generation. */
  readonly requests: ReadonlyArray<() => Request>
  /** The field that a prompt which does not fit is blamed on. */
  readonly param: string
  /** Reads an answer. */
  readonly reader: () => Reader
  /** Whether an answer ends behind this part, whatever the model would say next. */
  readonly isLast?: ((part: Part) => boolean) | undefined
}

/** Generates answers. */
export class Answers extends Context.Service<Answers, {
  /**
   * Waits for a turn and begins. Closing the Scope ends the generation within one token. Answers are generated at the
   * model's pace, however slowly they are read.
   */
  readonly begin: (
    job: Job
  ) => Effect.Effect<Stream.Stream<Event, ApiError.ApiError>, ApiError.ApiError, Scope.Scope>
}>()("@tg/serve/Answers") {
  /** Answers of the conversations, in turns. */
  static readonly layer = (limits: Limits): Layer.Layer<Answers, never, Conversations | FairQueue> =>
    Layer.effect(
      Answers,
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const queue = yield* FairQueue
        return Answers.of({ begin: (job) => begin(job, { conversations, limits, queue }) })
      })
    )
}

// Events that may wait for a slow reader: more than most answers have.
const buffered = 4096

const begin = Effect.fn("Answers.begin")(function*(
  job: Job,
  { conversations, limits, queue }: {
    readonly conversations: Conversations["Service"]
    readonly limits: Limits
    readonly queue: FairQueue["Service"]
  }
) {
  const outer = yield* Effect.scope
  // the turn ends with the generation, not with the response: a slow reader keeps nobody waiting
  const turn = yield* Scope.fork(outer)
  const tooLong = ApiError.unavailable(`the request took longer than ${limits.requestSeconds} s, which is the limit`, {
    code: "timeout",
    retryAfter: 60
  })
  const toApi = (error: EngineError): ApiError.ApiError => ApiError.fromEngine(error, job.param)
  const open = Effect.fnUntraced(function*(request: Request) {
    const own = yield* Scope.fork(turn)
    const generation = yield* conversations.generate(request).pipe(Scope.provide(own), Effect.mapError(toApi))
    const tokens = generation.tokens.pipe(Stream.mapError(toApi), Stream.ensuring(Scope.close(own, Exit.void)))
    return { ...generation, tokens }
  })
  const eventsOf = (
    { cachedTokens, promptTokens, tokens }: Omit<Generation, "tokens"> & {
      readonly tokens: Stream.Stream<Token, ApiError.ApiError>
    },
    index: number
  ): Stream.Stream<Event, ApiError.ApiError> => {
    const { isLast = () => false, reader } = job
    const start: Event = { type: "begin", index, promptTokens, cachedTokens }
    return Stream.concat(
      Stream.make(start),
      Stream.suspend(() => {
        const reading = reader()
        const steps = Stream.map(tokens, (token) => ({
          type: "token" as const,
          index,
          token,
          parts: reading.push(token)
        })).pipe(Stream.takeUntil(({ parts }) => parts.some(isLast)))
        return Stream.concat(steps, Stream.sync((): Event => ({ type: "end", index, parts: reading.end() })))
      })
    )
  }
  const [firstRequest, ...others] = job.requests
  if (firstRequest === undefined) return Stream.empty
  const first = yield* queue.enter(job.client).pipe(
    Scope.provide(turn),
    Effect.andThen(Effect.suspend(() => open(firstRequest()))),
    Effect.timeoutOrElse({ duration: limits.requestSeconds * 1000, orElse: () => Effect.fail(tooLong) })
  )
  const rest = Stream.flatMap(
    Stream.fromIterable(others.entries()),
    ([i, request]) => Stream.unwrap(Effect.map(open(request()), (generation) => eventsOf(generation, i + 1)))
  )
  return eventsOf(first, 0).pipe(
    Stream.concat(rest),
    Stream.interruptWhen(Effect.andThen(Effect.sleep(limits.requestSeconds * 1000), Effect.fail(tooLong))),
    Metrics.watch,
    Stream.ensuring(Scope.close(turn, Exit.void)),
    Stream.buffer({ capacity: buffered })
  )
})
