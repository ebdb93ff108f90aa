import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Conversations } from "@tg/engine/Conversations"
import * as Pages from "@tg/engine/Pages"
import * as Pool from "@tg/engine/Pool"
import * as Random from "@tg/engine/Random"
import * as Loader from "@tg/engine/Loader"
import * as Loading from "@tg/engine/Loading"
import * as Together from "@tg/engine/Together"
import { fromBytes } from "@tg/gguf/ByteSource"
import { Device } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Effect, Layer, Stream } from "effect"
import * as Devices from "../../src/Devices.ts"
import { isFull, partOf } from "./support/full.ts"
import { open } from "./support/open.ts"
import * as Oracle from "./support/oracle.ts"
import { type Question, questions } from "./support/tiny.ts"

const path = fileURLToPath(new URL("../../models/tg-tiny-Q4_0.gguf", import.meta.url))

/** The model that comes with the command line, in steps of up to so many conversations. */
const together = (device: Devices.Choice, parallel: number) =>
  Layer.effect(
    Conversations,
    Effect.gen(function*() {
      const source = fromBytes("tg-tiny", new Uint8Array(readFileSync(path)))
      return yield* Together.fromModel(source, yield* open(source), { parallel, context: 512 })
    })
  ).pipe(Layer.provideMerge(Devices.layer(device, {})))

const textOf = Effect.fn("textOf")(function*(tokens: ReadonlyArray<number>, maxTokens: number) {
  const { generate } = yield* Conversations
  const generation = yield* generate({ tokens, maxTokens })
  const found = yield* Stream.runCollect(generation.tokens)
  return found.map(({ text }) => text).join("")
}, Effect.scoped)

/** Each question after a random number of turns of the others. */
const atRandom = (asked: ReadonlyArray<Question>) =>
  Effect.forEach(asked, ({ prompt_tokens }, i) =>
    Effect.gen(function*() {
      for (let n = 0; n < Random.words(7, i)[0] % 50; n++) yield* Effect.yieldNow
      return yield* textOf(prompt_tokens, 200)
    }), { concurrency: 8 })

const alone = (asked: ReadonlyArray<Question>) =>
  Effect.forEach(asked, ({ prompt_tokens }) => textOf(prompt_tokens, 200))

/** One in 17, which have many kinds. */
const sample = questions.filter((_, i) => i % 17 === 0)
const asked = partOf(isFull ? questions : sample)

/** Texts that differ from those of llama.cpp, which rounds activations to 8 bits: a close call may go the other way. */
const differing = (texts: ReadonlyArray<string>): number =>
  texts.filter((text, i) => text !== asked[i]!.llama_cpp.Q4_0.text).length

const test = (device: Devices.Choice) =>
  it.live(`to ${asked.length} of the questions, eight at once, each admitted at a random moment, on ${device}`, () =>
    Effect.gen(function*() {
      const texts = yield* atRandom(asked)
      // of a part some more may differ than of all
      assert.isAtMost(differing(texts), Math.ceil(0.05 * asked.length))
      const own = yield* alone(asked)
      const same = texts.filter((text, i) => text === own[i]).length
      yield* Effect.log(`${same} of ${asked.length} texts as alone, ${asked.length - differing(texts)} as llama.cpp's`)
      assertEquals(texts, own)
    }).pipe(Effect.provide(together(device, 8))))

describe("the answers of tg-tiny are the same in the steps of others", () => test("wasm"))

describe.skipIf(!isFull || (await availableAdapter()) === undefined)(
  "and on WebGPU, software or not (TG_FULL=1)",
  () => test("webgpu")
)

describe.skipIf(!isFull)("a thousand conversations through four places (TG_FULL=1)", () => {
  it.live("take no more memory than the first", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const seen: Array<{ readonly device: number; readonly heap: number }> = []
      yield* Effect.forEach(Array.from({ length: 1000 }, (_, i) => i), (i) =>
        Effect.gen(function*() {
          const { prompt_tokens } = questions[i % questions.length]!
          yield* textOf([...prompt_tokens.slice(0, 2 + i % 5), 300 + i % 90], 1 + i % 4)
          if (i % 100 !== 99) return
          globalThis.gc?.()
          seen.push({ device: device.allocatedBytes(), heap: process.memoryUsage().heapUsed })
        }), { concurrency: 4 })
      assert.lengthOf(seen, 10)
      assert.strictEqual(new Set(seen.slice(1).map((each) => each.device)).size, 1)
      // without --expose-gc the heap is whatever the collector has left
      if (globalThis.gc !== undefined) assert.isAtMost(seen.at(-1)!.heap, 1.1 * seen[2]!.heap)
    }).pipe(Effect.provide(together("wasm", 4))))
})

/** A pool for so many conversations of a model of the oracle, and the pages of each: far from each other, the last ones first. */
const poolOf = Effect.fn("poolOf")(
  function*(
    name: Oracle.Name,
    conversations: number,
    options: Pick<Pool.PoolOptions, "batch" | "cache" | "sizes" | "tokens">
  ) {
    const source = Oracle.source(name)
    const model = yield* open(source)
    const weights = yield* Loader.load(source, Loading.wantedOf(model))
    const context = 384
    const each = Pages.pagesFor(context)
    const pages = each * conversations
    const pool = yield* Pool.make(model, weights, { activations: "float", context, draws: "host", pages, ...options })
    const pagesOf = (i: number) => Array.from({ length: each }, (_, n) => pages - 1 - i - n * conversations)
    return { pool, pagesOf, vocabulary: model.config.vocabulary }
  }
)

