import { spawn } from "node:child_process"
import { constants, tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Exit, Layer, Sink, Stdio, Stream } from "effect"
import { run } from "../../src/Cli.ts"

/** What a command left behind. */
export interface Outcome {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

// what the developer keeps as defaults is no part of a test
process.env["XDG_CONFIG_HOME"] = join(tmpdir(), "tg-no-configuration")

const collect = (into: Array<string>): Sink.Sink<void, string | Uint8Array> =>
  Sink.forEach((part) =>
    Effect.sync(() => {
      into.push(typeof part === "string" ? part : new TextDecoder().decode(part))
    })
  )

/** Runs a command in this process. */
export const tg = (args: ReadonlyArray<string>, stdin = ""): Effect.Effect<Outcome> =>
  Effect.gen(function*() {
    const stdout: Array<string> = []
    const stderr: Array<string> = []
    const stdio = Stdio.layerTest({
      stdout: () => collect(stdout),
      stderr: () => collect(stderr),
      stdin: Stream.make(new TextEncoder().encode(stdin))
    })
    const exit = yield* Effect.exit(run(args).pipe(Effect.provide(Layer.provideMerge(stdio, NodeServices.layer))))
    return { code: Exit.isSuccess(exit) ? 0 : 1, stdout: stdout.join(""), stderr: stderr.join("") }
  })

const bin = fileURLToPath(new URL("../../src/bin.ts", import.meta.url))

/** How a process is treated from outside. */
export interface Handling {
  /** Called with everything printed so far, each time something is printed. */
  readonly onStdout?: (text: string, process: ReturnType<typeof spawn>) => void
  /** Called when the process has been started. */
  readonly onStart?: (process: ReturnType<typeof spawn>) => void
  readonly cwd?: string
  /** Variables of the environment besides those of this process. */
  readonly env?: Readonly<Record<string, string>>
}

/** Runs the program as users do. */
export const child = (
  args: ReadonlyArray<string>,
  handling: Handling = {}
): Promise<Outcome & { readonly millis: number }> =>
  new Promise((resolve, reject) => {
    const started = performance.now()
    const process_ = spawn(process.execPath, [bin, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      cwd: handling.cwd,
      env: { ...process.env, ...handling.env }
    })
    handling.onStart?.(process_)
    let stdout = ""
    let stderr = ""
    process_.stdout.on("data", (data) => {
      stdout += String(data)
      handling.onStdout?.(stdout, process_)
    })
    process_.stderr.on("data", (data) => {
      stderr += String(data)
    })
    process_.on("error", reject)
    process_.on("close", (code, signal) =>
      resolve({
        code: code ?? (signal === null ? -1 : 128 + constants.signals[signal]),
        stdout,
        stderr,
        millis: performance.now() - started
      }))
  })
