import { assert, describe, layer } from "@effect/vitest"
import * as Random from "@tg/engine/Random"
import * as SampleProgram from "@tg/engine/SampleProgram"
import * as Sampler from "@tg/engine/Sampler"
import * as Tables from "@tg/engine/SamplerTables"
import { Jit } from "@tg/jit/Jit"
import { Device } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Effect } from "effect"
import * as Devices from "../../src/Devices.ts"

const bytesOf = (words: Uint32Array | Float32Array): Uint8Array =>
  new Uint8Array(words.buffer, words.byteOffset, words.byteLength)

/** The program of a vocabulary and its cuts on the device at hand: a function like `Sampler.sample`. */
const sampler = Effect.fn(function*(vocabulary: number, cuts: SampleProgram.Cuts) {
  const device = yield* Device
  const jit = yield* Jit
  const { ids } = SampleProgram
  const logits = yield* device.allocate(4 * vocabulary, "logits")
  const token = yield* device.allocate(4, "token")
  const rule = yield* device.allocate(4 * SampleProgram.ruleWords, "rule")
  const table = yield* device.allocate(4 * Tables.words, "table")
  yield* device.write(table, bytesOf(Tables.shared()))
  const buffers = new Map([[ids.logits, logits], [ids.token, token], [ids.rule, rule], [ids.table, table]])
  const prepared = yield* jit.prepare(SampleProgram.make(vocabulary, cuts).sink, buffers)
  return Effect.fnUntraced(function*(row: Float32Array, settings: Sampler.Settings, words: Random.Words) {
    yield* device.write(logits, bytesOf(row))
    yield* device.write(rule, bytesOf(SampleProgram.ruleOf(settings, words)))
    yield* prepared.run({})
    const read = yield* device.read(token)
    return new DataView(read.buffer, read.byteOffset).getUint32(0, true)
  })
})

/** Numbers in [0, 1) that depend on the seed only. */
const numbers = (seed: number) => {
  let i = 0
  return () => Random.words(seed, i++)[0] / 2 ** 32
}

/** Rows of logits as models give them, and as they should not. */
const rows: Readonly<Record<string, (next: () => number, length: number) => Float32Array>> = {
  noise: (next, length) => Float32Array.from({ length }, () => 12 * next() - 3),
  peak: (next, length) => Float32Array.from({ length }, (_, i) => i % 97 === 5 ? 8 + 9 * next() : next()),
  ties: (next, length) => Float32Array.from({ length }, () => Math.round(4 * next()) / 2),
  equal: (_, length) => new Float32Array(length).fill(0.25),
  holes: (next, length) =>
    Float32Array.from({ length }, () => {
      const x = next()
      return x < 0.1 ? NaN : x < 0.3 ? -Infinity : x < 0.32 ? -0 : x < 0.34 ? 1e-40 : 6 * next()
    }),
  wide: (next, length) => Float32Array.from({ length }, () => 3e38 * (2 * next() - 1)),
  infinite: (next, length) => Float32Array.from({ length }, (_, i) => i % 11 === 3 ? Infinity : next()),
  subnormal: (next, length) => Float32Array.from({ length }, () => 1e-39 * next())
}

const settings = (next: () => number, { topK, topP }: SampleProgram.Cuts, length: number): Sampler.Settings => ({
  temperature: [0.01, 0.3, 0.7, 1, 1.5, 40, 1e-30, 1e30][Math.floor(8 * next())]!,
  topK: topK ? [2, 3, 40, 256, 257, length, length + 5][Math.floor(7 * next())]! : 0,
  topP: topP ? [1e-7, 0.01, 0.5, 0.9, 0.99, 0.9999][Math.floor(6 * next())]! : 1,
  minP: [0, 0, 0.001, 0.05, 0.5, 1][Math.floor(6 * next())]!,
  seed: 0
})

const test = (choice: Devices.Choice, lengths: ReadonlyArray<number>, rounds: number) =>
  layer(Devices.layer(choice), { excludeTestServices: true, timeout: "120 seconds" })((it) => {
    for (const length of lengths) {
      for (const cuts of [[false, false], [true, false], [false, true], [true, true]] as const) {
        const [topK, topP] = cuts
        it.effect(`vocabulary ${length}, top-k ${topK}, top-p ${topP}: the token of the host`, () =>
          Effect.gen(function*() {
            const sample = yield* sampler(length, { topK, topP })
            const next = numbers(length)
            for (const [name, make] of Object.entries(rows)) {
              for (let round = 0; round < rounds; round++) {
                const row = make(next, length)
                const given = settings(next, { topK, topP }, length)
                const words: Random.Words = Random.words(round, length)
                const expected = Sampler.sample(row, given, words)
                assert.strictEqual(
                  yield* sample(row, given, words),
                  // topK beyond the vocabulary and the like are ordinary; a row without a number gives the vocabulary
                  expected ?? length,
                  `${name} ${round} ${JSON.stringify(given)}`
                )
              }
            }
            const nothing = new Float32Array(length).fill(NaN)
            assert.strictEqual(
              yield* sample(nothing, settings(next, { topK, topP }, length), [1, 2]),
              length
            )
          }).pipe(Effect.scoped))
      }
    }
  })

describe("on the reference device", () => test("reference", [37], 2))
describe("on wasm", () => test("wasm", [1, 1000, 4100, 8192], 6))
describe.skipIf((await availableAdapter()) === undefined)("on WebGPU", () => test("webgpu", [8192], 1))
