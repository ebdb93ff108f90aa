import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { h200, wasm } from "@tg/core-uop/DeviceProfile"
import { Effect } from "effect"
import * as Loader from "../src/Loader.ts"
import * as Sampler from "../src/Sampler.ts"
import * as Session from "../src/Session.ts"
import * as Spans from "../src/Spans.ts"
import { onItsOwn } from "./support/devices.ts"
import { tiny, tinySource } from "./support/models.ts"

describe("spans", () => {
  it("are the first one, and each time as many positions again, on a GPU", () => {
    assertEquals(Spans.all({ context: 16384, profile: h200 }), [
      { from: 0, to: 2048 },
      { from: 2048, to: 4096 },
      { from: 4096, to: 8192 },
      { from: 8192, to: 16384 }
    ])
    assertEquals(Spans.all({ context: 16384, profile: wasm }), [{ from: 0, to: 16384 }])
  })

  it("of more tokens begin with a shorter one, where there are matrix units", () => {
    const profile = { ...h200, matrixUnits: true }
    const ends = (chunk: number, context = 8192) => Spans.all({ chunk, context, profile }).map(({ to }) => to)
    assertEquals([1, 8, 16, 32].map((chunk) => ends(chunk)), [
      [2048, 4096, 8192],
      [2048, 4096, 8192],
      [1024, 2048, 4096, 8192],
      [512, 2048, 4096, 8192]
    ])
    assertEquals([700, 768, 3000].map((context) => ends(32, context)), [[700], [512, 768], [512, 3000]])
    assertEquals(Spans.at(511, { context: 8192, profile, chunk: 32 }), { from: 0, to: 512 })
    assertEquals(Spans.at(512, { context: 8192, profile, chunk: 32 }), { from: 512, to: 2048 })
    assertEquals(Spans.at(512, { context: 8192, profile: { ...h200, matrixUnits: false }, chunk: 32 }), {
      from: 0,
      to: 2048
    })
  })

  it("of fewer tokens are as many, or one less in the beginning", () => {
    const counted = (chunk: number, context: number) =>
      Spans.all({ chunk, context, profile: { ...h200, matrixUnits: true } }).length
    for (const context of [64, 700, 768, 1600, 3000, 3072, 10_000, 16_384]) {
      for (const chunk of [1, 2, 4, 8, 16]) {
        assert.include([0, 1], counted(32, context) - counted(chunk, context), `${chunk} tokens of ${context}`)
      }
    }
  })

  it("of a context that ends soon go on to its end", () => {
    const ends = (context: number) => Spans.all({ context, profile: h200 }).map(({ to }) => to)
    assertEquals([1024, 3071, 3072, 4128, 6144, 10000].map(ends), [
      [1024],
      [3071],
      [2048, 3072],
      [2048, 4128],
      [2048, 4096, 6144],
      [2048, 4096, 10000]
    ])
  })

  it("have each position once", () => {
    const ofFirst = [1, 15, 16, 23, 24, 40, 47, 48, 100].map((context) => ({ context, first: 16, profile: h200 }))
    const ofTokens = [3, 17, 32, 48, 512, 5000].flatMap((chunk) =>
      [64, 700, 3000, 5000].map((context) => ({ chunk, context, profile: { ...h200, matrixUnits: true } }))
    )
    for (const within of [...ofFirst, ...ofTokens]) {
      const { context } = within
      const spans = Spans.all(within)
      assertEquals([spans[0]!.from, spans.at(-1)!.to], [0, context])
      for (let position = 0; position < context; position++) {
        const own = Spans.at(position, within)
        assertEquals(
          spans.filter(({ from, to }) => from <= position && position < to),
          [own],
          `${position} of ${context}`
        )
      }
    }
  })
})

const prompt = [1261, 1263, 1266, 285, 260, 263, 583, 302, 32, 53, 52, 286]
const loaded = Loader.load(
  tinySource,
  tiny.weights.all.map(({ layout, name }) => ({ layout, tensor: tiny.gguf.tensorsByName.get(name)! }))
)

describe("a session with programs for ranges of positions", () => {
  const context = 80
  // 0 to 15, 16 to 31, 32 to 79; and one range of all
  const withFirst = Effect.fnUntraced(function*(firstSpan: number) {
    const shape = { cache: "f32", activations: "float", context, firstSpan } as const
    return yield* Session.make(tiny, yield* loaded, { ...shape, sizes: [1, 2, 4, 8], batchFrom: Infinity })
  })
  const both = Effect.all([withFirst(16), withFirst(context)])
  // float32 in another order of sums
  const alike = (a: Float32Array, b: Float32Array): void => {
    assert.strictEqual(a.length, b.length)
    assert.isBelow(a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i]!)), 0), 1e-4)
  }

  it.live("draws and reads what one with a single range does", () =>
    Effect.gen(function*() {
      const text = (session: Session.Session, settings: Sampler.Settings) =>
        Effect.gen(function*() {
          yield* session.reset
          const tokens = [...prompt]
          while (tokens.length < 70) tokens.push(yield* session.next(tokens, settings))
          return { tokens, logits: yield* session.advance(tokens) }
        })
      for (const settings of [Sampler.greedy, { ...Sampler.greedy, temperature: 0.7, seed: 5 }]) {
        const [found, expected] = yield* Effect.forEach(yield* both, (session) => text(session, settings))
        assertEquals(found!.tokens, expected!.tokens)
        alike(found!.logits, expected!.logits)
      }
    }).pipe(Effect.scoped, Effect.provide(onItsOwn())))

  it.live("verifies drafts and reads prompts across their borders", () =>
    Effect.gen(function*() {
      const tokens = Array.from({ length: 60 }, (_, i) => prompt[i % prompt.length]! + i % 3)
      const logits = (session: Session.Session) =>
        Effect.gen(function*() {
          const prompts = yield* Effect.forEach([13, 30, 45], (length) => session.advance(tokens.slice(0, length)))
          yield* session.keep(14)
          const drafts = yield* session.verify(tokens.slice(0, 15), tokens.slice(15, 20))
          yield* session.keep(30)
          return [...prompts, drafts, yield* session.append(tokens.slice(30, 36))]
        })
      const [found, expected] = yield* Effect.forEach(yield* both, logits)
      found!.forEach((rows, i) => alike(rows, expected![i]!))
    }).pipe(Effect.scoped, Effect.provide(onItsOwn())))

  it.live("has a program of each", () =>
    Effect.gen(function*() {
      const [apart, whole] = yield* both
      const steps = (session: Session.Session) =>
        Effect.map(
          Effect.forEach([0, 15, 16, 31, 32, 79], session.decodeStep),
          (all) => all.map((step) => all.indexOf(step))
        )
      assertEquals(yield* steps(apart), [0, 0, 2, 2, 4, 4])
      assertEquals(yield* steps(whole), [0, 0, 0, 0, 0, 0])
    }).pipe(Effect.scoped, Effect.provide(onItsOwn())))
})
