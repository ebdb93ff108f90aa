/** What the packages log: lines on stderr, so that stdout has nothing but results, which other programs read. */
import { Effect, Logger, type LogLevel, type Stdio } from "effect"
import * as Output from "./Output.ts"

const words: Partial<Record<LogLevel.LogLevel, string>> = { Fatal: "error", Error: "error", Warn: "warning" }

const textOf = (message: unknown): string =>
  (Array.isArray(message) ? message : [message]).map((part) => part instanceof Error ? part.message : String(part))
    .join(" ")

/** Writes each message as `warning: ..`, in place of Effect's logger, which writes to stdout. */
export const layer = Logger.layer([
  Effect.map(Effect.context<Stdio.Stdio>(), (stdio) => {
    const write = Effect.runForkWith(stdio)
    return Logger.make(({ logLevel, message }) => {
      const word = words[logLevel]
      write(Output.note(word === undefined ? textOf(message) : `${word}: ${textOf(message)}`))
    })
  })
])
