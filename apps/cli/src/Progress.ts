/** How loading and reading are told on stderr: a line that is written over on a terminal, whole lines elsewhere. */
import type { Progress } from "@tg/engine/Loader"
import { Clock, Duration, Effect, Exit, Stdio } from "effect"
import * as Output from "./Output.ts"
import { Screen } from "./Screen.ts"
import * as Words from "./Words.ts"

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
/** A bar that is shorter says nothing. */
const leastCells = 6

/** The longest of these lines that fits; the last column stays free, because some terminals go on below it. */
export const fitting = (columns: number, lines: ReadonlyArray<string>): string =>
  lines.find((line) => line.length < columns) ?? lines.at(-1)!.slice(0, Math.max(0, columns - 1))

/** A line with a bar, and shorter ones: without its details, one by one from the right, and with a shorter bar. */
export const lines = (what: string, share: number, details: ReadonlyArray<string>): ReadonlyArray<string> => {
  const line = (length: number, said: ReadonlyArray<string>): string => {
    const full = Math.floor(length * Math.min(1, share))
    return `${what} [${"#".repeat(full)}${"-".repeat(length - full)}] ${said.join(", ")}`.trimEnd()
  }
  return [
    ...Array.from({ length: cells - leastCells + 1 }, (_, i) => line(cells - i, details)),
    ...Array.from({ length: details.length }, (_, i) => line(leastCells, details.slice(0, details.length - 1 - i))),
    what
  ]
}

/** The bar of loading after so many milliseconds, on a terminal so wide. */
export const bar = ({ loadedBytes, totalBytes }: Progress, millis: number, columns = Infinity): string => {
  const share = totalBytes === 0 ? 1 : loadedBytes / totalBytes
  const rate = loadedBytes / Math.max(1, millis) * 1000
  const rest = loadedBytes === totalBytes ? "compiling" : `${seconds((totalBytes - loadedBytes) / rate)} left`
  const done = `${bytes(loadedBytes)} of ${bytes(totalBytes)}`
  return fitting(columns, [
    ...lines("loading", share, [done, `${bytes(rate)}/s`, rest]).slice(0, cells - leastCells + 1),
    ...lines("loading", share, [done, rest])
  ])
}

/** The bar of reading a prompt. */
export const promptBar = (done: number, total: number, columns = Infinity): string =>
  fitting(columns, lines("reading the prompt", done / total, [`${done} of ${Words.count(total, "token")}`]))

/** The last line of loading. */
export const summary = (totalBytes: number, millis: number): string =>
  `loaded ${bytes(totalBytes)} in ${(millis / 1000).toFixed(1)} s (${bytes(totalBytes / Math.max(1, millis) * 1000)}/s)`

// a bar that changes faster is not read, and costs time
const intervalMillis = 100

/** Begins to tell about a model of that many bytes. */
export const start = Effect.fn("cli.progress")(function*(name: string, totalBytes: number) {
  const context = yield* Effect.context<Stdio.Stdio>()
  const { canRewrite, columns } = yield* Screen
  const started = yield* Clock.currentTimeMillis
  let shownAt = -Infinity
  // compiling may go on for a while after the last byte
  let loadedAt: number | undefined
  const over = (text: string): Effect.Effect<void> => Effect.provide(Output.over(text), context)
  const note = (line: string): Effect.Effect<void> => Effect.provide(Output.note(line), context)
  if (!canRewrite) yield* note(`loading ${name}, ${bytes(totalBytes)}`)
  const told: Told = {
    onProgress: (progress) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        if (progress.loadedBytes === totalBytes) loadedAt = now
        else if (now - shownAt < intervalMillis) return Effect.void
        shownAt = now
        return canRewrite ? over(bar(progress, now - started, columns)) : Effect.void
      }),
    end: (exit) =>
      Effect.gen(function*() {
        if (canRewrite) yield* over("")
        if (Exit.isSuccess(exit)) yield* note(summary(totalBytes, (loadedAt ?? started) - started))
      })
  }
  return told
})

/** Prompts that are read faster need no words. */
const silentMillis = 1000
/** A file of messages need not be long. */
const lineMillis = 5000

/** Tells how many of the tokens of a prompt have been read, until the scope closes or it is interrupted. */
export const reading = Effect.fn("cli.progress.prompt")(function*(total: number, done: () => number) {
  const { canRewrite, columns } = yield* Screen
  const stdio = yield* Stdio.Stdio
  let isShown = false
  const tell = Effect.suspend(() => {
    isShown = true
    const tokens = Math.min(done(), total)
    return canRewrite
      ? Output.over(promptBar(tokens, total, columns))
      : Output.note(`reading the prompt: ${tokens} of ${Words.count(total, "token")}`)
  })
  const telling = Effect.sleep(Duration.millis(silentMillis)).pipe(
    Effect.andThen(
      Effect.forever(Effect.andThen(tell, Effect.sleep(Duration.millis(canRewrite ? intervalMillis : lineMillis))))
    ),
    Effect.ensuring(Effect.suspend(() => isShown && canRewrite ? Output.over("") : Effect.void))
  )
  yield* Effect.forkScoped(telling.pipe(Effect.provideService(Stdio.Stdio, stdio)))
})
