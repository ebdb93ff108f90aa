import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Result, type Scope } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fromBytes } from "../src/ByteSource.ts"
import * as Gguf from "../src/Gguf.ts"
import * as GgufFile from "../src/GgufFile.ts"
import * as GgufWriter from "../src/GgufWriter.ts"
import * as Metadata from "../src/Metadata.ts"
import * as Split from "../src/Split.ts"
import { fileSystem } from "./support/sources.ts"

const tensor = (name: string, rows: number): GgufWriter.TensorData => ({
  name,
  type: "F32",
  dims: [5, rows],
  data: Uint8Array.from({ length: 20 * rows }, (_, i) => (i * 7 + name.length * 31) & 255)
})

const contents: GgufWriter.GgufContents = {
  metadata: [["general.architecture", Metadata.string("test")], ["test.size", Metadata.uint32(7)]],
  tensors: ["a", "bb", "ccc", "dddd", "eeeee", "ffffff"].map((name, i) => tensor(name, 1 + i))
}

const divided = (count: number, whole = contents) => Result.getOrThrow(Split.divide(whole, count))

/** Parts in memory. `alter` changes one's contents. */
const written = (
  parts: ReadonlyArray<GgufWriter.GgufContents>,
  alter: (part: GgufWriter.GgufContents, number: number) => GgufWriter.GgufContents = (part) => part
) => parts.map((part, i) => Result.getOrThrow(GgufWriter.write(alter(part, i + 1))))

const nameOf = (i: number, count: number) => Split.fileName("model", { number: i + 1, count })

const read = (parts: ReadonlyArray<Uint8Array>) =>
  parts.map((bytes, i) => Result.getOrThrow(Gguf.fromBytes(nameOf(i, parts.length), bytes)))

const mergeError = (parts: ReadonlyArray<Uint8Array>) => Result.getOrThrow(Result.flip(Split.merge(read(parts))))

const without = (key: string) => ({ metadata, ...rest }: GgufWriter.GgufContents): GgufWriter.GgufContents => ({
  ...rest,
  metadata: [...metadata].filter(([name]) => name !== key)
})

describe("names", () => {
  it("are read as they are made", () => {
    assert.strictEqual(nameOf(1, 3), "model-00002-of-00003.gguf")
    assertEquals(Split.parseFileName("/some/where-1/glm-q4-00012-of-00300.gguf"), {
      stem: "/some/where-1/glm-q4",
      number: 12,
      count: 300
    })
    for (const name of ["model.gguf", "model-1-of-3.gguf", "model-00001-of-00003.gguf.bak"]) {
      assert.isUndefined(Split.parseFileName(name))
    }
  })

  const part = { number: 2, count: 3, tensors: undefined }
  for (
    const [path, problem] of [
      ["renamed.gguf", "name"],
      ["model-00002-of-00004.gguf", "count"],
      ["model-00001-of-00003.gguf", "number"]
    ] as const
  ) {
    it(`${path} cannot be part 2 of 3`, () => {
      const error = Result.getOrThrow(Result.flip(Split.fileNames(path, part)))
      assertEquals([error._tag, error.problem, error.file], ["SplitError", problem, path])
    })
  }
})

describe("divide and merge", () => {
  for (const count of [2, 3, 6, 9]) {
    it.effect(`${count} parts together are the whole again`, () =>
      Effect.gen(function*() {
        const parts = written(divided(count))
        const gguf = Result.getOrThrow(Split.merge(read(parts)))
        assertEquals([...gguf.metadata.keys()], ["general.architecture", "test.size"])
        assertEquals(gguf.tensors.map((t) => t.name), contents.tensors.map((t) => t.name))
        assert.strictEqual(gguf.size, parts.reduce((sum, bytes) => sum + bytes.length, 0))
        const source = Split.concatenate("model", parts.map((bytes, i) => fromBytes(nameOf(i, count), bytes)))
        for (const { data, name } of contents.tensors) {
          assertEquals(yield* Gguf.readTensor(source, gguf.tensorsByName.get(name)!), data)
        }
        // across all borders, and nothing at the very end
        const all = Uint8Array.from(parts.flatMap((bytes) => [...bytes]))
        assertEquals(yield* source.read(1, all.length - 2), all.subarray(1, -1))
        assert.strictEqual((yield* source.read(all.length, 0)).length, 0)
        assert.strictEqual((yield* Effect.flip(source.read(all.length, 1))).problem, "out-of-range")
      }))
  }

  it("parts are about equal", () => {
    const sizes = divided(3).map(({ tensors }) => tensors.reduce((sum, { data }) => sum + data.length, 0))
    assertEquals(sizes, [120, 180, 120])
  })

  it("without the number of tensors a model is whole, too", () => {
    const parts = written(divided(2), without("split.tensors.count"))
    assert.strictEqual(Result.getOrThrow(Split.merge(read(parts))).tensors.length, 6)
  })

  it("a whole file does not say that something is missing", () => {
    const whole = (keys: Readonly<Record<string, number>>) => {
      const added = Object.entries(keys).map(([key, value]) => [key, Metadata.uint32(value)] as const)
      const bytes = GgufWriter.write({ ...contents, metadata: [...contents.metadata, ...added] })
      return Split.checkWhole(Result.getOrThrow(Gguf.fromBytes("whole.gguf", Result.getOrThrow(bytes))))
    }
    const { length } = contents.tensors
    assertEquals(whole({}), Result.succeed(undefined))
    assertEquals(whole({ "split.count": 0, "split.no": 0, "split.tensors.count": length }), Result.succeed(undefined))
    const error = (keys: Readonly<Record<string, number>>) => Result.getOrThrow(Result.flip(whole(keys)))
    assert.deepInclude(error({ "split.count": 1, "split.tensors.count": 5000 }), { problem: "tensor-count" })
    assert.deepInclude(error({ "split.no": 7 }), { problem: "number" })
  })

  it("a part is no model", () => {
    const [first] = read(written(divided(2)))
    assertEquals(Result.getOrThrow(Split.partOf(first!)), { number: 1, count: 2, tensors: 6 })
    assert.isUndefined(Result.getOrThrow(Split.partOf(read(written([contents]))[0]!)))
  })
})

