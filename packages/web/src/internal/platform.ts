/** The worker's end of the way to the page that started it. */
import { Cause, Effect, Exit, type Fiber, Stream } from "effect"
import type { ModelError } from "../ModelError.ts"
import type { Answering, Asking, End, Part } from "./messages.ts"
import { mail } from "./scheduling.ts"

/** What answers requests: by their names, with a value or with a stream of them. */
export type Handler = (
  payload: never
) => Effect.Effect<unknown, ModelError> | Stream.Stream<Part<unknown>, ModelError>

/** Where messages come from and go to. */
export interface Port {
  readonly addEventListener: (type: "message" | "messageerror", listener: (event: MessageEvent) => void) => void
  readonly postMessage: (message: Answering, moved: Array<Transferable>) => void
}

const endOf = (exit: Exit.Exit<unknown, ModelError>): End => {
  if (Exit.isSuccess(exit)) return ["done", exit.value]
  if (Cause.hasInterruptsOnly(exit.cause)) return ["interrupted"]
  const error: unknown = Cause.squash(exit.cause)
  if (exit.cause.reasons.some(Cause.isFailReason)) {
    const { message, reason } = error as ModelError
    return ["failed", reason, message]
  }
  return error instanceof Error
    ? ["died", error.name, error.message, error.stack]
    : ["died", "Error", String(error), undefined]
}

/** Answers the requests that come. What runs ends with the worker. */
export const serve = Effect.fnUntraced(function*(
  handlers: Readonly<Record<string, Handler>>,
  // the types of a page are those of a window; this runs in a worker
  page: Port = globalThis as unknown as Port
) {
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const running = new Map<number, Fiber.Fiber<unknown, ModelError>>()
  /** What goes on when the page has taken the values of a request. */
  const taken = new Map<number, () => void>()
  const post = (message: Answering) => page.postMessage(message, [])

  const start = (request: number, name: string, payload: unknown): void => {
    // nothing comes behind these: they go with the end, when all is given back
    let last: Part<unknown>["values"] | undefined
    const send = ({ isLast, values }: Part<unknown>): Effect.Effect<void> => {
      if (isLast) return Effect.sync(() => void (last = values))
      return Effect.callback((resume) => {
        taken.set(request, () => resume(Effect.void))
        post([1, request, values])
      })
    }
    const answer = Effect.suspend(() => {
      const answer = handlers[name]!(payload as never)
      return Stream.isStream(answer) ? Stream.runForEach(answer, send) : answer
    })
    const fiber = run(answer)
    running.set(request, fiber)
    fiber.addObserver((exit) => {
      taken.delete(request)
      // otherwise the page has said that nobody waits
      if (running.delete(request)) post([1, request, last, endOf(exit)])
    })
  }

  page.addEventListener("message", ({ data }: MessageEvent<Asking>) => {
    if (data[0] === 2) {
      mail.sent = data[1]
      mail.come = 0
      return post([0])
    }
    mail.come++
    const [, request] = data
    if (data[0] === 0) return start(request, data[2], data[3])
    if (data[0] === 1) {
      const goOn = taken.get(request)
      taken.delete(request)
      return goOn?.()
    }
    const fiber = running.get(request)
    running.delete(request)
    fiber?.interruptUnsafe()
  })
  page.addEventListener("messageerror", () => post([2]))
  // the page sends nothing until it has this
  post([0])
  return yield* Effect.never
})
