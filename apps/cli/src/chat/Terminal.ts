/**
 * Where a chat takes place. On a terminal: the platform's line editor (`node:readline`: history, cursor keys, long lines),
 * and Ctrl-C heard while an answer is on its way. Elsewhere: the lines of stdin.
 */
import { createInterface } from "node:readline"
import { PassThrough } from "node:stream"
import { StringDecoder } from "node:string_decoder"
import { Context, Effect, type Scope, Stdio, Stream } from "effect"
import * as Pull from "effect/Pull"
import { commands } from "./Command.ts"
import type { History } from "./History.ts"
import * as Keys from "./Keys.ts"
import { type Style, styleOf } from "./Style.ts"

/** What was typed; nothing where the user leaves or the input ends. */
export type Line = string | undefined

/** One end of a chat. */
export interface Terminal {
  /** Whether a person sits there, who sees what is typed. */
  readonly isInteractive: boolean
  readonly style: Style
  /** A line, which may have line breaks inside. */
  readonly read: (prompt: string, history: History) => Effect.Effect<Line>
  /** Runs an effect until Ctrl-C: whether it was let to its end. */
  readonly untilInterrupted: <E, R>(effect: Effect.Effect<void, E, R>) => Effect.Effect<boolean, E, R>
}

/** The terminal of this process, if stdin and stdout are one. */
export const Tty = Context.Reference<
  | {
    readonly input: NodeJS.ReadStream
    readonly output: NodeJS.WriteStream
  }
  | undefined
>("@tg/cli/chat/Tty", { defaultValue: () => undefined })

/** The end of a chat that this process has. */
export const open: Effect.Effect<Terminal, never, Scope.Scope | Stdio.Stdio> = Effect.gen(function*() {
  const tty = yield* Tty
  const { stdoutIsTerminal } = yield* Stdio.Stdio
  const style = styleOf(yield* stdoutIsTerminal, process.env)
  return tty === undefined ? yield* piped(style) : interactive(tty.input, tty.output, style)
})

const piped = Effect.fnUntraced(function*(style: Style) {
  const { stdin } = yield* Stdio.Stdio
  const lines = stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.rechunk(1))
  const pull = yield* Stream.toPull(lines)
  const next: Effect.Effect<Line> = pull.pipe(
    Effect.map(([line]): Line => line),
    Pull.catchDone(() => Effect.succeed<Line>(undefined)),
    // a stdin that cannot be read any further has ended
    Effect.orElseSucceed((): Line => undefined)
  )
  const terminal: Terminal = {
    isInteractive: false,
    style,
    read: () => next,
    untilInterrupted: (effect) => Effect.as(effect, true)
  }
  return terminal
})

const interactive = (input: NodeJS.ReadStream, output: NodeJS.WriteStream, style: Style): Terminal => {
  const decoder = new StringDecoder("utf8")
  // what was typed and nobody has asked for yet
  let waiting = ""

  /** Hears every key until it is told to stop. Ctrl-C is a key like any other. */
  const listen = (onInput: () => void, onEnd: () => void): () => void => {
    const onData = (bytes: Buffer): void => {
      waiting += decoder.write(bytes)
      onInput()
    }
    input.setRawMode(true)
    input.on("data", onData)
    input.once("end", onEnd)
    input.resume()
    return () => {
      input.off("data", onData)
      input.off("end", onEnd)
      input.pause()
      input.setRawMode(false)
    }
  }

  const read = (prompt: string, history: History): Effect.Effect<Line> =>
    Effect.callback<Line>((resume) => {
      const edit = editor({ history, input, output, prompt })
      let isDone = false
      const done = (line: Line): void => {
        if (isDone) return
        isDone = true
        stop()
        edit.close()
        resume(Effect.succeed(line))
      }
      let isFed = false
      const feed = (): void => {
        if (isFed) return
        const { isLine, keys, rest } = Keys.take(waiting)
        waiting = rest
        isFed = isLine
        edit.type(keys)
      }
      const stop = listen(feed, () => done(undefined))
      edit.start(done)
      feed()
      return Effect.sync(() => done(undefined))
    })

  return {
    isInteractive: true,
    style,
    read,
    untilInterrupted: (effect) =>
      Effect.raceFirst(
        Effect.as(effect, true),
        Effect.callback<boolean>((resume) => {
          const stop = listen(() => {
            const at = waiting.lastIndexOf("\x03")
            if (at < 0) return
            // what was typed before it was meant for an answer that is not wanted
            waiting = waiting.slice(at + 1)
            stop()
            resume(Effect.succeed(false))
          }, () => {})
          return Effect.sync(stop)
        })
      )
  }
}

const complete = (line: string): [Array<string>, string] => {
  const names = commands.map(([name]) => `/${name}`)
  return [line.startsWith("/") ? names.filter((name) => name.startsWith(line)) : [], line]
}

/** A line editor for one line. It is given its keys, so that it gets none that are not for it. */
const editor = ({ history, input, output, prompt }: {
  readonly history: History
  readonly input: NodeJS.ReadStream
  readonly output: NodeJS.WriteStream
  readonly prompt: string
}) => {
  const hasPastes = process.env["TERM"] !== "dumb"
  // Ctrl-Z leaves raw mode and comes back to it
  const keys = Object.assign(new PassThrough(), {
    isRaw: true,
    setRawMode: (mode: boolean) => input.setRawMode(mode)
  })
  const lines = createInterface({
    input: keys,
    output,
    terminal: true,
    prompt,
    history: history.lines().map(Keys.toLine),
    historySize: 1000,
    removeHistoryDuplicates: true,
    completer: complete
  })
  let isWarned = false
  return {
    start: (done: (line: Line) => void): void => {
      lines.on("line", (line) => done(Keys.toText(line)))
      lines.on("close", () => {
        // Ctrl-D does not end the line that it stands in
        output.write("\n")
        done(undefined)
      })
      lines.on("SIGINT", () => {
        if (lines.line !== "") {
          output.write("^C\n")
          lines.write(null, { ctrl: true, name: "e" })
          lines.write(null, { ctrl: true, name: "u" })
        } else if (isWarned) {
          output.write("\n")
          done(undefined)
          return
        } else output.write("\n(Ctrl-C again, or Ctrl-D, ends the chat)\n")
        isWarned = true
        lines.prompt()
      })
      if (hasPastes) output.write(Keys.markPastes)
      lines.prompt()
    },
    type: (text: string): void => {
      if (text === "") return
      if (text !== "\x03") isWarned = false
      keys.write(text)
    },
    close: (): void => {
      lines.removeAllListeners("close")
      lines.close()
      if (hasPastes) output.write(Keys.leavePastes)
    }
  }
}
