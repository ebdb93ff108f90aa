import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { wasm } from "@tg/core-uop/DeviceProfile"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import * as Store from "@tg/tuner/Store"
import { Effect, Option } from "effect"
import { kernelsOf } from "../src/commands/Kernel.ts"
import { defaultModel } from "../src/Flags.ts"
import { tg } from "./support/run.ts"

// a folder for caches of this file's own
const folder = mkdtempSync(join(tmpdir(), "tg-tune-"))
const file = join(folder, "tg", "tuned.json")
const before = process.env["XDG_CACHE_HOME"]
beforeAll(() => {
  mkdirSync(join(folder, "tg"))
  process.env["XDG_CACHE_HOME"] = folder
})
afterAll(() => {
  if (before === undefined) delete process.env["XDG_CACHE_HOME"]
  else process.env["XDG_CACHE_HOME"] = before
  rmSync(folder, { recursive: true })
})

const kernels = kernelsOf(
  { model: defaultModel, shape: Option.none(), step: "decode", kv: "f16", activations: "auto", context: Option.none() },
  wasm
).pipe(Effect.provide(NodeServices.layer))
const [name, { ast: kernel }] = [...await Effect.runPromise(kernels)].find(([name]) => name.startsWith("attn_q_a"))!
const loop = Loops.all(kernel).find(({ axis, size }) => axis === "REDUCE" && size % 2 === 0)!.id

/** The opts of a kernel as a command sees them. */
const seen = (...flags: ReadonlyArray<string>) =>
  Effect.map(
    tg(["kernel", name, "--profile", "wasm", "--json", ...flags]),
    ({ stderr, stdout }) => ({ ...(JSON.parse(stdout) as { opts: Array<string>; origin: string }), stderr })
  )

describe("tuned opts", () => {
  it.effect("are used where they fit, and left out with --no-tune", () =>
    Effect.gen(function*() {
      const usual = yield* seen()
      assert.strictEqual(usual.origin, "heuristics")

      const entry = { name, micros: 1, usualMicros: 2 }
      writeFileSync(file, Store.encode(Store.of("wasm", kernel, { ...entry, opts: [Opt.unroll(loop, 2)] })))
      const tuned = yield* seen()
      assert.deepStrictEqual([tuned.origin, tuned.opts], ["tuned", [`UNROLL(r${loop}, 2)`]])
      const without = yield* seen("--no-tune")
      assert.deepStrictEqual([without.origin, without.opts], ["heuristics", usual.opts])

      writeFileSync(file, Store.encode(Store.of("wasm", kernel, { ...entry, opts: [Opt.unroll(loop, 7)] })))
      const stale = yield* seen()
      assert.deepStrictEqual([stale.origin, stale.opts], ["stale", usual.opts])
    }))

  it.effect("are left out, and that is told, when the file is no good", () =>
    Effect.gen(function*() {
      writeFileSync(file, "{}")
      const { origin, stderr } = yield* seen()
      assert.strictEqual(origin, "heuristics")
      assert.match(stderr, /warning: tuned opts are not used: .*tuned.json holds no tuned opts of version 1/)
      assert.strictEqual((yield* seen("--no-tune")).stderr, "")
    }))
})

describe("tune", () => {
  it.live("measures a kernel and keeps what is better", () =>
    Effect.gen(function*() {
      const out = join(folder, "new", "out.json")
      const args = ["tune", "--device", "wasm", "--kernel", name, "--budget", "0.5", "--out", out, "--json"]
      const { code, stderr, stdout } = yield* tg(args)
      assert.strictEqual(code, 0, stderr)
      const { adapter, file, kernels: [found, ...others] } = JSON.parse(stdout)
      assert.deepStrictEqual([adapter, file, others], ["wasm", out, []])
      assert.strictEqual(found.name, name)
      assert.isAbove(found.tried, 0)
      assert.isAtMost(found.tuned.us, found.heuristic.us)
    }))

  it.effect("says what it cannot tune", () =>
    Effect.gen(function*() {
      const nothing = yield* tg(["tune", "--device", "wasm", "--kernel", "nothing"])
      assert.match(nothing.stderr, /no kernel's name begins with nothing; there are\n {2}token_embd/)
      const reference = yield* tg(["tune", "--device", "reference", "--kernel", name])
      assert.match(reference.stderr, /left out: the reference evaluator runs kernels as they are; tune for --device/)
      assert.deepStrictEqual([nothing.code, reference.code], [1, 1])
    }))
})
