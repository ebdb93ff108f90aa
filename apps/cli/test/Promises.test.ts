/** What the pages of `--help` and the reports say is so: examples run, parts are parts, and a network that is dead is told. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect } from "effect"
import { restOf, roofOf } from "../src/commands/Profile.ts"
import { child, tg } from "./support/run.ts"

const folder = mkdtempSync(join(tmpdir(), "tg-promises-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const wasm = ["--device", "wasm"]

/** With other variables of the environment. */
const withEnvironment = <A, E, R>(variables: Readonly<Record<string, string>>, effect: Effect.Effect<A, E, R>) => {
  const put = (values: Readonly<Record<string, string | undefined>>): void => {
    for (const [name, value] of Object.entries(values)) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  }
  return Effect.acquireUseRelease(
    Effect.sync(() => {
      const before = Object.fromEntries(Object.keys(variables).map((name) => [name, process.env[name]]))
      put(variables)
      return before
    }),
    () => effect,
    (before) => Effect.sync(() => put(before))
  )
}

describe("profile", () => {
  it("has no roof over all of the bandwidth, and no rest that is negative", () => {
    assertEquals([0, 0.5, 1, 1.69].map(roofOf), ["0.0%", "50.0%", "100.0%", "cached"])
    const rest = (sumMsPerToken: number) =>
      restOf({ stepMsPerToken: 2, sumMsPerToken, restMsPerToken: 2 - sumMsPerToken })
    assertEquals([1.5, 2].map(rest), ["rest 0.500 ms (25.0%)", "rest 0.000 ms (0.0%)"])
    assert.strictEqual(rest(3.4), "no rest: alone the kernels take 1.70 times as long as in a step")
  })

  it.live("prints parts that are parts", () =>
    Effect.gen(function*() {
      const { code, stdout } = yield* tg(["profile", ...wasm, "--depth", "3"])
      assert.strictEqual(code, 0)
      const parts = [...stdout.matchAll(/(-?[\d.]+)%/g)].map(([, number]) => Number(number))
      // a share for each kernel at least
      assert.isAbove(parts.length, 10)
      for (const part of parts) assert.isTrue(part >= 0 && part <= 100, `${part}%`)
    }))
})

describe("bench --peer", () => {
  it.live("with a network that is dead ends with a reason, and has printed its own table", () =>
    Effect.gen(function*() {
      // nothing listens there, and nothing is installed yet
      const dead = { npm_config_registry: "http://127.0.0.1:9/", XDG_CACHE_HOME: folder }
      const args = ["bench", ...wasm, "-p", "2", "-n", "2", "-r", "1", "--peer", "llama.cpp"]
      const { code, stderr, stdout } = yield* withEnvironment(dead, tg(args))
      assert.strictEqual(code, 1)
      for (const row of [/^prefill 2 +0 +\d/m, /^decode 2 +0 +\d/m]) assert.match(stdout, row)
      assert.include(stderr, "error: llama.cpp could not be installed: ")
      assert.include(stderr, "or measure without --peer")
    }))
})

describe("doctor", () => {
  it.live("says what would be used and why, for people", () =>
    Effect.gen(function*() {
      const { code, stderr, stdout } = yield* tg(["doctor"])
      assertEquals([code, stderr], [0, ""])
      assert.match(stdout, /^--device auto uses (webgpu|wasm): \S/)
      for (const line of [/^webgpu: \S/m, /^wasm: 128-bit SIMD yes/m, /^host: Node v\d/m, /^compiled programs: \d/m]) {
        assert.match(stdout, line)
      }
      assert.strictEqual(/ uses (\w+)/.exec(stdout)![1], JSON.parse((yield* tg(["doctor", "--json"])).stdout).device)
    }))
})

describe("--help", () => {
  it.live("of kernel has an example that runs", () =>
    Effect.gen(function*() {
      const page = (yield* tg(["kernel", "--help"])).stdout
      const examples = [...page.matchAll(/^\s*tg (kernel .*)$/gm)].map(([, line]) => line!.trim().split(" "))
      const runs = examples.filter((args) => !args.some((arg) => /[[<]/.test(arg)))
      assert.isNotEmpty(runs)
      for (const args of runs) {
        const { code, stderr, stdout } = yield* tg(args)
        assertEquals([code, stderr], [0, ""])
        assert.include(stdout, args[1]!)
      }
    }))
})

describe("--completions", () => {
  it.live("are there for shells that are known; sh is not bash", () =>
    Effect.gen(function*() {
      for (const args of [["--completions", "sh"], ["--completions=sh"], ["generate", "--completions", "sh"]]) {
        const { code, stderr, stdout } = yield* tg(args)
        assertEquals([code, stdout], [1, ""])
        assert.include(stderr, "sh has no completions; there are some for bash, zsh, fish and powershell")
      }
      // the parser of flags prints them by itself
      const { code, stdout } = yield* Effect.promise(() => child(["--completions", "bash"]))
      assert.strictEqual(code, 0)
      assert.include(stdout, "complete -F _tg tg")
      const unknown = yield* tg(["--completions", "tcsh"])
      assertEquals([unknown.code, unknown.stdout], [1, ""])
      assert.include(unknown.stderr, "tcsh")
    }))
})
