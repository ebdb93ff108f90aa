import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Layer } from "effect"
import { ByteSource, fromBytes } from "../src/ByteSource.ts"
import * as FileByteSource from "../src/FileByteSource.ts"
import * as Gguf from "../src/Gguf.ts"
import { fileSystem, load, path } from "./support/sources.ts"

const vocabulary = "test/vectors/tokenizer/glm4.vocab.gguf"
const bytes = load(vocabulary)

const outOfRange = Effect.fn(function*(source: ByteSource["Service"]) {
  const ranges = [[-1, 1], [0, source.size + 1], [source.size, 1], [0.5, 1], [0, -1], [0, NaN], [2 ** 60, 2 ** 60]]
  for (const [offset, length] of ranges) {
    const error = yield* Effect.flip(source.read(offset!, length!))
    assert.deepInclude(error, { _tag: "ByteSourceError", problem: "out-of-range", source: source.name })
  }
  assert.strictEqual((yield* source.read(source.size, 0)).length, 0)
})

describe("ByteSource", () => {
  it.effect("reads ranges of memory", () =>
    Effect.gen(function*() {
      const source = fromBytes("memory", bytes)
      assert.strictEqual(source.size, bytes.length)
      assertEquals(yield* source.read(5, 7), bytes.subarray(5, 12))
      yield* outOfRange(source)
    }))

  it.effect("reads ranges of a file, and closes it with the scope", () => {
    const opened = { count: 0 }
    return Effect.gen(function*() {
      yield* Effect.scoped(Effect.gen(function*() {
        const source = yield* FileByteSource.open(path(vocabulary))
        assert.strictEqual(source.size, bytes.length)
        const [a, b] = yield* Effect.all([source.read(0, 100), source.read(1000, 5000)], { concurrency: 2 })
        assert.deepStrictEqual([a, b], [bytes.slice(0, 100), bytes.slice(1000, 6000)])
        yield* outOfRange(source)
        assert.strictEqual(opened.count, 1)
      }))
      assert.strictEqual(opened.count, 0)
    }).pipe(Effect.provide(fileSystem(opened)))
  })

  it.effect("provides a file as a service", () =>
    Effect.gen(function*() {
      const gguf = yield* Gguf.read(yield* ByteSource, { chunkBytes: 4096 })
      assert.strictEqual(gguf.tensors.length, 0)
      assert.strictEqual(gguf.size, bytes.length)
    }).pipe(Effect.provide(FileByteSource.layer(path(vocabulary)).pipe(Layer.provide(fileSystem())))))

  it.effect("says which file is missing", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(Effect.scoped(FileByteSource.open("/missing/model.gguf")))
      assert.deepInclude(error, { _tag: "ByteSourceError", source: "/missing/model.gguf", problem: "unavailable" })
    }).pipe(Effect.provide(fileSystem())))
})
