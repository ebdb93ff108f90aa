/** A pseudo-terminal with the command line in it. */
import { spawn, spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url))

/** Why there are no pseudo-terminals here; nothing if there are. */
export const missing: string | undefined = process.platform === "win32"
  ? "Windows has other terminals"
  : spawnSync("python3", ["-c", "import pty, fcntl, termios"]).status === 0
  ? undefined
  : "python3, which makes them, is missing"

/** A terminal in which a command runs. */
export interface Screen {
  /** Presses keys. */
  readonly type: (keys: string) => void
  /** Waits until this is shown behind what was seen before: all that was shown until then. */
  readonly see: (text: string) => Promise<string>
  /** Waits until the command has ended: its exit code. */
  readonly ended: Promise<number>
  readonly end: () => void
}

// compiling a model for the first time takes a few seconds on two busy cores
const patienceMillis = 240_000

/** Runs the command line in a terminal. */
export const open = (args: ReadonlyArray<string>, environment: Readonly<Record<string, string>> = {}): Screen => {
  const command = [here("./terminal.py"), process.execPath, here("../../src/bin.ts"), ...args]
  const env = { ...process.env, TERM: "xterm-256color", NO_COLOR: "", ...environment }
  const child = spawn("python3", command, { env, stdio: ["pipe", "pipe", "inherit"] })
  let shown = ""
  let seen = 0
  let wake = (): void => {}
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    shown += text
    wake()
  })
  const ended = new Promise<number>((resolve) => {
    child.on("close", (code) => {
      resolve(code ?? -1)
      wake()
    })
  })
  const see = async (text: string): Promise<string> => {
    const until = Date.now() + patienceMillis
    for (;;) {
      const at = shown.indexOf(text, seen)
      if (at >= 0) {
        const before = shown.slice(seen, at)
        seen = at + text.length
        return before
      }
      if (Date.now() > until || child.exitCode !== null) {
        throw new Error(`${JSON.stringify(text)} was not shown in ${JSON.stringify(shown.slice(seen))}`)
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 1000)
        wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
  }
  return {
    type: (keys) => {
      child.stdin.write(keys)
    },
    see,
    ended,
    end: () => {
      child.stdin.end()
      child.kill()
    }
  }
}