/** Logits of all tokens of several texts, so many tokens of each in a step. */
const rowsOf = Effect.fn("rowsOf")(
  function*(name: Oracle.Name, texts: ReadonlyArray<ReadonlyArray<number>>, { cache, size }: {
    readonly cache: Oracle.Cache
    readonly size: number
  }) {
    const tokens = size * texts.length
    const sizes = size > 1 ? [tokens] : []
    const { pagesOf, pool, vocabulary } = yield* poolOf(name, texts.length, { batch: undefined, cache, sizes, tokens })
    const found: Array<Array<Float32Array>> = texts.map(() => [])
    for (let start = 0; start < Math.max(...texts.map(({ length }) => length)); start += size) {
      const left = texts.flatMap((text, i) =>
        text.length > start ? [{ i, tokens: text.slice(start, start + size) }] : []
      )
      const entries = left.map(({ i, tokens }): Pool.Entry => ({
        tokens,
        start,
        pages: pagesOf(i),
        rows: tokens.length
      }))
      const { logits } = yield* Effect.flatMap(pool.run(entries), ({ found }) => found)
      let at = 0
      for (const { i, tokens } of left) {
        for (const _ of tokens) found[i]!.push(logits.slice(at * vocabulary, ++at * vocabulary))
      }
    }
    return found
  },
  Effect.scoped
)

describe("the oracle's logits, of several conversations in each step, on wasm", () => {
  const names = [...Oracle.names, ...Oracle.families]
  for (const [i, name] of names.entries()) {
    if (!isFull && i % 2 === 1) continue
    // token by token, in pairs, in eights
    const size = [1, 2, 8][i % 3]!
    const cache = i % 4 < 2 ? "f32" : "f16"
    it.live(`${name}, ${cache} cache, ${size} at a time`, () =>
      Effect.gen(function*() {
        const [first, ...others] = Oracle.runsOf(name)
        const runs = [first!, ...others, first!]
        const texts = runs.map(Oracle.tokensOf)
        const rows = yield* rowsOf(name, texts, { cache, size })
        runs.forEach((run, i) => assert.isAtLeast(Oracle.check(run, rows[i]!, cache), run.continuation.length))
      }).pipe(Effect.provide(Devices.layer("wasm", {}))))
  }
})

/**
 * The prompts of runs in batches, each up to a place whose logits are recorded, their last ones in one, and then token by token, beside each
 * other.
 */
const batched = Effect.fn("batched")(
  function*(name: Oracle.Name, cache: Oracle.Cache) {
    const runs = Oracle.runsOf(name)
    const { pagesOf, pool } = yield* poolOf(name, runs.length, {
      batch: { tokens: 160, rows: runs.length },
      cache,
      sizes: [],
      tokens: runs.length
    })
    const found = runs.map(() => new Map<number, Float32Array>())
    const last: Array<Pool.Entry> = []
    for (const [i, run] of runs.entries()) {
      const places = run.rows.filter((row) => row < run.prompt.length - 1)
      let start = 0
      for (const end of places.filter((_, n) => n % 4 === 3)) {
        const entry = { tokens: run.prompt.slice(start, end + 1), start, pages: pagesOf(i), rows: 1 }
        found[i]!.set(end, (yield* Effect.flatMap(pool.batch([entry]), ({ found }) => found)).logits)
        start = end + 1
      }
      last.push({ tokens: run.prompt.slice(start), start, pages: pagesOf(i), rows: 1 })
    }
    const { logits } = yield* Effect.flatMap(pool.batch(last), ({ found }) => found)
    const size = logits.length / runs.length
    runs.forEach(({ prompt }, i) => found[i]!.set(prompt.length - 1, logits.slice(i * size, (i + 1) * size)))
    for (let n = 0; n < Math.min(...runs.map(({ continuation }) => continuation.length)); n++) {
      const entries = runs.map(({ continuation, prompt }, i): Pool.Entry => ({
        tokens: [continuation[n]!],
        start: prompt.length + n,
        pages: pagesOf(i),
        rows: 1
      }))
      const { logits } = yield* Effect.flatMap(pool.run(entries), ({ found }) => found)
      runs.forEach(({ prompt }, i) => found[i]!.set(prompt.length + n, logits.slice(i * size, (i + 1) * size)))
    }
    return found
  },
  Effect.scoped
)

describe("the oracle's logits, of prompts in batches over pages, on wasm", () => {
  const settings = [
    { name: "c01", cache: "f16" },
    { name: "c05", cache: "f32" },
    { name: "g01", cache: "f16" },
    { name: "c01", cache: "f32" },
    { name: "m01", cache: "f32" },
    { name: "l01", cache: "f32" },
    { name: "z01", cache: "f16" }
  ] as const
  for (const { cache, name } of isFull ? settings : settings.slice(0, 3)) {
    it.live(`${name}, ${cache} cache`, () =>
      Effect.gen(function*() {
        const found = yield* batched(name, cache)
        for (const [i, run] of Oracle.runsOf(name).entries()) {
          const places = run.rows.filter((row) => found[i]!.has(row))
          assert.isAbove(places.length, 3)
          for (const row of places) {
            const expected = Oracle.expectedRow(run, row)
            const { largest, rms } = Oracle.distance(found[i]!.get(row)!, expected)
            assert.isAtMost(rms, Oracle.limits[cache].rms, `RMS of ${run.name} at ${row}`)
            assert.isAtMost(largest, Oracle.limits[cache].largest, `${run.name} at ${row}`)
          }
        }
      }).pipe(Effect.provide(Devices.layer("wasm", {}))))
  }
})
