import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Option } from "effect"
import { version } from "../src/Cli.ts"
import * as Help from "../src/Help.ts"
import { tg } from "./support/run.ts"

const flag = (name: string) => ({ name, aliases: [], type: "string", description: Option.none(), required: false })
const helpOf = (args: ReadonlyArray<string>) => Effect.map(tg(args), ({ stdout }) => stdout)
const namesOf = (flags: ReadonlyArray<{ readonly name: string }>) => flags.map(({ name }) => name)

describe("the flags of a page", () => {
  it("begin with what newcomers need, then a command's own; the rest is under topics", () => {
    const { first, topics } = Help.arrange(["kv", "own", "check", "top-k", "seed", "max-tokens", "model"].map(flag))
    assertEquals(namesOf(first), ["model", "max-tokens", "own"])
    assertEquals(topics.map(({ flags, title }) => [title, ...namesOf(flags)]), [
      ["HOW TOKENS ARE DRAWN", "top-k", "seed"],
      ["PRECISION", "kv"],
      ["WHEN SOMETHING IS WRONG", "check"]
    ])
  })

  it("keep a seed that does not draw tokens", () =>
    assertEquals(namesOf(Help.arrange([flag("kv"), flag("seed")]).first), ["seed"]))
})

describe("help", () => {
  it.live("shows the same as --help", () =>
    Effect.gen(function*() {
      const page = yield* helpOf(["help", "generate"])
      assert.strictEqual(page, yield* helpOf(["generate", "--help"]))
      const order = [
        "--model, -m MODEL",
        "--prompt, -p TEXT",
        "EXAMPLES",
        "HOW TOKENS ARE DRAWN",
        "--top-k",
        "PRECISION"
      ]
      const places = order.map((words) => page.indexOf(words))
      assert.isAtLeast(Math.min(...places), 0)
      assertEquals(places, places.toSorted((a, b) => a - b))
    }))

  it.live("has the flags of what runs a model on the page of each such command", () =>
    Effect.gen(function*() {
      for (const name of ["generate", "chat", "serve", "bench", "plan"]) {
        const page = yield* helpOf([name, "--help"])
        assert.match(page, /ANOTHER DEVICE[^]*--no-subgroups [^]*--no-matrix-units /)
        assert.match(page, /WHEN SOMETHING IS WRONG[^]*--no-tune [^]*--no-egraph /)
      }
    }))

  it.live("lists all commands", () =>
    Effect.gen(function*() {
      const page = yield* helpOf(["help"])
      assert.strictEqual(page, yield* helpOf(["--help"]))
      for (const name of ["generate", "inspect", "doctor", "config", "tune", "help", "version"]) {
        assert.match(page, new RegExp(`^  ${name} `, "m"))
      }
    }))

  it.live("refuses commands that are not there", () =>
    Effect.gen(function*() {
      const { code, stderr, stdout } = yield* tg(["help", "generat"])
      assertEquals([code, stdout], [1, ""])
      assert.match(stderr, /^error: there is no command "generat"; there are chat, generate, /)
    }))
})

describe("version", () => {
  it.live("shows the same as --version", () =>
    Effect.gen(function*() {
      assertEquals([yield* helpOf(["version"]), yield* helpOf(["--version"])], [`tg v${version}\n`, `tg v${version}\n`])
    }))
})

describe("the prompt", () => {
  it.live("can be given once, as an argument or with -p", () =>
    Effect.gen(function*() {
      const { code, stderr } = yield* tg(["generate", "-p", "one", "two"])
      assert.strictEqual(code, 1)
      assert.include(stderr, "given twice")
      const { stdout } = yield* tg(["generate", "--device", "wasm", "-t", "1", "-p", "What is 17 + 25?"])
      assert.strictEqual(stdout, "17 + 25 = 42\n")
    }))
})
