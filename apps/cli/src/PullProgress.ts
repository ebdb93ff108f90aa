/** How a pull is told on stderr: a bar on a terminal, lines elsewhere. */
import type { Event } from "@tg/hub/Pull"
import type { Listener, Progress as Bytes } from "@tg/hub/Store"
import { Clock, Effect, Exit, type Stdio } from "effect"
import * as Output from "./Output.ts"
import { bytes, fitting, lines, seconds } from "./Progress.ts"
import { Screen } from "./Screen.ts"

const intervalMillis = 100
/** What is fast now says more than what was fast an hour ago. */
const windowMillis = 10_000

/** Bytes at a time. */
interface Mark {
  readonly at: number
  readonly bytes: number
}

/** Bytes per second between the first and the last of these, or nothing yet. */
export const rateOf = (marks: ReadonlyArray<Mark>): number | undefined => {
  const [first, last] = [marks[0], marks.at(-1)]
  if (first === undefined || last === undefined || last.at <= first.at) return undefined
  return Math.max(0, (last.bytes - first.bytes) / (last.at - first.at) * 1000)
}

/** The bar, on a terminal so wide. */
export const bar = (
  verb: string,
  { doneBytes, totalBytes }: Bytes,
  rate: number | undefined,
  columns = Infinity
): string => {
  const share = totalBytes === 0 ? 1 : doneBytes / totalBytes
  const done = `${bytes(doneBytes)} of ${bytes(totalBytes)}`
  const speed = rate === undefined ? [] : [`${bytes(rate)}/s`]
  const left = rate === undefined || rate === 0 ? [] : [`${seconds((totalBytes - doneBytes) / rate)} left`]
  return fitting(columns, lines(verb, share, [done, ...speed, ...left]))
}

/** What a line says of an event, if it is one to say. */
export const lineOf = (event: Event): string | undefined => {
  switch (event.type) {
    case "damaged":
      return event.chunks.length === 0
        ? `${event.file} is not what it was; it is fetched again`
        : `${event.file}: ${event.chunks.length === 1 ? "1 chunk is" : `${event.chunks.length} chunks are`} damaged (${
          event.chunks.slice(0, 8).join(", ")
        }${event.chunks.length > 8 ? ", .." : ""}) and fetched again`
    case "restarted":
      return `${event.file} begins again: ${event.detail}`
    case "plain":
      return `${event.file} does not come as Xet, and is fetched as it is: ${event.detail}`
    case "unverified":
      return `${event.file}: the server tells no SHA-256 to compare with; it is ${event.sha256}`
    case "waiting":
      return `${event.file}: process ${event.owner.split(" ")[1]} is fetching it; waiting`
    default:
      return undefined
  }
}

/** Tells of a pull from its begin to its end. */
export const tell = Effect.fn("cli.pull.tell")(function*<A extends { readonly totalBytes: number }, E, R>(
  name: string,
  run: (listener: Listener) => Effect.Effect<A, E, R>
) {
  const stdio = yield* Effect.context<Stdio.Stdio>()
  const { canRewrite, columns } = yield* Screen
  const started = yield* Clock.currentTimeMillis
  let shownAt = -Infinity
  let checked = 0
  let first: number | undefined
  let last: Bytes = { doneBytes: 0, totalBytes: 0 }
  const marks: Array<Mark> = []
  const said = new Set<string>()
  const over = (text: string): Effect.Effect<void> =>
    canRewrite ? Effect.provide(Output.over(text), stdio) : Effect.void
  const note = (line: string): Effect.Effect<void> => Effect.andThen(over(""), Effect.provide(Output.note(line), stdio))
  const listener: Listener = {
    onEvent: (event) => {
      if (event.type === "checked") checked = event.checkedBytes
      if (event.type === "progress") checked = 0
      const line = lineOf(event)
      if (line === undefined || said.has(line)) return Effect.void
      said.add(line)
      return note(line)
    },
    onProgress: (progress) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        if (checked === 0) first ??= progress.doneBytes
        last = progress
        if (now - shownAt < intervalMillis) return Effect.void
        shownAt = now
        if (checked > 0) {
          return over(bar("checking", { doneBytes: checked, totalBytes: progress.totalBytes }, undefined, columns))
        }
        marks.push({ at: now, bytes: progress.doneBytes })
        while (marks.length > 2 && now - marks[0]!.at > windowMillis) marks.shift()
        return over(bar("pulling", progress, rateOf(marks), columns))
      })
  }
  yield* note(`pulling ${name}`)
  return yield* run(listener).pipe(Effect.onExit((exit) =>
    Effect.gen(function*() {
      yield* over("")
      const millis = (yield* Clock.currentTimeMillis) - started
      const came = Math.max(0, last.doneBytes - (first ?? last.doneBytes))
      const fetched = came === 0
        ? "nothing had to be fetched"
        : `${bytes(came)} fetched in ${(millis / 1000).toFixed(1)} s`
      if (Exit.isSuccess(exit)) yield* note(`${name}: ${bytes(exit.value.totalBytes)} whole and checked; ${fetched}`)
      else if (last.totalBytes > 0) yield* note(`${bytes(last.doneBytes)} of ${bytes(last.totalBytes)} are kept`)
    })
  ))
})
