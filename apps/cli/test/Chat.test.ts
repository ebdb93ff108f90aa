import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { afterAll, assert, describe, it, onTestFinished } from "vitest"
import * as Pty from "./support/pty.ts"
import { tg } from "./support/run.ts"

const folder = mkdtempSync(join(tmpdir(), "tg-chat-"))
afterAll(() => rmSync(folder, { recursive: true }))

const wasm = ["chat", "--device", "wasm"]

const piped = (args: ReadonlyArray<string>, ...lines: ReadonlyArray<string>) =>
  Effect.runPromise(tg([...wasm, ...args], lines.map((line) => `${line}\n`).join("")))

describe("a chat without a terminal", () => {
  it("answers line by line, and what was said before counts", async () => {
    const { code, stderr, stdout } = await piped(
      ["--stats"],
      "My name is Ada.",
      "",
      "What is 17 + 25?",
      "What is my name?"
    )
    assert.strictEqual(code, 0)
    assert.match(stdout, /^.*Ada.*\n17 \+ 25 = 42\n.*Ada.*\n$/)
    // only the new turn is processed
    const cached = [...stderr.matchAll(/\((\d+) tokens of prompt, (\d+) of them cached\)/g)].map(([, all, cached]) => [
      Number(all),
      Number(cached)
    ])
    assert.strictEqual(cached.length, 3)
    for (const [i, [all, known]] of cached.entries()) {
      if (i > 0) assert.isAbove(known!, cached[i - 1]![0]! - 2, `${known} of ${all}`)
    }
  })

  it("saves, loads, forgets, and does not write over files", async () => {
    const file = join(folder, "saved.json")
    const other = join(folder, "other.json")
    writeFileSync(other, "[]")
    const { stderr, stdout } = await piped(
      ["--system", "Answer in JSON."],
      "What is the capital of Peru?",
      `/save ${file}`,
      `/save ${other}`,
      "/reset",
      "/system -",
      "What is the capital of Peru?",
      `/load ${file}`,
      "/regenerate",
      "/forget",
      "/system"
    )
    const json = "{\"answer\": \"Lima\"}"
    assert.strictEqual(stdout, `${json}\nLima\n${json}\n`)
    assert.include(stderr, `${other} is there already`)
    assert.include(stderr, "0 messages are left\nAnswer in JSON.")
    assert.deepStrictEqual(JSON.parse(readFileSync(file, "utf8")), [
      { role: "system", content: "Answer in JSON." },
      { role: "user", content: "What is the capital of Peru?" },
      { role: "assistant", content: json }
    ])
    assert.strictEqual(readFileSync(other, "utf8"), "[]")
    const again = await Effect.runPromise(tg(["generate", "--device", "wasm", "--messages", file, "And of France?"]))
    assert.strictEqual(again.stdout, "{\"answer\": \"Paris\"}\n")
  })

  it("goes on with another model, and stays with its own if there is none", async () => {
    const { code, stderr, stdout } = await piped(
      [],
      "What is 17 + 25?",
      "/model /no/such/file.gguf",
      `/model ${join(import.meta.dirname, "../models/tg-tiny-Q4_0.gguf")}`,
      "What is 2 + 2?"
    )
    assert.strictEqual(code, 0)
    assert.strictEqual(stdout, "17 + 25 = 42\n2 + 2 = 4\n")
    assert.include(stderr, "/no/such/file.gguf cannot be opened")
    assert.strictEqual(stderr.split("tg-tiny on wasm").length, 3)
  })

  it("keeps the conversation when the context is full, and tells that a question had no answer", async () => {
    const { code, stderr, stdout } = await piped(
      ["--context", "40"],
      "What is 17 + 25?",
      "What is 1 + 1? ".repeat(10),
      "/stats",
      "/forget",
      "What is 2 + 2?"
    )
    assert.strictEqual(code, 1)
    assert.strictEqual(stdout, "17 + 25 = 42\n2 + 2 = 4\n")
    assert.include(stderr, "the context holds 40 tokens")
    assert.include(stderr, "/forget drops the oldest question")
    assert.include(stderr, "1 of the questions had no whole answer")
  })

  it("leaves thinking out, and keeps it in the conversation", async () => {
    const file = join(folder, "thought.json")
    const { stdout } = await piped(["--thinking"], "What is 17 + 25?", `/save ${file}`)
    const [, answer] = JSON.parse(readFileSync(file, "utf8"))
    assert.match(stdout, /^[^\n]*42[^\n]*\n$/)
    assert.strictEqual(answer.content, stdout.trim())
    assert.isAbove(answer.reasoning_content.length, 3)
  })

  it("goes on with a conversation, and answers if it ends with a question", async () => {
    const file = join(folder, "open.json")
    writeFileSync(file, JSON.stringify([{ role: "user", content: "What is 17 + 25?" }]))
    assert.strictEqual((await piped(["--messages", file])).stdout, "17 + 25 = 42\n")
  })
})

