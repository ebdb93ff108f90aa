import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Jit } from "@tg/jit/Jit"
import * as Models from "@tg/models/Models"
import { Device, type DeviceBuffer, DeviceError } from "@tg/runtime/Device"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { Effect, Layer } from "effect"
import * as Loader from "../src/Loader.ts"
import * as Rings from "../src/Rings.ts"
import * as Session from "../src/Session.ts"
import { compilerOver, memory, wasm } from "./support/devices.ts"
import { tiny, tinySource } from "./support/models.ts"

describe("pure parts", () => {
  it("finds the common prefix", () => {
    assert.strictEqual(Session.commonPrefix([1, 2, 3], [1, 2, 4, 5]), 2)
    assert.strictEqual(Session.commonPrefix([], [1]), 0)
    assert.strictEqual(Session.commonPrefix([1, 2], [1, 2]), 2)
  })
  it("cuts a prompt into pieces", () => {
    assertEquals(Rings.pieces(5, 7, { chunk: 3 }), [{ start: 5, length: 3 }, { start: 8, length: 3 }, {
      start: 11,
      length: 1
    }])
    assertEquals(Rings.pieces(5, 0, { chunk: 3 }), [])
    assertEquals(Rings.pieces(0, 3, { chunk: 3 }), [{ start: 0, length: 3 }])
  })
})

/** Steps that a session asked for, on a device that computes nothing. `fail` names the step that fails. */
const mocked = (fail?: number) => {
  const steps: Array<Readonly<Record<string, number>>> = []
  const { contents, layer } = memory()
  const programs = new Set<unknown>()
  const compiled = new Set<unknown>()
  const jit = Layer.mock(Jit, {
    settle: undefined,
    prepare: (sink) =>
      Effect.sync(() => (compiled.add(sink), {
        plan: { programs: [], launches: [], blocks: [] },
        schedule: Effect.succeed({ steps: [], temporaries: [], results: [] }),
        dispatches: [],
        vars: ["T", "startPos", "tiles", "pieces"],
        run: (vars) =>
          Effect.suspend(() => {
            programs.add(sink)
            steps.push(vars)
            return steps.length === fail
              ? Effect.fail(new DeviceError({ reason: "DeviceLost", message: "the device was lost" }))
              : Effect.void
          })
      }))
  })
  const buffers = new Map<string, DeviceBuffer>(tiny.weights.all.map(({ name }) => [name, { label: name, bytes: 4 }]))
  const session = (options: Session.SessionOptions) =>
    Session.make(tiny, buffers, options).pipe(Effect.provide(Layer.merge(layer, jit)))
  /** What a buffer holds. */
  const words = (label: string): ReadonlyArray<number> => {
    const [, bytes] = [...contents].find(([buffer]) => buffer.label === label)!
    return [...new Uint32Array(bytes.buffer)]
  }
  return { compiled, programs, steps, session, words }
}

const count = (n: number, from = 0) => Array.from({ length: n }, (_, i) => from + i)

