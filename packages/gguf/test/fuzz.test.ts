import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { fromBytes } from "../src/ByteSource.ts"
import * as Gguf from "../src/Gguf.ts"
import * as GgufError from "../src/GgufError.ts"
import * as GgufWriter from "../src/GgufWriter.ts"
import * as Metadata from "../src/Metadata.ts"
import { load, paths, recorded } from "./support/sources.ts"

const errors = new Set<string>(
  Object.values(GgufError).map((each) => each.name).filter((name) => !/^Missing|^WrongType/.test(name))
)

/** mulberry32: the same numbers on every run. */
const random = (seed: number) => {
  let state = seed
  return (below: number) => {
    state = state + 0x6d2b79f5 | 0
    let mixed = Math.imul(state ^ state >>> 15, 1 | state)
    mixed = mixed + Math.imul(mixed ^ mixed >>> 7, 61 | mixed) ^ mixed
    return ((mixed ^ mixed >>> 14) >>> 0) % below
  }
}

/** A damaged file is a typed error or a header that keeps its promises, soon. True if it was accepted. */
const check = (bytes: Uint8Array, where: string, options?: Gguf.ReadOptions): boolean => {
  const before = process.cpuUsage()
  const result = Gguf.fromBytes("fuzz.gguf", bytes, options)
  const { system, user } = process.cpuUsage(before)
  // of the processor's time: a busy machine is no fault of the file's
  if (system + user > 20e6) assert.fail(`${where}: took ${(system + user) / 1e6} s`)
  if (Result.isFailure(result)) {
    if (!errors.has(result.failure._tag)) assert.fail(`${where}: unexpected ${result.failure._tag}`)
    if (result.failure.message.length > 2000) assert.fail(`${where}: the message is as long as the file`)
    return false
  }
  for (const { bytes: length, offset } of result.success.tensors) {
    if (!(offset >= 0 && length > 0 && offset + length <= bytes.length)) assert.fail(`${where}: a tensor lies outside`)
  }
  return true
}

const small = Result.getOrThrow(GgufWriter.write({
  metadata: [
    ["general.architecture", Metadata.string("deepseek2")],
    ["general.alignment", Metadata.uint32(32)],
    ["u8", { type: "uint8", value: 1 }],
    ["u64", Metadata.uint64(2n ** 60n)],
    ["f32", Metadata.float32(0.5)],
    ["bool", Metadata.bool(true)],
    ["tokens", Metadata.strings(["a", "", "Ġthe", "漢字😀"])],
    ["types", Metadata.int32s(Int32Array.of(1, 2, 3, 4))],
    ["flags", { type: "array", element: "bool", value: [true, false] }]
  ],
  tensors: [
    { name: "token_embd.weight", type: "Q4_0", dims: [32, 2], data: new Uint8Array(36) },
    { name: "output_norm.weight", type: "F32", dims: [8], data: new Uint8Array(32) }
  ]
}))

describe("damaged files", () => {
  it("every prefix of a small file is an error", () => {
    for (let length = 0; length < small.length; length++) {
      for (const chunkBytes of [1, 2 ** 20]) {
        const isValid = check(small.subarray(0, length), `prefix of ${length}`, { chunkBytes })
        assert.isFalse(isValid, `prefix of ${length}`)
      }
    }
    assert.isTrue(check(small, "whole"))
  })

  it("a small file with any bit flipped is read, or an error", () => {
    const { dataOffset } = Result.getOrThrow(Gguf.fromBytes("small.gguf", small))
    for (let bit = 0; bit < dataOffset * 8; bit++) {
      const damaged = small.slice()
      damaged[bit >> 3]! ^= 1 << (bit & 7)
      check(damaged, `bit ${bit}`)
    }
  })

  it("a small file with any byte replaced by an extreme one is read, or an error", () => {
    const { dataOffset } = Result.getOrThrow(Gguf.fromBytes("small.gguf", small))
    for (let at = 0; at < dataOffset; at++) {
      for (const byte of [0, 1, 0x7f, 0x80, 0xff]) check(small.with(at, byte), `byte ${byte} at ${at}`)
    }
  })

  it.each(paths)("%s: with bits of its header flipped it is read, or an error", (relative) => {
    const bytes = load(relative)
    const { dataOffset } = Result.getOrThrow(Gguf.fromBytes(relative, bytes))
    const next = random(dataOffset)
    const end = Math.min(dataOffset, bytes.length)
    for (let round = 0; round < 300; round++) {
      const ats = Array.from({ length: 1 + next(3) }, () => next(round % 3 === 0 ? Math.min(end, 2000) : end))
      const saved = ats.map((at) => bytes[at]!)
      for (const at of ats) bytes[at] = next(2) === 0 ? bytes[at]! ^ 1 << next(8) : next(256)
      check(bytes, `round ${round} at ${ats}`)
      ats.forEach((at, index) => bytes[at] = saved[index]!)
    }
  })

  it.effect.each(paths)(
    "%s: cut at structural boundaries and elsewhere, it is read if all of its tensors are left",
    (relative) =>
      Effect.gen(function*() {
        const bytes = load(relative)
        // With chunks of one byte, each field that is read asks for its own range.
        const { ranges, source } = recorded(fromBytes(relative, bytes))
        const gguf = yield* Gguf.read(source, { chunkBytes: 1 })
        const boundaries = [...new Set(ranges.flatMap(([offset, length]) => [offset, offset + length]))]
          .concat(gguf.tensors.flatMap((tensor) => [tensor.offset, tensor.offset + tensor.bytes - 1]))
        const next = random(bytes.length)
        const step = Math.ceil(boundaries.length / 500)
        const least = gguf.tensors.length === 0
          ? ranges.at(-1)![0] + ranges.at(-1)![1]
          : Math.max(...gguf.tensors.map((tensor) => tensor.offset + tensor.bytes))
        const lengths = boundaries.filter((_, index) => index < 300 || index % step === 0)
        for (let round = 0; round < 100; round++) lengths.push(next(bytes.length))
        for (const length of lengths) {
          assert.strictEqual(check(bytes.subarray(0, length), `prefix of ${length}`), length >= least)
        }
      })
  )

  it.effect.each(paths)("%s: a damaged file is asked for each byte at most once", (relative) =>
    Effect.gen(function*() {
      const bytes = load(relative)
      const next = random(7)
      for (let round = 0; round < 30; round++) {
        const damaged = bytes.slice(0, 60000)
        for (let flips = 0; flips < 4; flips++) damaged[next(damaged.length)] = next(256)
        const { ranges, source } = recorded(fromBytes(relative, damaged))
        yield* Effect.result(Gguf.read(source, { chunkBytes: 1024 }))
        let end = 0
        for (const [offset, length] of ranges) {
          assert.strictEqual(offset, end)
          end += length
        }
        assert.isAtMost(end, damaged.length)
      }
    }))
})
