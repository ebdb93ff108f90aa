/** Who is answered when: so many at a time, a bounded number waits, and clients take turns. */
import { Clock, Context, Deferred, Effect, Layer, type Scope } from "effect"
import * as ApiError from "./ApiError.ts"
import * as RoundRobin from "./internal/roundRobin.ts"
import type { Limits } from "./Limits.ts"

/** How many there are. */
export interface Counts {
  readonly running: number
  readonly waiting: number
}

/** The line in front of the model. */
export class FairQueue extends Context.Service<FairQueue, {
  /**
   * Waits for a turn, and has it until the Scope is closed. Fails with 429 where too many wait (the ones who give way are
   * those of the client that has the most), and with 503 where the server is about to end.
   */
  readonly enter: (client: string) => Effect.Effect<void, ApiError.ApiError, Scope.Scope>
  readonly counts: Effect.Effect<Counts>
  /** Refuses who waits and who comes, and waits for those that have their turn. */
  readonly drain: Effect.Effect<void>
}>()("@tg/serve/FairQueue") {
  /** A line with these limits. */
  static readonly layer = (limits: Pick<Limits, "parallel" | "queue">): Layer.Layer<FairQueue> =>
    Layer.effect(FairQueue, make(limits))
}

interface Ticket {
  readonly client: string
  readonly turn: Deferred.Deferred<void, ApiError.ApiError>
  state: "waiting" | "running" | "refused"
  since: number
}

/** Makes a line. */
export const make = Effect.fn("FairQueue.make")(function*(limits: Pick<Limits, "parallel" | "queue">) {
  const line = RoundRobin.make<Ticket>(limits.queue)
  const idle = yield* Deferred.make<void>()
  let running = 0
  let isDraining = false
  // seconds that a turn takes, as far as it is known
  let turnSeconds = 1

  const start = (ticket: Ticket, now: number): void => {
    running++
    ticket.state = "running"
    ticket.since = now
    Deferred.doneUnsafe(ticket.turn, Effect.void)
  }

  const refuse = (ticket: Ticket): void => {
    ticket.state = "refused"
    Deferred.doneUnsafe(ticket.turn, Effect.fail(isDraining ? ending : full(limits.queue, secondsToWait())))
  }

  const secondsToWait = (): number =>
    Math.min(60, Math.max(1, Math.ceil(turnSeconds * (line.size() + 1) / limits.parallel)))

  const join = (client: string) =>
    Effect.map(Clock.currentTimeMillis, (now): Ticket => {
      const ticket: Ticket = { client, turn: Deferred.makeUnsafe(), state: "waiting", since: now }
      if (isDraining) refuse(ticket)
      else if (running < limits.parallel) start(ticket, now)
      else {
        const out = line.add(client, ticket)
        if (out !== undefined) refuse(out)
      }
      return ticket
    })

  const leave = (ticket: Ticket) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      if (ticket.state === "waiting") line.remove(ticket.client, ticket)
      if (ticket.state !== "running") return
      turnSeconds += ((now - ticket.since) / 1000 - turnSeconds) / 4
      running--
      const next = line.take()
      if (next !== undefined) start(next, now)
      else if (isDraining && running === 0) Deferred.doneUnsafe(idle, Effect.void)
    })

  return FairQueue.of({
    enter: (client) => Effect.flatMap(Effect.acquireRelease(join(client), leave), ({ turn }) => Deferred.await(turn)),
    counts: Effect.sync(() => ({ running, waiting: line.size() })),
    drain: Effect.suspend(() => {
      isDraining = true
      for (const ticket of line.clear()) refuse(ticket)
      return running === 0 ? Effect.void : Deferred.await(idle)
    })
  })
})

const ending = ApiError.unavailable("the server is about to end; ask another one, or later", {
  code: "shutting_down",
  retryAfter: 5
})

const full = (limit: number, retryAfter: number): ApiError.ApiError =>
  ApiError.tooMany(`${limit} requests wait already, which is the limit; ask again in ${retryAfter} s`, {
    code: "queue_full",
    retryAfter
  })
