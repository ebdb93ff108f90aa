import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { homedir, tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { ConfigProvider, Effect, Result } from "effect"
import * as Settings from "../src/Settings.ts"
import { tg } from "./support/run.ts"

const tiny = fileURLToPath(new URL("../models/tg-tiny-Q4_0.gguf", import.meta.url))

/** Runs a command with a file of settings and an environment of its own. */
const withSettings = (
  { environment = {}, text }: { readonly environment?: Record<string, string>; readonly text?: string },
  args: ReadonlyArray<string>
) =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      const folder = mkdtempSync(join(tmpdir(), "tg-config-"))
      mkdirSync(join(folder, "tg"))
      if (text !== undefined) writeFileSync(join(folder, "tg/config.json"), text)
      return folder
    }),
    (folder) => {
      const env = { HOME: homedir(), ...environment, XDG_CONFIG_HOME: folder }
      const provider = ConfigProvider.fromEnv({ env })
      return Effect.map(
        tg(args).pipe(Effect.provideService(ConfigProvider.ConfigProvider, provider)),
        (outcome) => ({ ...outcome, folder: join(folder, "tg") })
      )
    },
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true }))
  )

const shown = (outcome: { readonly stdout: string }, key: string) =>
  JSON.parse(outcome.stdout).settings.find((row: { readonly key: string }) => row.key === key)

describe("a setting in a file", () => {
  const wrong: ReadonlyArray<readonly [string, string | undefined, ReadonlyArray<string>]> = [
    ["{", undefined, ["not JSON"]],
    ["[1]", undefined, ["one object"]],
    ["null", undefined, ["one object"]],
    ["{\"modl\": \"x\"}", "modl", ["\"modl\"", "max-tokens"]],
    ["{\"__proto__\": 1}", "__proto__", ["does not know"]],
    ["{\"constructor\": 1}", "constructor", ["does not know"]],
    ["{\"model\": \"\"}", "model", ["\"\"", "a GGUF file"]],
    ["{\"device\": \"abacus\"}", "device", ["abacus", "wasm"]],
    ["{\"threads\": \"four\"}", "threads", ["four", "from 1 to 256"]],
    ["{\"threads\": 257}", "threads", ["257"]],
    ["{\"context\": 0}", "context", ["0"]],
    ["{\"max-tokens\": 1.5}", "max-tokens", ["1.5"]],
    ["{\"temperature\": -1}", "temperature", ["-1"]],
    ["{\"top-p\": 2}", "top-p", ["2", "at most 1"]]
  ]
  it.each(wrong)("that is wrong is an error with file and key: %s", (text, key, words) => {
    const read = Settings.fromText(text, "here/config.json")
    if (Result.isSuccess(read)) return assert.fail("it was taken")
    assertEquals([read.failure._tag, read.failure.from, read.failure.key], ["InvalidSetting", "here/config.json", key])
    for (const word of ["here/config.json", ...words]) assert.include(read.failure.message, word)
  })
})

describe("a setting in the environment", () => {
  it("has the name of its flag in capitals", () =>
    assertEquals(Settings.keys.map(Settings.variableOf).slice(0, 3), ["TG_MODEL", "TG_DEVICE", "TG_THREADS"]))

  it("may look like a number where a text is meant", () =>
    assertEquals(Result.getOrThrow(Settings.fromVariable("model", "7")).value, "7"))

  it.each(["four", "", " 4", "0x10", "1e999"])("that is wrong names the variable: %j", (text) => {
    const read = Settings.fromVariable("threads", text)
    assert.isTrue(Result.isFailure(read))
    if (Result.isFailure(read)) assert.include(read.failure.message, "TG_THREADS")
  })
})

describe("defaults", () => {
  const file = { text: "{\"device\": \"reference\", \"kv\": \"f32\", \"max-tokens\": 5, \"model\": \"./m.gguf\"}" }

  it.live("a flag wins over the environment, that over the file, that over what is built in", () =>
    Effect.gen(function*() {
      const environment = { TG_DEVICE: "wasm", TG_MODEL: tiny, TG_MAX_TOKENS: "4", TG_THREADS: "" }
      const told = yield* withSettings({ ...file, environment }, ["config", "--json"])
      assertEquals([shown(told, "device").value, shown(told, "device").from], ["wasm", "TG_DEVICE"])
      assertEquals(shown(told, "kv").value, "f32")
      assert.strictEqual(shown(told, "kv").from, join(told.folder, "config.json"))
      assert.isUndefined(shown(told, "threads").value)

      const prompt = ["generate", "--json", "-p", "What is 17 + 25?"]
      const count = (outcome: { readonly stdout: string }): number => JSON.parse(outcome.stdout).tokens.length
      assert.strictEqual(count(yield* withSettings({ ...file, environment }, prompt)), 4)
      assert.strictEqual(count(yield* withSettings({ ...file, environment }, [...prompt, "-n", "3"])), 3)
      const { TG_MAX_TOKENS: _, ...rest } = environment
      assert.strictEqual(count(yield* withSettings({ ...file, environment: rest }, prompt)), 5)
    }))

  it.live("a relative model in a file means the file's folder", () =>
    Effect.gen(function*() {
      const told = yield* withSettings(file, ["config", "--json"])
      assert.strictEqual(shown(told, "model").value, join(told.folder, "m.gguf"))
      const home = yield* withSettings({ text: "{\"model\": \"~/m.gguf\"}" }, ["config", "--json"])
      assert.strictEqual(shown(home, "model").value, join(homedir(), "m.gguf"))
    }))

  it.live("a model that is kept does not stand in the way of --shape", () =>
    Effect.gen(function*() {
      const { code, stdout } = yield* withSettings(file, ["kernel", "--shape", "tiny-glm:q4_0"])
      assert.strictEqual(code, 0)
      assert.include(stdout, "x ")
      assert.strictEqual((yield* withSettings(file, ["kernel", "--shape", "tiny-glm:q4_0", "-m", tiny])).code, 1)
    }))

  it.live("wrong ones are told by whatever needs them, and by nothing else", () =>
    Effect.gen(function*() {
      const broken = { text: "{\"threads\": \"four\"}" }
      for (const args of [["inspect"], ["config"], ["generate", "hi"]]) {
        const { code, folder, stderr, stdout } = yield* withSettings(broken, args)
        assertEquals([code, stdout], [1, ""])
        assert.strictEqual(
          stderr,
          `error: in ${join(folder, "config.json")}, threads is "four"; it has to be a whole number from 1 to 256\n`
        )
      }
      const kv = yield* withSettings({ environment: { TG_KV: "f64" } }, ["inspect"])
      assert.strictEqual(kv.stderr, "error: the environment variable TG_KV is \"f64\"; it has to be f16 or f32\n")
      for (const args of [["help"], ["version"], ["--version"], ["generate", "--help"]]) {
        assert.strictEqual((yield* withSettings(broken, args)).code, 0)
      }
    }))
})
