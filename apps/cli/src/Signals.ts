/**
 * Ctrl-C. A thread of its own waits for it, because the main one may be busy for seconds: in the compiler, or in a kernel of
 * WebAssembly. It does nothing but wait inside of a script that ends at SIGINT (`breakOnSigint`), which is how a thread can hear of
 * a signal. It tells the main one; if the process is still there a moment later, it ends it by the same signal, which then has its
 * default again. So Ctrl-C ends whatever is done within that moment: with code 130, or by SIGINT, which shells show as 130.
 */
import { Worker } from "node:worker_threads"
import { Cause, Context, Effect, Exit, Runtime } from "effect"

/** What an interrupted program is given to clean up before it is ended, in milliseconds. */
export const graceMillis = 80

/** What the thread is told. */
type Told =
  | { readonly begun: string }
  | { readonly ended: string }
  | { readonly graceMillis: number }

/** What happens at a signal, for those who have something to clean up. Does nothing where no signals are waited for. */
export const Guard = Context.Reference<{
  readonly tell: (told: Told) => void
  /** Until the thread waits for signals, a moment after the start; before that they end the process at once. */
  readonly armed: Effect.Effect<void>
}>("@tg/cli/Signals/Guard", {
  defaultValue: () => ({ tell: () => {}, armed: Effect.void })
})

/** A file that is of no use until it is complete: it is removed too where the program cannot do so any more. */
export const unfinished = (file: string) =>
  Effect.flatMap(Guard, ({ armed, tell }) =>
    Effect.andThen(
      armed,
      Effect.acquireRelease(
        Effect.sync(() => tell({ begun: file })),
        () => Effect.sync(() => tell({ ended: file }))
      )
    ))

/** Gives a program more time than usual to end after the first signal: a server, which lets its answers come to an end. The second
 * signal then ends it at once. */
export const grace = (millis: number) =>
  Effect.flatMap(Guard, ({ armed, tell }) => Effect.andThen(armed, Effect.sync(() => tell({ graceMillis: millis }))))

/** So many signals may come before the usual grace is over; one more ends the process. */
const levels = 16

/**
 * Runs as a script in the thread. A signal often comes twice at once, from the terminal and from the program that started this one;
 * so the second one counts from the moment on when the usual grace is over. Main's messages wait in the port meanwhile.
 *
 * A signal stops what runs in the innermost script at any instruction, the loading of a part of Node included, which then stays
 * half loaded: whatever is used there is a constant that was made before.
 */
const script = `
const { rmSync } = require("node:fs")
const { runInThisContext } = require("node:vm")
const { parentPort, receiveMessageOnPort } = require("node:worker_threads")
const { kill, pid } = process
const now = performance.now.bind(performance)
const { wait } = Atomics
const word = new Int32Array(new SharedArrayBuffer(4))
const interrupted = "ERR_SCRIPT_EXECUTION_INTERRUPTED"
let end
// told twice rather than never
const tell = () => {
  if (end !== undefined) return
  parentPort.postMessage("SIGINT")
  end = now() + ${graceMillis}
}
// one inside of another: a signal between the inner ones ends the outer one, not the process
globalThis.watch = (level) => {
  if (level === 0) {
    parentPort.postMessage("armed")
    wait(word, 0, 0)
    return
  }
  try {
    runInThisContext("watch(" + (level - 1) + ")", { breakOnSigint: true })
  } catch (error) {
    if (error.code !== interrupted) throw error
  }
  tell()
  wait(word, 0, 0, end - now())
}
watch(${levels})
// from here on the signal ends the process
const files = new Set()
let grace = ${graceMillis}
for (let next; (next = receiveMessageOnPort(parentPort)) !== undefined;) {
  const { begun, ended, graceMillis } = next.message
  if (begun !== undefined) files.add(begun)
  if (ended !== undefined) files.delete(ended)
  if (graceMillis !== undefined) grace = graceMillis
}
setTimeout(() => {
  for (const file of files) {
    try {
      rmSync(file, { force: true })
    } catch {}
  }
  kill(pid, "SIGINT")
}, grace - ${graceMillis})
`

/** 128 and the number of the signal, as shells count. */
const exitCodes = { SIGINT: 130, SIGTERM: 143 } as const

const codeOf = (exit: Exit.Exit<unknown, unknown>, received: keyof typeof exitCodes | undefined): number => {
  if (Exit.isSuccess(exit)) return received === undefined ? 0 : exitCodes[received]
  if (Cause.hasInterruptsOnly(exit.cause)) return exitCodes[received ?? "SIGINT"]
  return Runtime.getErrorExitCode(Cause.squash(exit.cause))
}

/**
 * Runs the program of this process. The first Ctrl-C interrupts it, and ends it if it is not done with that in time. Errors have
 * been told by the program.
 */
export const runMain = (program: Effect.Effect<unknown, unknown>): void => {
  const thread = new Worker(script, { eval: true, name: "signals", execArgv: [] })
  let received: keyof typeof exitCodes | undefined
  let isArmed = false
  const armed = Promise.withResolvers<void>()
  const guard: (typeof Guard)["Service"] = {
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- that is a window's, and this is a thread's
    tell: (told) => thread.postMessage(told),
    armed: Effect.promise(() => armed.promise)
  }
  const guarded = Effect.provideService(program, Guard, guard)
  const fiber = Effect.runFork(guarded)
  const onSignal = (signal: keyof typeof exitCodes) => () => {
    received ??= signal
    fiber.interruptUnsafe(fiber.id)
  }
  const onTerm = onSignal("SIGTERM")
  const onInt = onSignal("SIGINT")
  thread.on("message", (message) => {
    if (message !== "armed") return onInt()
    isArmed = true
    armed.resolve()
  })
  // it exits below
  thread.on("error", () => {})
  thread.on("exit", () => {
    // without the thread the signal has its default: the process ends, without cleaning up
    armed.resolve()
    // nothing but a signal reaches a thread that waits
    if (isArmed && fiber.pollUnsafe() === undefined) onInt()
  })
  process.on("SIGTERM", onTerm)
  fiber.addObserver((exit) => {
    process.removeListener("SIGTERM", onTerm)
    const code = codeOf(exit, received)
    if (code !== 0 || received !== undefined) process.exit(code)
    // what is open keeps the process: output on its way, for one
    void thread.terminate()
  })
}
