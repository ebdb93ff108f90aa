/** Ctrl-C at random moments of every command that takes long. TG_FULL=1 tries fifty of each. */
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, describe, it } from "vitest"
import { graceMillis } from "../src/Signals.ts"

const folder = mkdtempSync(join(tmpdir(), "tg-signals-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const bin = fileURLToPath(new URL("../src/bin.ts", import.meta.url))
const signals = fileURLToPath(new URL("../src/Signals.ts", import.meta.url))

const tries = process.env["TG_FULL"] === "1" ? 50 : 3
/**
 * The promise is 200 ms on a machine that has nothing else to do. Tests share theirs, so otherwise the bound is what no
 * program below stays under that only ends with its work (10 s at least).
 */
const mostMillis = process.env["TG_FULL"] === "1" ? 200 : 8000

interface Ended {
  /** As shells count: 130 also where the signal itself ended it. */
  readonly code: number
  readonly bySignal: boolean
  readonly millis: number
  readonly stderr: string
}

/** Interrupts a process when it is due, and again after each of the delays. */
const interrupted = (
  args: ReadonlyArray<string>,
  due: (child: ChildProcess) => Promise<unknown>,
  again: ReadonlyArray<number> = []
): Promise<Ended> =>
  new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] })
    let stderr = ""
    let at = NaN
    child.stderr.on("data", (data) => {
      stderr += String(data)
    })
    child.stdout.resume()
    child.on("error", reject)
    child.on("exit", (code, signal) => {
      resolve({
        code: signal === "SIGINT" ? 130 : code ?? -1,
        bySignal: signal === "SIGINT",
        millis: performance.now() - at,
        stderr
      })
    })
    void due(child).then(() => {
      at = performance.now()
      child.kill("SIGINT")
      for (const delay of again) setTimeout(() => child.kill("SIGINT"), delay)
    })
  })

const after = (millis: number) => () => new Promise((resolve) => setTimeout(resolve, millis))
const said = (text: string) => (child: ChildProcess) =>
  new Promise((resolve) => child.stdout!.on("data", (data) => String(data).includes(text) && resolve(undefined)))

/** A program of ours on `runMain`, that says `ready` and then does something. */
const program = (name: string, body: string): string => {
  const file = join(folder, `${name}.ts`)
  writeFileSync(
    file,
    `import { Guard, grace, runMain, unfinished } from ${JSON.stringify(signals)}
import { Effect } from ${JSON.stringify(fileURLToPath(import.meta.resolve("effect")))}
const ready = Effect.flatMap(Guard, ({ armed }) => Effect.andThen(armed, Effect.sync(() => console.log("ready"))))
const busy = Effect.sync(() => { for (const end = Date.now() + 20_000; Date.now() < end;); })
runMain(${body})
`
  )
  return file
}

