import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { fromBytes } from "@tg/gguf/ByteSource"
import * as Gguf from "@tg/gguf/Gguf"
import { ringOf, ringRows, ringTokens } from "@tg/model-parts/Attention"
import { known } from "@tg/models/Models"
import { Effect, Result } from "effect"
import * as Loader from "../src/Loader.ts"
import * as ModelFile from "../src/ModelFile.ts"
import * as ProgramMemo from "../src/ProgramMemo.ts"
import * as Rings from "../src/Rings.ts"
import * as Session from "../src/Session.ts"
import { cacheRows } from "../src/StepProgram.ts"
import { wasm } from "./support/devices.ts"

const bytes = new Uint8Array(readFileSync(new URL("../../../test/vectors/oracle-families/g01.gguf", import.meta.url)))
const source = fromBytes("g01", bytes)
/** Five of its six blocks see 24 positions. */
const gemma = Result.getOrThrow(
  Result.flatMap(Gguf.fromBytes("g01", bytes), (gguf) => ModelFile.fromGguf(gguf, known))
)
const wanted = gemma.weights.all.map(({ layout, name }) => ({ layout, tensor: gemma.gguf.tensorsByName.get(name)! }))
const ring = ringOf(24)

describe("a ring", () => {
  it("has room for the window of each token of a step", () => {
    for (const window of [1, 24, 512, 1024, 4096]) {
      const made = ringOf(window)
      assert.strictEqual(made.positions % 64, 0)
      assert.isAtLeast(made.positions, window - 1 + ringTokens(made))
      assert.isAtLeast(ringTokens(made), Math.min(64, window))
    }
    assertEquals([ring.positions, ringRows(ring), ringTokens(ring)], [128, 192, 96])
  })
  it("is written to its end by one step, and from its beginning by the next", () => {
    assertEquals(Rings.pieces(100, 200, { chunk: 500, ring }), [
      { start: 100, length: 28 },
      { start: 128, length: 96 },
      { start: 224, length: 32 },
      { start: 256, length: 44 }
    ])
  })
  it("forgets what it has no room for", () => {
    const after = (start: number, tokens: number) => Rings.afterStep(ring, 10, { start, tokens })
    assertEquals([after(0, 96), after(96, 32), after(128, 1), after(250, 6), after(250, 16)], [0, 10, 10, 128, 128])
    assert.strictEqual(Rings.afterStep(undefined, 10, { start: 5, tokens: 200 }), 10)
  })
  it("is gone on with where the window of the next token is there", () => {
    assertEquals([0, 30, 32, 33, 34, 200].map((count) => Rings.usable(ring, 10, count)), [0, 0, 0, 33, 34, 200])
    assert.strictEqual(Rings.usable(ring, 0, 3), 3)
    assert.strictEqual(Rings.usable(undefined, 10, 200), 0)
  })
  it("takes the same memory behind any context that is longer", () => {
    const rows = (context: number) =>
      gemma.caches({ type: "f16", context: cacheRows(context) }).map(({ shape }) => Number(shape[0]))
    assertEquals(rows(4000), [192, 192, 192, 192, 192, 4032])
    assertEquals(rows(100), [128, 128, 128, 128, 128, 128])
  })
})

const random = (seed: number, count: number) =>
  Array.from({ length: count }, (_, i) => 3 + (Math.imul(seed * 1000 + i + 1, 0x9e3779b1) >>> 8) % 400)

const near = (found: Float32Array, expected: Float32Array): void => {
  const largest = found.reduce((most, x, i) => Math.max(most, Math.abs(x - expected[i]!)), 0)
  // sums of float32 in another order
  assert.isBelow(largest, 1e-3)
}

describe("conversations longer than a window, on wasm", () => {
  it.live("go on, go back, branch, are kept and grow as if nothing were forgotten", () =>
    Effect.gen(function*() {
      const weights = yield* Loader.load(source, wanted)
      const programs = ProgramMemo.make()
      const open = (options: Session.SessionOptions) =>
        Session.make(gemma, weights, {
          cache: "f32",
          activations: "float",
          chunk: 32,
          context: 400,
          programs,
          ...options
        })
      const session = yield* open({})
      const fresh = yield* open({})
      const alone = (tokens: ReadonlyArray<number>) => Effect.andThen(fresh.reset, fresh.advance(tokens))
      const all = random(1, 300)
      near(yield* session.advance(all), yield* alone(all))
      // the last tile of the prompt goes up to 304
      assert.strictEqual(session.forgotten(), 304 - 128)

      // back by less than the ring has to spare, and by more
      const back = [...all.slice(0, 210), ...random(2, 30)]
      assert.strictEqual(session.reusable(back), 210)
      near(yield* session.advance(back), yield* alone(back))
      const further = [...back.slice(0, 120), ...random(3, 5)]
      assert.strictEqual(session.reusable(further), 0)
      near(yield* session.advance(further), yield* alone(further))
      assert.strictEqual(session.forgotten(), 0)

      // branches: what is shared must not be forgotten
      yield* session.advance(all)
      const branch = yield* open({})
      yield* branch.adopt(session, 200)
      const other = [...all.slice(0, 200), ...random(4, 3)]
      assert.strictEqual(branch.reusable(other), 200)
      near(yield* branch.advance(other), yield* alone(other))
      yield* branch.adopt(session, 100)
      assert.deepStrictEqual(branch.tokens(), [])

      // kept outside of the device
      const snapshot = yield* session.snapshot
      assert.strictEqual(snapshot.rows[0]!.length, 128 * session.rowBytes)
      yield* branch.restore(snapshot, 300)
      const longer = [...all, 7, 8]
      assert.strictEqual(branch.reusable(longer), 300)
      near(yield* branch.advance(longer), yield* alone(longer))
      yield* branch.restore(snapshot, 150)
      assert.deepStrictEqual(branch.tokens(), [])

      // a small context keeps all positions, and a larger one goes on with a ring
      const small = yield* open({ context: 100 })
      yield* small.advance(all.slice(0, 98))
      const grown = yield* open({ from: small })
      assert.strictEqual(grown.reusable(all), 98)
      near(yield* grown.advance(all), yield* alone(all))
      yield* small.adopt(grown, 90)
      assert.deepStrictEqual(small.tokens(), [])
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("logits of all tokens, one token and many at a time", () =>
    Effect.gen(function*() {
      const weights = yield* Loader.load(source, wanted)
      const rows = Effect.fnUntraced(function*(options: Session.SessionOptions) {
        const session = yield* Session.make(gemma, weights, {
          cache: "f32",
          activations: "float",
          context: 400,
          ...options
        })
        const made: Array<Float32Array> = []
        for (let at = 0; at < 200; at += session.chunk) {
          made.push(yield* session.append(random(5, 200).slice(at, at + session.chunk)))
        }
        return Float32Array.from(made.flatMap((part) => Array.from(part)))
      })
      // no step of 100 fits the ring, and in tiles the last one stands beyond its end
      const expected = yield* rows({ chunk: 1 })
      near(yield* rows({ chunk: 100 }), expected)
      near(yield* rows({ chunk: 37, batchFrom: 2 }), expected)
    }).pipe(Effect.scoped, Effect.provide(wasm)))
})