const up = "\x1b[A"

describe("a chat in a terminal", () => {
  if (Pty.missing !== undefined) console.warn(`no pseudo-terminal: ${Pty.missing}; chats in a terminal are not tested`)

  const open = (
    args: ReadonlyArray<string> = [],
    environment: Readonly<Record<string, string>> = {},
    command: ReadonlyArray<string> = wasm
  ): Pty.Screen => {
    const state = mkdtempSync(join(folder, "state-"))
    const screen = Pty.open([...command, ...args], { XDG_STATE_HOME: state, ...environment })
    onTestFinished(() => screen.end())
    return screen
  }

  it.skipIf(Pty.missing !== undefined)("answers, recalls what was typed, and is ended by Ctrl-C twice", async () => {
    const screen = open(["--stats"])
    await screen.see("> ")
    screen.type("What is 17 + 25?\r")
    await screen.see("17 + 25 = 42")
    await screen.see("> ")
    screen.type("What is the capital of Peru?\r")
    await screen.see("Lima")
    await screen.see("> ")
    screen.type(`${up}${up}\r`)
    await screen.see("17 + 25 = 42")
    await screen.see("> ")
    screen.type("\x03")
    await screen.see("Ctrl-C again")
    await screen.see("> ")
    screen.type("\x03")
    assert.strictEqual(await screen.ended, 0)
  })

  it.skipIf(Pty.missing !== undefined)(
    "is stopped by Ctrl-C in an answer, keeps what there is, and goes on",
    async () => {
      const file = join(folder, "stopped.json")
      // the evaluator takes most of a second for a token: the key is pressed long before the story ends
      const screen = open([], {}, ["chat", "--device", "reference"])
      await screen.see("> ")
      screen.type("Tell me a story about a fox.\r")
      await screen.see("\x1b[?2004l")
      // a word of the answer
      await screen.see(" ")
      screen.type("\x03")
      await screen.see("(stopped)")
      await screen.see("> ")
      screen.type(`/save ${file}\r`)
      await screen.see("> ")
      const [, { content }] = JSON.parse(readFileSync(file, "utf8"))
      assert.match(content, /^\S.{0,80}$/s)
      screen.type("What is 17 + 25?\r")
      await screen.see("17 + 25 = 42")
      await screen.see("> ")
      screen.type("/exit\r")
      assert.strictEqual(await screen.ended, 0)
    }
  )

  it.skipIf(Pty.missing !== undefined)("takes several lines, and remembers them in the next chat", async () => {
    const state = { XDG_STATE_HOME: mkdtempSync(join(folder, "state-")) }
    const file = join(folder, "lines.json")
    const first = open([], state)
    await first.see("> ")
    first.type("\x1b[200~What is\r\n\t17 + 25?\x1b[201~\r")
    await first.see("\x1b[?2004l")
    await first.see("> ")
    first.type("a\x1b\rb\\\r")
    await first.see(".. ")
    // what is typed while the answer comes waits
    first.type(`c\r/save ${file}\r\x04`)
    assert.strictEqual(await first.ended, 0)
    const said = JSON.parse(readFileSync(file, "utf8")).flatMap(({ content, role }: Record<string, string>) =>
      role === "user" ? [content] : []
    )
    assert.deepStrictEqual(said, ["What is\n\t17 + 25?", "a\nb\nc"])
    const second = open([], state)
    await second.see("> ")
    second.type(`${up}${up}${up}`)
    await second.see("What is␤␉17 + 25?")
    second.type("\x03")
    await second.see("> ")
    second.type("/exit\r")
    assert.strictEqual(await second.ended, 0)
  })

  it.skipIf(Pty.missing !== undefined)("dims thinking, unless it is not to", async () => {
    const colored = open(["--thinking"])
    await colored.see("> ")
    colored.type("What is 17 + 25?\r")
    await colored.see("\x1b[2m")
    await colored.see("\x1b[22m\r\n\r\n")
    await colored.see("42")
    colored.type("/exit\r")
    assert.strictEqual(await colored.ended, 0)
    const plain = open(["--thinking"], { NO_COLOR: "1" })
    await plain.see("> ")
    plain.type("What is 17 + 25?\r")
    const before = await plain.see("(thinking) ")
    const thought = await plain.see("\r\n\r\n")
    assert.notInclude(before + thought, "\x1b[2m")
    await plain.see("> ")
    plain.type("/exit\r")
    assert.strictEqual(await plain.ended, 0)
  })
})
