/** How loading is told on stderr: a bar on a terminal, two lines elsewhere. */
import type { Progress } from "@tg/engine/Loader"
import { Clock, Context, Effect, Exit, Stdio, Stream } from "effect"
import * as Output from "./Output.ts"

/** Whether stderr is a terminal, where a line can be written over. */
export const IsTerminal = Context.Reference<boolean>("@tg/cli/Progress/IsTerminal", { defaultValue: () => false })

/** Tells how far loading is. */
export interface Told {
  readonly onProgress: (progress: Progress) => Effect.Effect<void>
  readonly end: (exit: Exit.Exit<unknown, unknown>) => Effect.Effect<void>
}

/** Nothing is told. */
export const silent: Told = { onProgress: () => Effect.void, end: () => Effect.void }

const units = ["B", "kB", "MB", "GB"] as const

/** `17.2 GB` */
export const bytes = (n: number): string => {
  const power = n < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(n) / 3))
  return `${(n / 1000 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`
}

/** `45 s`, `2 min 5 s` */
export const seconds = (n: number): string => {
  const whole = Math.ceil(n)
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`
}

const cells = 24

/** The bar after so many milliseconds. */
export const bar = ({ loadedBytes, totalBytes }: Progress, millis: number): string => {
  const share = totalBytes === 0 ? 1 : loadedBytes / totalBytes
  const full = Math.floor(cells * share)
  const rate = loadedBytes / Math.max(1, millis) * 1000
  const rest = loadedBytes === totalBytes ? "compiling" : `${seconds((totalBytes - loadedBytes) / rate)} left`
  return `loading [${"#".repeat(full)}${"-".repeat(cells - full)}] ${bytes(loadedBytes)} of ${bytes(totalBytes)}, ` +
    `${bytes(rate)}/s, ${rest}`
}

/** The last line. */
export const summary = (totalBytes: number, millis: number): string =>
  `loaded ${bytes(totalBytes)} in ${(millis / 1000).toFixed(1)} s (${bytes(totalBytes / Math.max(1, millis) * 1000)}/s)`

// a bar that changes faster is not read, and costs time
const intervalMillis = 100

/** Begins to tell about a model of that many bytes. */
export const start = Effect.fn("cli.progress")(function*(name: string, totalBytes: number) {
  const context = yield* Effect.context<Stdio.Stdio>()
  const isTerminal = yield* IsTerminal
  const { stderr } = yield* Stdio.Stdio
  const started = yield* Clock.currentTimeMillis
  let shownAt = -Infinity
  // compiling may go on for a while after the last byte
  let loadedAt: number | undefined
  // from the beginning of the line, whose rest is erased
  const over = (text: string): Effect.Effect<void> =>
    Effect.ignore(Stream.run(Stream.make(`\r${text}\x1b[K`), stderr({ endOnDone: false })))
  const note = (line: string): Effect.Effect<void> => Effect.provide(Output.note(line), context)
  if (!isTerminal) yield* note(`loading ${name}, ${bytes(totalBytes)}`)
  const told: Told = {
    onProgress: (progress) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        if (progress.loadedBytes === totalBytes) loadedAt = now
        else if (now - shownAt < intervalMillis) return Effect.void
        shownAt = now
        return isTerminal ? over(bar(progress, now - started)) : Effect.void
      }),
    end: (exit) =>
      Effect.gen(function*() {
        if (isTerminal) yield* over("")
        if (Exit.isSuccess(exit)) yield* note(summary(totalBytes, (loadedAt ?? started) - started))
      })
  }
  return told
})
