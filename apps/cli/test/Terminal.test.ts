/**
 * What a terminal shows of the same commands, at several widths and with several settings: recorded, and read by eye. A real
 * pseudo-terminal, which Python makes. Update with `TG_GOLDEN=1`, and read what changed.
 */
import { execFile, spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, describe, it } from "vitest"

const folder = mkdtempSync(join(tmpdir(), "tg-terminal-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const bin = fileURLToPath(new URL("../src/bin.ts", import.meta.url))
const golden = (name: string): string => fileURLToPath(new URL(`golden/${name}.txt`, import.meta.url))

/** Runs a program on a terminal of so many columns and prints all that it wrote there. */
const onTerminal = `
import os, pty, sys, fcntl, termios, struct
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    os.write(1, part)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`
const hasTerminals = spawnSync("python3", ["-c", "import pty, os; os.waitstatus_to_exitcode"]).status === 0

/** Answers, files and errors. */
const session: ReadonlyArray<ReadonlyArray<string>> = [
  ["generate", "--device", "wasm", "What is 17 + 25?"],
  ["generate", "--device", "wasm", "--temperature", "1", "--seed", "7", "--raw", "-n", "1", "Once"],
  ["synth", "--shape", "tiny-glm:q4_0", "--layers", "1", "--out", join(folder, "new.gguf")],
  ["synth", "--shape", "tiny-glm:q4_0", "--layers", "1", "--out", join(folder, "old.gguf")],
  ["inspect", "--model", "/no/such/\u001b[31mfile.gguf"],
  ["generate", "--bogus", "hi"],
  ["version"]
]

interface Setting {
  readonly columns?: number
  readonly environment?: Readonly<Record<string, string>>
}
const settings: Readonly<Record<string, Setting>> = {
  "60 columns": { columns: 60 },
  "80 columns": { columns: 80 },
  "200 columns": { columns: 200 },
  "no color": { columns: 80, environment: { NO_COLOR: "1" } },
  "a dumb terminal": { columns: 80, environment: { TERM: "dumb" } },
  "no terminal": {}
}

/** What one command leaves on the terminal. That it fails is part of the session. */
const shown = (args: ReadonlyArray<string>, { columns, environment }: Setting): Promise<string> => {
  const program = [process.execPath, bin, ...args]
  const { NO_COLOR: _, FORCE_COLOR: __, ...rest } = process.env
  return new Promise((resolve) =>
    execFile(
      columns === undefined ? program[0]! : "python3",
      columns === undefined ? program.slice(1) : ["-c", onTerminal, String(columns), ...program],
      { encoding: "utf8", env: { ...rest, TERM: "xterm-256color", ...environment }, cwd: folder, timeout: 300_000 },
      (_error, stdout, stderr) => resolve(stdout + stderr)
    )
  )
}

// oxlint-disable-next-line no-control-regex -- it is the escape that ends a line written over
const overwritten = /\r([^\r\n]*)\u001b\[K/g

/** Times, speeds and how often a bar was drawn differ from run to run; escapes are written out. */
const steady = (text: string): string =>
  text.replaceAll("\r\n", "\n")
    .replaceAll(folder, "FOLDER")
    .replace(overwritten, (_, line: string) => line === "" ? "<over>" : "")
    .replace(/\d+(\.\d+)? tokens\/s/g, "N tokens/s")
    .replace(/\d+(\.\d+)? [kMG]?B\/s/g, "N B/s")
    .replace(/in \d+(\.\d+)? (ms|s)\b/g, "in N $2")
    // oxlint-disable-next-line no-control-regex -- they are written out
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, (c) => `<${c.charCodeAt(0).toString(16).padStart(2, "0")}>`)

if (!hasTerminals) console.warn("SKIPPED: sessions on a terminal, because python3 is not there to make one")
/** The narrowest and the two without a cursor differ most from each other; the others are asked with `TG_FULL=1`. */
const usual = new Set(["60 columns", "a dumb terminal", "no terminal"])

describe.skipIf(!hasTerminals)("a terminal session", () => {
  for (const [name, setting] of Object.entries(settings)) {
    if (!usual.has(name) && process.env["TG_FULL"] !== "1") continue
    it(`with ${name}`, async () => {
      rmSync(join(folder, "new.gguf"), { force: true })
      writeFileSync(join(folder, "old.gguf"), "somebody's")
      const raw = await Promise.all(session.map((args) => shown(args, setting)))
      for (const [, line] of raw.join("").matchAll(overwritten)) {
        // a longer one would stay above itself
        assert.isBelow(line!.length, setting.columns ?? Infinity)
      }
      const text = session
        .map((args, i) => `$ tg ${args.map((arg) => JSON.stringify(arg)).join(" ")}\n${raw[i]!}`)
        .map(steady).join("\n")
      const file = golden(name.replace(/[ =]/g, "-"))
      if (process.env["TG_GOLDEN"] === "1") writeFileSync(file, text)
      assert.strictEqual(text, readFileSync(file, "utf8"))
    })
  }
})