describe("parts that do not fit", () => {
  const parts = divided(3)
  it("are refused if they are exchanged", () => {
    const [a, b, c] = written(parts)
    const error = mergeError([a!, c!, b!])
    assert.deepInclude(error, { _tag: "SplitError", problem: "number", file: "model-00002-of-00003.gguf" })
  })
  it("are refused if they are of two models", () => {
    const error = mergeError([...written(parts).slice(0, 2), written(divided(4))[2]!])
    assert.deepInclude(error, { problem: "count", file: "model-00003-of-00003.gguf" })
  })
  it("are refused if one is no part", () => {
    const error = mergeError([...written(parts).slice(0, 2), written([contents])[0]!])
    assert.deepInclude(error, { problem: "count", file: "model-00003-of-00003.gguf" })
  })
  it("are refused if a tensor is there twice", () => {
    const error = mergeError(
      written(parts, (part, n) => n === 3 ? { ...part, tensors: [...part.tensors, tensor("bb", 1)] } : part)
    )
    assert.deepInclude(error, { problem: "duplicate-tensor", file: "model-00003-of-00003.gguf" })
    assert.include(error.message, "bb")
    assert.include(error.message, "model-00001-of-00003.gguf")
  })
  it("are refused if a tensor is missing", () => {
    const error = mergeError(written(parts, (part, n) => n === 2 ? { ...part, tensors: part.tensors.slice(1) } : part))
    assert.deepInclude(error, { problem: "tensor-count", file: "model-00001-of-00003.gguf" })
    assert.include(error.message, "6 tensors, they have 5")
  })
  it("are refused if a number is of another type", () => {
    const error = mergeError(
      written(parts, (part, n) =>
        n === 2
          ? { ...part, metadata: [...without("split.no")(part).metadata, ["split.no", Metadata.string("1")]] }
          : part)
    )
    assert.deepInclude(error, { _tag: "WrongType", key: "split.no", file: "model-00002-of-00003.gguf" })
  })
})

const folder: Effect.Effect<string, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tg-split-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

/** Parts as files. */
const onDisk = (parts: ReadonlyArray<Uint8Array>) =>
  Effect.map(folder, (directory) =>
    parts.map((bytes, i) => {
      const path = join(directory, nameOf(i, parts.length))
      writeFileSync(path, bytes)
      return path
    }))

describe("files", () => {
  for (const number of [1, 2, 3]) {
    it.effect(`part ${number} opens the model, and closes all with the scope`, () => {
      const opened = { count: 0 }
      return Effect.gen(function*() {
        const paths = yield* onDisk(written(divided(3)))
        yield* Effect.scoped(Effect.gen(function*() {
          const { gguf, source } = yield* GgufFile.open(paths[number - 1]!)
          assertEquals([gguf.name, source.name, opened.count], [paths[0], paths[0], 3])
          for (const { data, name } of contents.tensors) {
            // files are read into memory of their own
            assertEquals([...(yield* Gguf.readTensor(source, gguf.tensorsByName.get(name)!))], [...data])
          }
        }))
        assert.strictEqual(opened.count, 0)
      }).pipe(Effect.scoped, Effect.provide(fileSystem(opened)))
    })
  }

  it.effect("a whole file is opened as such", () =>
    Effect.gen(function*() {
      const path = join(yield* folder, "whole.gguf")
      writeFileSync(path, written([contents])[0]!)
      const { gguf, source } = yield* GgufFile.open(path)
      assertEquals([gguf.name, source.name, gguf.tensors.length], [path, path, 6])
    }).pipe(Effect.scoped, Effect.provide(fileSystem())))

  it.effect("a missing part is named", () =>
    Effect.gen(function*() {
      const paths = yield* onDisk(written(divided(3)))
      rmSync(paths[1]!)
      const one = yield* Effect.flip(GgufFile.open(paths[2]!))
      assert.deepInclude(one, { _tag: "SplitError", problem: "missing-part", file: paths[1] })
      rmSync(paths[2]!)
      const two = yield* Effect.flip(GgufFile.open(paths[0]!))
      assert.deepInclude(two, { _tag: "SplitError", problem: "missing-part", file: paths[1] })
      assert.include(two.message, "1 more of the model's 3 parts")
    }).pipe(Effect.scoped, Effect.provide(fileSystem())))

  it.effect("a damaged part is named", () =>
    Effect.gen(function*() {
      const paths = yield* onDisk(written(divided(3)))
      writeFileSync(paths[1]!, "GGUF")
      const error = yield* Effect.flip(GgufFile.open(paths[0]!))
      assert.deepInclude(error, { _tag: "Truncated", file: paths[1] })
    }).pipe(Effect.scoped, Effect.provide(fileSystem())))
})
