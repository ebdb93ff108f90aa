import { assert, describe, it } from "@effect/vitest"
import * as GgufWriter from "@tg/gguf/GgufWriter"
import { Effect } from "effect"
import * as Http from "../src/Http.ts"
import * as HttpByteSource from "../src/HttpByteSource.ts"
import * as RemoteGguf from "../src/RemoteGguf.ts"
import { type Fault, noise, start } from "./support/server.ts"
import { impatient, nameOf, quick } from "./support/store.ts"

const server = Effect.acquireRelease(Effect.promise(start), (made) => Effect.promise(made.close))
const http = Http.Http.layer(quick)

const scene = Effect.fnUntraced(function*(options: HttpByteSource.Options = {}) {
  const made = yield* server
  const bytes = noise(100_000)
  made.files.set("/m.gguf", { bytes })
  const source = yield* HttpByteSource.open(`${made.url}/m.gguf`, { blockBytes: 4096, ...options })
  made.asked.length = 0
  return { made, bytes, source }
})

describe("a file at an address as a byte source", () => {
  it.live("gives any range, each block once", () =>
    Effect.gen(function*() {
      const { bytes, made, source } = yield* scene()
      assert.strictEqual(source.size, bytes.length)
      for (
        const [offset, length] of [[0, 0], [0, 1], [4095, 2], [5000, 20_000], [99_999, 1], [0, 100_000], [100_000, 0]]
      ) {
        assert.deepStrictEqual(yield* source.read(offset!, length!), bytes.subarray(offset, offset! + length!))
      }
      assert.strictEqual(made.asked.length, 25)
      assert.isTrue(made.asked.every(({ ifRange }) => ifRange !== undefined))
    }).pipe(Effect.provide(http)))

  it.live("asks once for what is asked for at the same time, and drops what was not used for long", () =>
    Effect.gen(function*() {
      const { bytes, made, source } = yield* scene({ blocks: 2 })
      yield* Effect.forEach([0, 10, 20], (offset) => source.read(offset, 10), { concurrency: "unbounded" })
      assert.strictEqual(made.asked.length, 1)
      for (const block of [1, 0, 2, 0, 1]) yield* source.read(4096 * block, 10)
      assert.strictEqual(made.asked.length, 4)
      assert.deepStrictEqual(yield* source.read(0, 10), bytes.subarray(0, 10))
    }).pipe(Effect.provide(http)))

  it.live.each<readonly [Fault, string]>([
    [{ type: "whole" }, "no-ranges"],
    [{ type: "content-range", value: "bytes 1-4096/100000" }, "wrong-range"],
    [{ type: "content-range", value: "bytes 0-4095/99999" }, "changed"],
    [{ type: "too-much", extra: 1 }, "long-read"],
    [{ type: "too-little", missing: 1 }, "short-read"],
    [{ type: "status", status: 404 }, "unavailable"],
    [{ type: "break", after: 10 }, "unavailable"],
    [{ type: "stall", after: 10 }, "unavailable"]
  ])("%o always is an error of its own, now and then it is none", ([fault, problem]) =>
    Effect.gen(function*() {
      const { bytes, made, source } = yield* scene()
      made.fault = () => fault
      const error = yield* Effect.flip(source.read(0, 10))
      assert.strictEqual(error.problem, problem)
      if (problem === "changed" || fault.type === "status") return
      let index = 0
      made.fault = () => index++ === 0 ? fault : undefined
      assert.deepStrictEqual(yield* source.read(0, 10), bytes.subarray(0, 10))
    }).pipe(Effect.provide(Http.Http.layer(fault.type === "stall" ? impatient : quick))))

  it.live("a file that changes is an error", () =>
    Effect.gen(function*() {
      const { made, source } = yield* scene()
      yield* source.read(0, 10)
      made.files.set("/m.gguf", { bytes: noise(100_000, 2) })
      assert.strictEqual((yield* Effect.flip(source.read(50_000, 10))).problem, "changed")
    }).pipe(Effect.provide(http)))

  it.live("a server without ranges is refused, and so is a range outside", () =>
    Effect.gen(function*() {
      const { made, source } = yield* scene()
      assert.strictEqual((yield* Effect.flip(source.read(99_999, 2))).problem, "out-of-range")
      made.fault = () => ({ type: "whole" })
      const error = yield* Effect.flip(HttpByteSource.open(`${made.url}/m.gguf`))
      assert.include(error.message, "sends only the whole file, of 100000 bytes; pull it")
    }).pipe(Effect.provide(http)))
})

describe("a model elsewhere", () => {
  it.live("only its header is fetched", () =>
    Effect.gen(function*() {
      const made = yield* server
      const data = new Float32Array(2 ** 22)
      const bytes = yield* Effect.fromResult(GgufWriter.write({
        metadata: [["general.architecture", { type: "string", value: "x" }]],
        tensors: [{ name: "a", type: "F32", dims: [data.length], data: new Uint8Array(data.buffer) }]
      }))
      made.files.set("/m.gguf", { bytes })
      const { gguf } = yield* RemoteGguf.open(nameOf(`${made.url}/m.gguf`))
      assert.deepStrictEqual(gguf.tensors.map(({ name }) => name), ["a"])
      const fetched = made.asked.map(({ range = "" }) => {
        const [, first, last] = /bytes=(\d+)-(\d+)/.exec(range) ?? []
        return Number(last) - Number(first) + 1
      })
      // the reader asks for a MiB at a time, here in blocks of a quarter
      assert.isAtMost(fetched.reduce((a, b) => a + b), 5 * 2 ** 18 + 1)
      assert.isAbove(bytes.length, 2 ** 24)
    }).pipe(Effect.provide(http)))
})
