import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Jit } from "@tg/jit/Jit"
import { Device } from "@tg/runtime/Device"
import { Context, Effect } from "effect"
import * as Growing from "../src/Growing.ts"
import * as Loader from "../src/Loader.ts"
import * as Sampler from "../src/Sampler.ts"
import * as Session from "../src/Session.ts"
import { wasm } from "./support/devices.ts"
import { tiny, tinySource } from "./support/models.ts"

describe("sizes", () => {
  it("are the first one doubled, and at most what the model allows", () => {
    const sizes = { first: 4096, most: 20000 }
    assertEquals([1, 4096, 4097, 8193, 16385, 20000].map((n) => Growing.sizeFor(n, sizes)), [
      4096,
      4096,
      8192,
      16384,
      20000,
      20000
    ])
  })
})

const prompt = [1261, 1263, 1266, 285, 260, 263, 583, 302, 32, 53, 52, 286]
const loaded = Loader.load(
  tinySource,
  tiny.weights.all.map(({ layout, name }) => ({ layout, tensor: tiny.gguf.tensorsByName.get(name)! }))
)

describe("on wasm", () => {
  for (const cache of ["f16", "f32"] as const) {
    it.live(`a growing context gives the same tokens and logits as one that is large from the start (${cache})`, () =>
      Effect.gen(function*() {
        const weights = yield* loaded
        const device = yield* Device
        const before = device.allocatedBytes()
        const made: Array<number> = []
        const services = Context.pick(Device, Jit)(yield* Effect.context<Device | Jit>())
        // of fewer positions another form of attention is cheaper, which rounds other values
        const growing = yield* Growing.over(({ context, from }) => {
          made.push(context)
          return Session.make(tiny, weights, { cache, context, from, chunk: 8 }).pipe(Effect.provide(services))
        }, { first: 32, most: 80 })
        const text = (session: Session.Session) =>
          Effect.gen(function*() {
            const tokens = [...prompt]
            const settings = { ...Sampler.greedy, temperature: 0.7, seed: 5 }
            while (tokens.length < 70) tokens.push(yield* session.next(tokens, settings))
            return { tokens, logits: yield* session.advance(tokens) }
          })
        const grown = yield* text(growing)
        const afterGrowing = device.allocatedBytes()
        const large = yield* Session.make(tiny, weights, { cache, context: 80, chunk: 8 })
        assertEquals(grown, yield* text(large))
        assertEquals(made, [32, 64, 80])
        // both now have the same memory: what was outgrown is returned
        assert.strictEqual(afterGrowing - before, device.allocatedBytes() - afterGrowing)
        const error = yield* Effect.flip(growing.next(Array.from({ length: 81 }, () => 65)))
        assertEquals(error._tag === "ContextFull" && [error.asked, error.limit], [81, 80])
        assert.strictEqual(growing.context, 80)
      }).pipe(Effect.scoped, Effect.provide(wasm)))
  }
})