describe("the guard", () => {
  it("ends a program that waits, with 130 and its finalizers", async () => {
    const file = program(
      "waits",
      "ready.pipe(Effect.andThen(Effect.never), Effect.onInterrupt(() => Effect.sync(() => console.error(\"cleaned\"))))"
    )
    const { bySignal, code, stderr } = await interrupted([file], said("ready"))
    assert.deepEqual([code, bySignal, stderr], [130, false, "cleaned\n"])
  })

  it("ends a program that is busy, and removes what it left unfinished", async () => {
    const left = join(folder, "left.part")
    writeFileSync(left, "half")
    const file = program(
      "busy",
      `Effect.scoped(unfinished(${JSON.stringify(left)}).pipe(Effect.andThen(ready), Effect.andThen(busy)))`
    )
    const { code, millis } = await interrupted([file], said("ready"))
    assert.strictEqual(code, 130)
    assert.isBelow(millis, mostMillis)
    assert.isFalse(existsSync(left))
  })

  it("ends a program that does not end its cleaning", async () => {
    const file = program("cleans", "ready.pipe(Effect.andThen(Effect.never), Effect.ensuring(Effect.never))")
    const { code, millis } = await interrupted([file], said("ready"))
    assert.strictEqual(code, 130)
    assert.isBelow(millis, mostMillis)
  })

  it("takes two signals at once for one, as a terminal and a package manager send them", async () => {
    const file = program(
      "twice",
      "ready.pipe(Effect.andThen(Effect.never), Effect.onInterrupt(() => Effect.sync(() => console.error(\"cleaned\"))))"
    )
    for (const again of [[0, 1], [0, 0, 0, 1, 1, 2]]) {
      const { code, millis, stderr } = await interrupted([file], said("ready"), again)
      assert.strictEqual(code, 130)
      // where the machine had no time for it until then, the program was ended
      if (millis < graceMillis) assert.strictEqual(stderr, "cleaned\n")
    }
  })

  it("lets a server have more time, and ends it at the second signal", async () => {
    const file = program(
      "serves",
      "grace(15_000).pipe(Effect.andThen(ready), Effect.andThen(Effect.never), Effect.ensuring(Effect.sleep(\"10 seconds\")))"
    )
    const { code, millis } = await interrupted([file], said("ready"), [1500])
    assert.strictEqual(code, 130)
    assert.isAbove(millis, 1400)
    assert.isBelow(millis, 1500 + mostMillis)
  })

  it("keeps no process that is done", async () => {
    const file = program("done", "ready")
    const started = performance.now()
    const code = await new Promise((resolve) =>
      spawn(process.execPath, [file], { stdio: "ignore" }).on("exit", resolve)
    )
    assert.strictEqual(code, 0)
    assert.isBelow(performance.now() - started, 10_000)
  })
})

const out = join(folder, "out")
const commands: ReadonlyArray<readonly [name: string, args: ReadonlyArray<string>]> = [
  ["generate", ["--device", "wasm", "--no-cache", "--raw", "-n", "900", "Once upon a time"]],
  ["plan", ["--shape", "glm-4.7-flash:q4_0"]],
  ["bench", ["--device", "wasm", "-r", "20"]],
  ["tune", ["--device", "wasm", "--budget", "20", "--out", `${out}.json`]],
  ["inspect", []],
  ["logits", [
    "--device",
    "wasm",
    "--no-cache",
    "--tokens",
    Array.from({ length: 900 }, (_, i) => i).join(),
    "--out",
    out
  ]],
  ["synth", ["--shape", "deepseek-v2-lite:q4_0", "--layers", "2", "--out", `${out}.gguf`]]
]

const outputs = (): ReadonlyArray<string> =>
  readdirSync(folder).filter((file) => file.startsWith("out") || file.endsWith(".part"))

/** Interrupts a command at a moment; at half of it where the command was done by then, as on a fast machine. */
const interruptedAt = async (args: ReadonlyArray<string>, moment: number): Promise<Ended & { moment: number }> => {
  const ended = await interrupted([bin, ...args], after(moment))
  // what ended within 200 ms was about to
  if (ended.code !== 0 || ended.millis > 200 || moment < 100) return { ...ended, moment }
  for (const file of outputs()) rmSync(join(folder, file))
  return interruptedAt(args, moment / 2)
}

describe(`Ctrl-C at ${tries} moments`, () => {
  for (const [name, args] of commands) {
    it(`of ${name}`, async () => {
      for (let i = 0; i < tries; i++) {
        // Node itself is there after 50 ms
        const { code, millis, moment, stderr } = await interruptedAt([name, ...args], 100 + Math.random() * 1900)
        const what = `${name} after ${moment.toFixed(0)} ms: ${code} in ${millis.toFixed(0)} ms\n${stderr}`
        assert.strictEqual(code, 130, what)
        assert.isBelow(millis, mostMillis, what)
        assert.notMatch(stderr, /error|^\s+at /m, what)
        assert.deepEqual(outputs(), [], what)
      }
    })
  }
})
