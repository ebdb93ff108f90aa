/** The page's end of the way to the worker. The worker needs nothing of it. */
import { Cause, Effect, Exit, Stream } from "effect"
import { ModelError } from "../ModelError.ts"
import type { Answering, Asking, End } from "./messages.ts"

const broken = (what: string): ModelError =>
  new ModelError({ reason: "WorkerFailed", message: `${what}; open the model again` })

const unsent = (cause: unknown): ModelError =>
  new ModelError({ reason: "InvalidRequest", message: `the request cannot be sent to the worker: ${String(cause)}` })

const explain = (event: Event): string =>
  "message" in event && typeof event.message === "string" && event.message !== ""
    ? event.message
    : "its script could not be loaded; worker.js and its chunks have to lie beside the page's script, on the same origin"

const exitOf = (end: End): Exit.Exit<unknown, ModelError> => {
  switch (end[0]) {
    case "done":
      return Exit.succeed(end[1])
    case "failed":
      return Exit.fail(new ModelError({ reason: end[1], message: end[2] }))
    case "died":
      return Exit.die(Object.assign(new Error(end[2]), { name: end[1], stack: end[3] }))
    case "interrupted":
      return Exit.interrupt()
  }
}

type Values = Extract<Answering, readonly [1, ...ReadonlyArray<unknown>]>[2]

/** Who waits for the answer to a request. */
type Waiting = (values: Values, exit: Exit.Exit<unknown, ModelError> | undefined) => void

/** What requests are made through. */
export interface Asker {
  /** A request with one answer. What is in `moved` is no longer the page's. */
  readonly one: (name: string, payload: unknown, moved: Array<Transferable>) => Effect.Effect<unknown, ModelError>
  /** A request that is answered by values, which the page takes group by group: at most one waits here, and one is computed behind it. */
  readonly many: (name: string, payload: unknown, moved: Array<Transferable>) => Stream.Stream<unknown, ModelError>
}

/** Posts messages when the worker is ready, and counts them where it can see that. */
const sender = (worker: Worker) => {
  // what is not shared is a copy there, which says from the first message on that one is on its way
  const sent = new Int32Array(globalThis.crossOriginIsolated ? new SharedArrayBuffer(4) : new ArrayBuffer(4))
  let early: Array<() => void> | undefined = []
  const count: Asking = [2, sent]
  // one that was started before may have said that it is ready when nobody listened
  worker.postMessage(count, [])
  return {
    ready: () => {
      const waiting = early ?? []
      early = undefined
      for (const post of waiting) post()
    },
    post: (message: Asking, moved: Array<Transferable> = [], refused: (cause: unknown) => void = () => {}) => {
      const post = () => {
        Atomics.add(sent, 0, 1)
        try {
          worker.postMessage(message, moved)
        } catch (cause) {
          Atomics.sub(sent, 0, 1)
          refused(cause)
        }
      }
      if (early === undefined) post()
      else early.push(post)
    }
  }
}

/** Talks to a worker. It ends with the scope, in the middle of whatever it does: its memory and its GPU go with it. */
export const connect = Effect.fnUntraced(function*(spawn: () => Worker) {
  const waiting = new Map<number, Waiting>()
  let over: Exit.Exit<never, ModelError> | undefined
  const end = (exit: Exit.Exit<never, ModelError>): void => {
    over ??= exit
    const all = [...waiting.values()]
    waiting.clear()
    for (const answered of all) answered(undefined, exit)
  }
  const worker = yield* Effect.acquireRelease(
    Effect.try({ try: spawn, catch: (cause) => broken(`the worker could not be started: ${String(cause)}`) }),
    (worker) =>
      Effect.sync(() => {
        worker.terminate()
        end(Exit.interrupt())
      })
  )
  const { post, ready } = sender(worker)
  worker.addEventListener("message", ({ data }: MessageEvent<Answering>) => {
    if (data[0] === 0) return ready()
    if (data[0] === 2) return end(Exit.fail(broken("a message of the page cannot be read")))
    const [, request, values, last] = data
    const answered = waiting.get(request)
    if (last !== undefined) waiting.delete(request)
    answered?.(values, last && exitOf(last))
  })
  worker.addEventListener("messageerror", () => end(Exit.fail(broken("a message of the worker cannot be read"))))
  worker.addEventListener("error", (event) => {
    event.preventDefault()
    end(Exit.fail(broken(`the worker failed: ${explain(event)}`)))
  })
  return asker({ waiting, post, over: () => over })
})

interface Line {
  readonly waiting: Map<number, Waiting>
  readonly post: ReturnType<typeof sender>["post"]
  /** How the worker ended, if it has. */
  readonly over: () => Exit.Exit<never, ModelError> | undefined
}

const asker = ({ over, post, waiting }: Line): Asker => {
  let requests = 0
  /** Asks, and answers with what is to be done if nobody waits any more. */
  const ask = (answered: Waiting, [name, payload, moved]: Parameters<Asker["one"]>) => {
    const request = requests++
    const ended = over()
    if (ended !== undefined) answered(undefined, ended)
    else {
      waiting.set(request, answered)
      post([0, request, name, payload], moved, (cause) => {
        waiting.delete(request)
        answered(undefined, Exit.fail(unsent(cause)))
      })
    }
    return {
      more: () => post([1, request]),
      forget: () => {
        if (waiting.delete(request)) post([3, request])
      }
    }
  }
  return {
    one: (...asked) =>
      Effect.callback((resume) => {
        const { forget } = ask((_, exit) => exit && resume(exit), asked)
        return Effect.sync(forget)
      }),
    many: (...asked) => Stream.scoped(Stream.fromPull(pulling((answered) => ask(answered, asked))))
  }
}

/** The groups of a stream, one after the other. */
const pulling = Effect.fnUntraced(function*(
  ask: (answered: Waiting) => { readonly more: () => void; readonly forget: () => void }
) {
  let here: Values
  let ended: Exit.Exit<unknown, ModelError> | undefined
  let wake: (() => void) | undefined
  const { more } = yield* Effect.acquireRelease(
    Effect.sync(() =>
      ask((values, exit) => {
        here = values
        ended = exit
        wake?.()
      })
    ),
    ({ forget }) => Effect.sync(forget)
  )
  const end = Effect.suspend((): Effect.Effect<never, ModelError | Cause.Done> =>
    ended !== undefined && Exit.isFailure(ended) ? Effect.failCause(ended.cause) : Cause.done()
  )
  return Effect.callback<NonNullable<Values>, ModelError | Cause.Done>((resume) => {
    const take = () => {
      wake = undefined
      const values = here
      here = undefined
      if (values === undefined) return resume(end)
      if (ended === undefined) more()
      resume(Effect.succeed(values))
    }
    if (here !== undefined || ended !== undefined) return take()
    wake = take
    return Effect.sync(() => void (wake = undefined))
  })
})
