/** Steps of a constant number of tokens, as a GPU takes them, on wasm: the logits of one token after another. */
import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { fromBytes } from "@tg/gguf/ByteSource"
import * as Gguf from "@tg/gguf/Gguf"
import { known } from "@tg/models/Models"
import { Effect, Result } from "effect"
import * as Loader from "../src/Loader.ts"
import * as ModelFile from "../src/ModelFile.ts"
import * as Session from "../src/Session.ts"
import { wasm } from "./support/devices.ts"

const opened = (name: string) => {
  const bytes = new Uint8Array(readFileSync(new URL(`../../../test/vectors/oracle/${name}.gguf`, import.meta.url)))
  const model = Result.getOrThrow(
    Result.flatMap(Gguf.fromBytes(name, bytes), (gguf) => ModelFile.fromGguf(gguf, known))
  )
  const wanted = model.weights.all.map(({ layout, name }) => ({ layout, tensor: model.gguf.tensorsByName.get(name)! }))
  return { model, source: fromBytes(name, bytes), wanted }
}

// none of which has a value at the border of two bytes: what falls to the other side stays in the cache, and moves all later logits by 0.1
const tokens = Array.from({ length: 32 }, (_, i) => 3 + (Math.imul(i + 17, 0x9e3779b1) >>> 8) % 400)

// a router with a bias and weights that are normalised, beside a shared expert
describe("experts of a few tokens", () => {
  const { model, source, wanted } = opened("c01")
  // sums of float32 in another order, which may move what is rounded to bytes
  const ways = [["pairs", 2, 16, "int8", 2e-2], ["eights", 8, 16, "float", 1e-3], [
    "32s",
    32,
    32,
    "float",
    1e-3
  ]] as const
  it.live.each(ways)("by %s", ([, size, count, activations, limit]) =>
    Effect.gen(function*() {
      const weights = yield* Loader.load(source, wanted)
      const rows = Effect.fnUntraced(function*(size: number) {
        const shape = { context: 64, chunk: size, sizes: [size], batchFrom: Infinity }
        const session = yield* Session.make(model, weights, { cache: "f32", activations, ...shape })
        const made: Array<Float32Array> = []
        for (let at = 0; at < count; at += size) made.push(yield* session.append(tokens.slice(at, at + size)))
        return Float32Array.from(made.flatMap((part) => Array.from(part)))
      })
      const expected = yield* rows(1)
      assert.strictEqual(expected.length, count * model.config.vocabulary)
      const found = yield* rows(size)
      assert.isBelow(found.reduce((most, x, i) => Math.max(most, Math.abs(x - expected[i]!)), 0), limit)
    }).pipe(Effect.scoped, Effect.provide(wasm)))
})
