import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { fromBytes } from "@tg/gguf/ByteSource"
import { type Name, table } from "@tg/gguf/GgufType"
import * as Layout from "@tg/gguf/Layout"
import { bufferOf, Device } from "@tg/runtime/Device"
import { buffer } from "@tg/tensor/Tensor"
import { Effect } from "effect"
import * as Loader from "../src/Loader.ts"
import type { ModelFile } from "../src/ModelFile.ts"
import * as Random from "../src/Random.ts"
import { wasm } from "./support/devices.ts"
import { tiny, tinyBytes, tinySource } from "./support/models.ts"

const noise = (length: number): Uint8Array => Uint8Array.from({ length }, (_, i) => Random.words(length, i)[0] >>> 24)

/** The planes as the evaluator makes them of the whole tensor at once. */
const planes = (layout: Layout.Layout, bytes: Uint8Array): Uint32Array => {
  const words = new Uint32Array(Math.ceil(bytes.length / 4))
  new Uint8Array(words.buffer).set(bytes)
  const raw = buffer(new Arena(), 0, { shape: [words.length], dtype: DType.u32 })
  const expected = new Uint32Array(layout.words)
  expected.set(Layout.bookOf(layout) ?? [], layout.bookOffset)
  for (const { offset, words: plane } of Layout.relayout(layout, raw)) {
    const [value] = evaluate([plane.node], { buffers: new Map([[raw.node, words]]) })
    expected.set(value!.data as Uint32Array, offset)
  }
  return expected
}

const wanted = (name: string, type: Name, shape: ReadonlyArray<number>, offset: number): Loader.Wanted => {
  const layout = Layout.layoutOf(type, shape)
  const bytes = layout.blocks * table[type].blockBytes
  return { tensor: { name, type, dims: shape.toReversed(), offset, bytes }, layout }
}

const wantedOf = ({ gguf, weights }: ModelFile): ReadonlyArray<Loader.Wanted> =>
  weights.all.map(({ layout, name }) => ({ layout, tensor: gguf.tensorsByName.get(name)! }))

/** Loads and reads back. */
const loaded = (source: ReturnType<typeof fromBytes>, all: ReadonlyArray<Loader.Wanted>, chunkBytes: number) =>
  Effect.gen(function*() {
    const device = yield* Device
    const buffers = yield* Loader.load(source, all, { chunkBytes })
    const words = new Map<string, Uint32Array>()
    for (const [name, buffer] of buffers) {
      words.set(name, new Uint32Array((yield* device.read(bufferOf(buffer))).buffer))
    }
    return words
  }).pipe(Effect.scoped, Effect.provide(wasm))

describe("load", () => {
  for (const type of Layout.types) {
    it.live(`${type}: in many chunks as in one, and as the layout says`, () =>
      Effect.gen(function*() {
        const { blockBytes, blockValues } = table[type]
        // odd counts, so that no tensor is a whole number of chunks or of groups
        const shapes = [[13, 3 * blockValues], [5, 7 * blockValues]]
        const offsets = [0, 39 * blockBytes]
        const bytes = noise(39 * blockBytes + 35 * blockBytes)
        const all = shapes.map((shape, i) => wanted(`t${i}`, type, shape, offsets[i]!))
        for (const chunkBytes of [11 * blockBytes, 2 ** 20]) {
          const words = yield* loaded(fromBytes("noise", bytes), all, chunkBytes)
          for (const { layout, tensor } of all) {
            const own = bytes.subarray(tensor.offset, tensor.offset + tensor.bytes)
            assertEquals(words.get(tensor.name), planes(layout, own))
          }
        }
      }))
  }

  it.live("tells how far it is, and returns all memory with its scope", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const before = device.allocatedBytes()
      const all = wantedOf(tiny)
      const seen: Array<Loader.Progress> = []
      const during = yield* Loader.load(tinySource, all, {
        onProgress: (progress) => Effect.sync(() => seen.push(progress))
      }).pipe(Effect.map(() => device.allocatedBytes()), Effect.scoped)
      const total = all.reduce((sum, { tensor }) => sum + tensor.bytes, 0)
      assert.isAtLeast(during, before + total)
      assert.strictEqual(device.allocatedBytes(), before)
      assertEquals(seen.at(-1)?.loadedBytes, total)
      assert.isTrue(
        seen.every((p, i) => p.totalBytes === total && (i === 0 || p.loadedBytes > seen[i - 1]!.loadedBytes))
      )
    }).pipe(Effect.provide(wasm)))

  it.live("reads ahead of the device, but only so far", () =>
    Effect.gen(function*() {
      const [started, taken] = [{ bytes: 0 }, { bytes: 0 }]
      let most = 0
      const source = {
        ...tinySource,
        read: (offset: number, length: number) =>
          Effect.suspend(() => {
            started.bytes += length
            most = Math.max(most, started.bytes - taken.bytes)
            return tinySource.read(offset, length)
          })
      }
      const chunkBytes = 2 ** 16
      yield* Loader.load(source, wantedOf(tiny), {
        chunkBytes,
        onProgress: ({ loadedBytes }) =>
          Effect.sync(() => {
            taken.bytes = loadedBytes
          })
      })
      assert.isAbove(most, 2 * chunkBytes)
      // four that are being read, and up to three between there and the device
      assert.isAtMost(most, 7 * chunkBytes)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("fails with the source's error when the file ends early", () =>
    Effect.gen(function*() {
      const all = wantedOf(tiny)
      const short = fromBytes("short", tinyBytes.subarray(0, 5_000_000))
      const error = yield* Effect.flip(Loader.load(short, all).pipe(Effect.scoped))
      assert.strictEqual(error._tag, "ByteSourceError")
      assert.strictEqual((yield* Device).allocatedBytes(), 0)
    }).pipe(Effect.provide(wasm)))
})
