/** What devices promise of memory: allocating, writing, reading, copying. */
import { Effect } from "effect"
import { bytesOf, type Cases, check, expectWords, filled, same, upTo, wordsOf } from "./case.ts"

/** The cases of memory. */
export const memory: Cases = {
  "memory starts as zeros and has at least the size asked for": ({ device }) =>
    Effect.gen(function*() {
      const buffer = yield* device.allocate(4099, "odd")
      yield* check(buffer.bytes >= 4100 && buffer.bytes % 4 === 0, () => `4099 bytes became ${buffer.bytes}`)
      yield* expectWords(device, buffer, upTo(1025).map(() => 0))
    }),

  "memory that is given back and taken again is zero again": ({ device }) =>
    Effect.gen(function*() {
      const size = 1 << 16
      const ones = upTo(size / 4).map(() => 0xffffffff)
      yield* Effect.scoped(filled(device, "first", ones))
      yield* expectWords(device, yield* device.allocate(size, "second"), ones.map(() => 0))
    }),

  "an empty buffer can be made, written and read": ({ device }) =>
    Effect.gen(function*() {
      const buffer = yield* device.allocate(0, "empty")
      yield* device.write(buffer, new Uint8Array(0))
      yield* same("empty", [...yield* device.read(buffer, 0, 0)], [])
    }),

  "bytes come back as they were written, at their offsets": ({ device }) =>
    Effect.gen(function*() {
      const buffer = yield* filled(device, "words", [1, 2, 3, 4, 5, 6])
      yield* device.write(buffer, bytesOf([0xdeadbeef, 0x7fc00001]), 8)
      yield* expectWords(device, buffer, [1, 2, 0xdeadbeef, 0x7fc00001, 5, 6])
      yield* same("middle", wordsOf(yield* device.read(buffer, 12, 8)), [0x7fc00001, 5])
      yield* same("rest", wordsOf(yield* device.read(buffer, 16)).slice(0, 2), [5, 6])
    }),

  "a write takes the bytes of a part of an array, and as they are at the call": ({ device }) =>
    Effect.gen(function*() {
      const buffer = yield* device.allocate(8, "copied")
      const data = bytesOf([1, 2, 3, 4])
      yield* device.write(buffer, data.subarray(4, 12))
      data.fill(255)
      yield* expectWords(device, buffer, [2, 3])
    }),

  "a read gives bytes of its own": ({ device }) =>
    Effect.gen(function*() {
      const buffer = yield* filled(device, "own", [7])
      const bytes = yield* device.read(buffer)
      bytes.fill(0)
      yield* device.write(buffer, bytesOf([8]))
      yield* same("first read", [...bytes], [0, 0, 0, 0].concat(upTo(bytes.length - 4).map(() => 0)))
      yield* expectWords(device, buffer, [8])
    }),

  "many reads at once each get their part": ({ device }) =>
    Effect.gen(function*() {
      const buffer = yield* filled(device, "shared", upTo(64))
      const parts = yield* Effect.all(upTo(16).map((i) => device.read(buffer, i * 16, 16)), {
        concurrency: "unbounded"
      })
      yield* same("parts", parts.flatMap(wordsOf), upTo(64))
    }),

  "a closed scope returns its bytes, also after a failure": ({ device }) =>
    Effect.gen(function*() {
      const before = device.allocatedBytes()
      yield* Effect.scoped(Effect.gen(function*() {
        yield* device.allocate(1000, "one")
        yield* device.allocate(3001, "two")
        yield* check(
          device.allocatedBytes() - before >= 4004,
          () => `${device.allocatedBytes() - before} of 4004 bytes`
        )
      }))
      yield* check(
        device.allocatedBytes() === before,
        () => `${device.allocatedBytes() - before} bytes are still there`
      )
      yield* Effect.exit(Effect.scoped(Effect.andThen(device.allocate(64, "lost"), Effect.fail("on purpose"))))
      yield* check(
        device.allocatedBytes() === before,
        () => `${device.allocatedBytes() - before} bytes are still there`
      )
    })
}