describe("what a session runs", () => {
  it.effect("compiles ahead what a few words need, one program for all batches", () =>
    Effect.gen(function*() {
      const { compiled, programs, session } = mocked()
      const it = yield* session({ chunk: 16, batchFrom: 2, context: 64 })
      assert.strictEqual(compiled.size, 0)
      yield* it.prepare("last")
      yield* it.advance(count(20))
      assert.strictEqual(compiled.size, 1)
      yield* it.advance(count(40))
      assert.deepStrictEqual([compiled.size, programs.size], [1, 1])
    }).pipe(Effect.scoped))

  it.effect("a prompt in chunks, then token by token", () =>
    Effect.gen(function*() {
      const { session, steps } = mocked()
      const it = yield* session({ chunk: 4, context: 16 })
      yield* it.advance(count(10))
      yield* it.advance(count(11))
      assertEquals(steps, [
        { T: 4, startPos: 0 },
        { T: 4, startPos: 4 },
        { T: 2, startPos: 8 },
        { T: 1, startPos: 10 }
      ])
      assertEquals(it.tokens(), count(11))
    }))

  it.effect("a prompt in tiles of tokens, filled up with the last one; a single token without tiles", () =>
    Effect.gen(function*() {
      const { session, steps, words } = mocked()
      const it = yield* session({ batchFrom: 2, chunk: 40, context: 100 })
      yield* it.advance(count(60, 7))
      assertEquals(words("tokens").slice(0, 32), [...count(20, 47), ...count(12).map(() => 66)])
      yield* it.advance(count(61, 7))
      assertEquals(steps, [
        { T: 40, startPos: 0, tiles: 3, pieces: 1 },
        { T: 20, startPos: 40, tiles: 2, pieces: 2 },
        { T: 1, startPos: 60 }
      ])
    }))

  it.effect("only what follows the common prefix, and at least the last token", () =>
    Effect.gen(function*() {
      const { session, steps } = mocked()
      const it = yield* session({ chunk: 8, context: 16 })
      yield* it.advance([1, 2, 3, 4, 5])
      yield* it.advance([1, 2, 3, 9])
      yield* it.advance([1, 2, 3, 9])
      yield* it.advance([1, 2])
      assertEquals(steps.slice(1), [{ T: 1, startPos: 3 }, { T: 1, startPos: 3 }, { T: 1, startPos: 1 }])
      assertEquals(it.tokens(), [1, 2])
    }))

  it.effect("everything again after a reset", () =>
    Effect.gen(function*() {
      const { session, steps } = mocked()
      const it = yield* session({ chunk: 8, context: 16 })
      yield* it.advance([1, 2, 3])
      yield* it.reset
      yield* it.advance([1, 2, 3])
      assertEquals(steps, [{ T: 3, startPos: 0 }, { T: 3, startPos: 0 }])
    }))

  it.effect("after a failed step, nothing that it may have spoilt", () =>
    Effect.gen(function*() {
      const { session, steps } = mocked(3)
      const it = yield* session({ chunk: 4, context: 16 })
      yield* it.advance(count(6))
      const error = yield* Effect.flip(it.advance(count(12)))
      assert.strictEqual(error._tag, "DeviceError")
      assertEquals(it.tokens(), count(6))
      yield* it.advance(count(7))
      assertEquals(steps.slice(2), [{ T: 4, startPos: 6 }, { T: 1, startPos: 6 }])
    }))

  it.effect("steps of two callers one after the other", () =>
    Effect.gen(function*() {
      const { session, steps } = mocked()
      const it = yield* session({ chunk: 2, context: 16 })
      yield* Effect.all([it.advance(count(5)), it.advance(count(5, 100))], { concurrency: "unbounded" })
      assertEquals(steps.map((s) => s.startPos), [0, 2, 4, 0, 2, 4])
      assertEquals(it.tokens(), count(5, 100))
    }))
})

describe("what a session refuses", () => {
  it.effect("more tokens than the context holds, before it runs any", () =>
    Effect.gen(function*() {
      const { session, steps } = mocked()
      const it = yield* session({ context: 8 })
      const error = yield* Effect.flip(it.advance(count(9)))
      assertEquals(error._tag === "ContextFull" && [error.asked, error.limit, error.modelLimit], [9, 8, 1024])
      assert.include(error.message, "raise the context (the model allows 1024)")
      yield* it.advance(count(8))
      assert.strictEqual((yield* Effect.flip(it.append([1])))._tag, "ContextFull")
      assertEquals(steps, [{ T: 8, startPos: 0 }])
    }))

  for (const tokens of [[], [1280], [-1], [1.5], [NaN]]) {
    it.effect(`tokens ${JSON.stringify(tokens)}`, () =>
      Effect.gen(function*() {
        const it = yield* mocked().session({ context: 8 })
        assert.strictEqual((yield* Effect.flip(it.advance(tokens)))._tag, "InvalidTokens")
      }))
  }

  for (const context of [0, -1, 2.5, 1025]) {
    it.effect(`a context of ${context}`, () =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(mocked().session({ context }))
        assert.strictEqual(error._tag, context > 1024 ? "ContextFull" : "InvalidTokens")
      }))
  }
})

const wanted = tiny.weights.all.map(({ layout, name }) => ({ layout, tensor: tiny.gguf.tensorsByName.get(name)! }))

/** A prompt and an answer of tg-tiny. */
const tokens = [
  1261,
  1263,
  1266,
  285,
  260,
  263,
  583,
  302,
  32,
  53,
  52,
  286,
  32,
  52,
  53,
  63,
  1267,
  1270,
  300,
  583,
  302,
  32
]

