import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { type DeviceProfile, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { signature } from "@tg/core-uop/Program"
import { Pipeline } from "@tg/jit/Pipeline"
import { ofKernel, printOpts } from "@tg/jit/Stages"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { members } from "@tg/rangeify/Horizontal"
import { Device } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import * as Check from "@tg/tuner/Check"
import * as Inputs from "@tg/tuner/Inputs"
import * as Store from "@tg/tuner/Store"
import * as Tuned from "@tg/tuner/Tuned"
import { Effect, Layer, Option, Result } from "effect"
import { kernelsOf } from "../src/commands/Kernel.ts"
import * as Devices from "../src/Devices.ts"
import { defaultModel } from "../src/Flags.ts"
import { membersOf } from "@tg/jit/KernelNames"
import * as Profiles from "../src/Profiles.ts"
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

const kernelsOn = (profile: DeviceProfile) =>
  Effect.runPromise(
    kernelsOf({
      model: Option.some(defaultModel),
      shape: Option.none(),
      step: "decode",
      kv: "f16",
      activations: "auto",
      context: Option.none()
    }).pipe(Effect.provide(Layer.provideMerge(Profiles.pipeline(profile, Store.empty), NodeServices.layer)))
  )
const [name, { ast: kernel }] = [...await kernelsOn(wasm)].find(([name]) => name.startsWith("attn_q_a"))!
const loop = Loops.all(kernel).find(({ axis, size }) => axis === "REDUCE" && size % 2 === 0)!.id

/** The opts of a kernel as a command sees them. */
const seen = (...flags: ReadonlyArray<string>) =>
  Effect.map(
    tg(["kernel", name, "--profile", "wasm", "--json", ...flags]),
    ({ stderr, stdout }) => ({ ...(JSON.parse(stdout) as { opts: Array<string>; origins: Array<string> }), stderr })
  )

describe("tuned opts", () => {
  it.effect("are used where they fit, and left out with --no-tune", () =>
    Effect.gen(function*() {
      const usual = yield* seen()
      assert.deepStrictEqual(usual.origins, ["heuristics"])

      const entry = { name, micros: 1, usualMicros: 2 }
      writeFileSync(file, Store.encode(Store.of("wasm", kernel, { ...entry, opts: [Opt.unroll(loop, 2)] })))
      const tuned = yield* seen()
      assert.deepStrictEqual([tuned.origins, tuned.opts], [["tuned"], [`UNROLL(r${loop}, 2)`]])
      const without = yield* seen("--no-tune")
      assert.deepStrictEqual([without.origins, without.opts], [["heuristics"], usual.opts])

      writeFileSync(file, Store.encode(Store.of("wasm", kernel, { ...entry, opts: [Opt.unroll(loop, 7)] })))
      const stale = yield* seen()
      assert.deepStrictEqual([stale.origins, stale.opts], [["stale"], usual.opts])
    }))

  it.effect("are left out, and that is told, when the file is no good", () =>
    Effect.gen(function*() {
      writeFileSync(file, "{}")
      const { origins, stderr } = yield* seen()
      assert.deepStrictEqual(origins, ["heuristics"])
      assert.match(stderr, /warning: tuned opts are not used: .*tuned.json holds no tuned opts of version 1/)
      assert.strictEqual((yield* seen("--no-tune")).stderr, "")
    }))
})

describe("members of launches", () => {
  const profile = { ...webgpuDefault, adapter: "some gpu" }

  it("are found again by the compiler in every launch, with their own names and slots", async () => {
    const launches = await kernelsOn(profile)
    const joined = [...launches].filter(([, { ast }]) => members(ast).length > 1)
    assert.isNotEmpty(joined)
    for (const [name, { ast }] of joined) {
      const own = membersOf(name, ast)
      assert.strictEqual(own.map((member) => member.name).join("+"), name.replace(/\.\d+$/, ""))
      const store = own.reduce((known, { ast, name }) => {
        const slots = signature(ast).bindings.map(({ slot }) => slot)
        assert.deepStrictEqual(slots, slots.map((_, i) => i))
        return Store.merge(known, Store.of(profile.adapter, ast, { name, opts: [], micros: 1, usualMicros: 2 }))
      }, Store.empty)
      const { opts } = await Effect.runPromise(
        Effect.flatMap(Pipeline, (pipeline) => ofKernel(pipeline, name, ast)).pipe(
          Effect.provide(Profiles.pipeline(profile, store))
        )
      )
      assert.deepStrictEqual(opts, own.map(() => []))
    }
  })

  it("have one argument for each slot of the launch", async () => {
    for (const [name, { ast }] of await kernelsOn(profile)) {
      const slots = Inputs.argumentsOf(ast).map(({ slot }) => slot)
      assert.deepStrictEqual(slots, slots.map((_, i) => i), name)
      const outputs = Inputs.argumentsOf(ast).filter(({ role }) => role.kind === "output")
      assert.strictEqual(Check.tolerancesOf(ast).length, outputs.length, name)
    }
  })
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

  it.live("measures a kernel in a step of the model, and says what the step gains", () =>
    Effect.gen(function*() {
      const out = join(folder, "in-step.json")
      const args = ["tune", "--in-step", "--device", "wasm", "--kernel", "attn_q_a", "--budget", "0.5", "--out", out]
      const { code, stderr, stdout } = yield* tg([...args, "--depth", "20", "--json"])
      assert.strictEqual(code, 0, stderr)
      const { kernels: [found, ...others], step } = JSON.parse(stdout)
      assert.deepStrictEqual([found.name.startsWith("attn_q_a"), others], [true, []])
      assert.isAbove(found.tried, 0)
      assert.isAtMost(found.tuned.us, found.heuristic.us)
      assert.isAbove(Math.min(step.before, step.now), 0)
      const text = (yield* tg([...args, "--step", "prompt", "--tokens", "2"])).stdout
      assert.match(text, /^wasm, [0-9.]+ s; each launch in its place\n\nlaunch +calls/)
      assert.match(text, /\nthe step as a whole: [0-9.]+ ms, tuned [0-9.]+ ms\n$/)
    }))

  it.live("with no budget only measures", () =>
    Effect.gen(function*() {
      const args = ["tune", "--device", "wasm", "--kernel", "attn_", "--budget", "0"]
      const { kernels, ...rest } = JSON.parse((yield* tg([...args, "--json"])).stdout)
      assert.deepStrictEqual(Object.keys(rest), ["device", "adapter", "seconds"])
      assert.isAbove(kernels.length, 2)
      for (const { calls, heuristic } of kernels) assert.isAbove(calls * heuristic.us, 0)
      const micros = kernels.map((k: { calls: number; heuristic: { us: number } }) => k.calls * k.heuristic.us)
      assert.deepStrictEqual(micros, micros.toSorted((a: number, b: number) => b - a))
      const text = (yield* tg(args)).stdout
      assert.match(text, /each launch alone, with the heuristics' opts\n\nlaunch +calls +us +us\/step/)
      assert.match(text, /\nsum of these launches in a step: [0-9.]+ ms\n$/)
    }))

  it.live("measures the launches of a prompt, of all tokens that are processed at once", () =>
    Effect.gen(function*() {
      const bytesOf = Effect.fnUntraced(function*(step: string) {
        const args = ["tune", "--device", "wasm", "--step", step, "--kernel", "attn_q_a", "--budget", "0", "--json"]
        const { code, stderr, stdout } = yield* tg(args)
        assert.strictEqual(code, 0, stderr)
        const { kernels: [found] } = JSON.parse(stdout)
        return Number(found.bytes)
      })
      assert.isAbove(yield* bytesOf("prompt"), (yield* bytesOf("decode")) + 4 * 16 * 256)
    }))

  it.effect("says what it cannot tune", () =>
    Effect.gen(function*() {
      const nothing = yield* tg(["tune", "--device", "wasm", "--kernel", "nothing"])
      assert.match(nothing.stderr, /no kernel's name begins with nothing; there are\n {2}token_embd/)
      const reference = yield* tg(["tune", "--device", "reference", "--kernel", name])
      assert.match(reference.stderr, /left out: the reference evaluator runs kernels as they are; tune for --device/)
      assert.deepStrictEqual([nothing.code, reference.code], [1, 1])
      const noWeights = yield* tg(["tune", "--in-step", "--shape", "glm-4.7-flash:q4_0"])
      assert.match(noWeights.stderr, /--in-step runs the model, and --shape has no weights; give --model/)
      const noPrompt = yield* tg(["tune", "--in-step", "--tokens", "2"])
      assert.match(noPrompt.stderr, /--tokens 2 is of a prompt's step; give --step prompt with it/)
      const noSearch = yield* tg(["tune", "--in-step", "--budget", "0"])
      assert.match(noSearch.stderr, /--budget 0 times each launch alone; `tg profile` times those of a step/)
    }))
})

describe.skipIf((await availableAdapter()) === undefined)("tune on WebGPU, software or not", () => {
  it.live("finds a launch by the name of a member, and keeps opts for each member", () =>
    Effect.gen(function*() {
      const devices = Layer.provide(Devices.layer("webgpu"), NodeServices.layer)
      const { profile } = yield* Effect.provide(Device, devices)
      const launches = yield* Effect.promise(() => kernelsOn(profile))
      const [launch, { ast }] = [...launches].find(([name]) => name.includes("+attn_kv_a"))!
      const out = join(folder, "webgpu.json")
      const args = ["tune", "--device", "webgpu", "--kernel", "attn_kv_a", "--budget", "0.5", "--out", out, "--json"]
      const { code, stderr, stdout } = yield* tg(args)
      assert.strictEqual(code, 0, stderr)
      const { kernels: [found, ...others] } = JSON.parse(stdout)
      assert.deepStrictEqual([found.name, others], [launch, []])
      assert.match(found.tuned.opts[0], /^1: [A-Z]+\(r/)
      // where nothing is better there is no file, and the heuristics choose the same again
      const store = existsSync(out) ? Result.getOrThrow(Store.decode(readFileSync(out, "utf8"), out)) : Store.empty
      const choices = membersOf(launch, ast).map(({ ast }) => Tuned.choose(ast, profile, store))
      assert.deepStrictEqual(choices.map(({ origin }) => origin === "tuned"), choices.map(() => existsSync(out)))
      assert.deepStrictEqual(printOpts({ opts: choices.map(({ opts }) => opts) }), found.tuned.opts)
    }))
})