describe("on wasm", () => {
  it.live("a kept prefix gives the same logits as a fresh start", () =>
    Effect.gen(function*() {
      const weights = yield* Loader.load(tinySource, wanted)
      const session = yield* Session.make(tiny, weights, { chunk: 8, context: 64 })
      yield* session.advance([...tokens.slice(0, 12), 77, 78, 79])
      const reused = yield* session.advance(tokens)
      yield* session.reset
      // the same pieces as after the prefix of 12: the same kernels on the same numbers
      yield* session.advance(tokens.slice(0, 12))
      const fresh = yield* session.advance(tokens)
      assertEquals(reused, fresh)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  for (const cache of ["f16", "f32"] as const) {
    it.live(`logits do not depend on how tokens are grouped (${cache})`, () =>
      Effect.gen(function*() {
        const weights = yield* Loader.load(tinySource, wanted)
        const whole = yield* Session.make(tiny, weights, { chunk: 32, cache })
        const pieces = yield* Session.make(tiny, weights, { chunk: 5, cache })
        const rows = yield* whole.append(tokens)
        let last: Float32Array = new Float32Array(0)
        for (let n = 3; n <= tokens.length; n++) last = yield* pieces.advance(tokens.slice(0, n))
        const expected = rows.subarray((tokens.length - 1) * whole.vocabulary)
        let largest = 0
        for (let i = 0; i < last.length; i++) largest = Math.max(largest, Math.abs(last[i]! - expected[i]!))
        // sums of float32 in another order; with halves a cached value may round the other way, 2^-11 of it
        assert.isBelow(largest, cache === "f32" ? 1e-3 : 3e-2)
      }).pipe(Effect.scoped, Effect.provide(wasm)))
  }

  for (const batch of [{ chunk: 8 }, { chunk: 16, batchFrom: 16 }]) {
    it.live(`of a prompt only the last piece computes logits, and the cache is the same (${JSON.stringify(batch)})`, () => {
      const launches: Array<number> = []
      const device = Effect.map(WasmDevice.make(), (device) =>
        Device.of({
          ...device,
          plan: (dispatches) =>
            Effect.map(device.plan(dispatches), ({ run }) => ({
              run: (vars) => Effect.andThen(Effect.sync(() => launches.push(dispatches.length)), run(vars))
            }))
        }))
      const counting = Layer.merge(compilerOver(Layer.effect(Device, device)), Models.layer)
      return Effect.gen(function*() {
        const weights = yield* Loader.load(tinySource, wanted)
        const session = yield* Session.make(tiny, weights, { ...batch, context: 64 })
        const [size, pieces] = [batch.chunk, 3]
        const prompt = Array.from({ length: size * pieces }, (_, i) => tokens[i % tokens.length]!)
        const count = Effect.fnUntraced(function*(lengths: ReadonlyArray<number>) {
          yield* session.reset
          launches.length = 0
          let logits = new Float32Array(0)
          for (const length of lengths) logits = new Float32Array(yield* session.advance(prompt.slice(0, length)))
          return { logits, launches: [...launches], rows: (yield* session.snapshot).rows }
        })
        const each = yield* count(Array.from({ length: pieces }, (_, i) => size * (i + 1)))
        const [all] = each.launches
        assert.deepEqual(each.launches, Array.from({ length: pieces }, () => all!))
        const together = yield* count([prompt.length])
        const [some] = together.launches
        assert.isBelow(some!, all!)
        assert.deepEqual(together.launches, [some!, some!, all!])
        assert.deepEqual(together.logits, each.logits)
        assert.deepEqual(together.rows, each.rows)
        // drafts are verified by a step of their own: the prompt in front of it needs no logits at all
        yield* session.reset
        launches.length = 0
        yield* session.verify(prompt, [1])
        assert.deepEqual(launches.slice(0, -1), Array.from({ length: launches.length - 1 }, () => some!))
      }).pipe(Effect.scoped, Effect.provide(counting))
    })
  }

  it.live("returns all memory with its scope", () =>
    Effect.gen(function*() {
      const device = yield* Device
      yield* Effect.gen(function*() {
        const weights = yield* Loader.load(tinySource, wanted)
        const session = yield* Session.make(tiny, weights, { context: 64 })
        yield* session.advance(tokens)
        assert.isAbove(device.allocatedBytes(), 7_000_000)
      }).pipe(Effect.scoped)
      assert.strictEqual(device.allocatedBytes(), 0)
    }).pipe(Effect.provide(wasm)))
})
