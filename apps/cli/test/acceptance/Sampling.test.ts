import { assert, describe, layer } from "@effect/vitest"
import * as Random from "@tg/engine/Random"
import * as SampleProgram from "@tg/engine/SampleProgram"
import * as Sampler from "@tg/engine/Sampler"
import * as Shaping from "@tg/engine/Shaping"
import * as Tables from "@tg/engine/SamplerTables"
import { Jit, ownOf } from "@tg/jit/Jit"
import { Device } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Effect } from "effect"
import * as Devices from "../../src/Devices.ts"
import { isFull } from "./support/full.ts"

const bytesOf = (words: Uint32Array | Float32Array): Uint8Array =>
  new Uint8Array(words.buffer, words.byteOffset, words.byteLength)

/** The program of a vocabulary on the device at hand: a function like `Sampler.sample`, of what a mask leaves if there is one. */
const sampler = Effect.fn(function*(
  vocabulary: number,
  cuts: SampleProgram.Cuts | "greedy",
  allowed: SampleProgram.Allowed
) {
  const device = yield* Device
  const jit = yield* Jit
  const { ids } = SampleProgram
  const logits = yield* device.allocate(4 * vocabulary, "logits")
  const token = yield* device.allocate(4, "token")
  const rule = yield* device.allocate(4 * SampleProgram.ruleWords * SampleProgram.mostDraws, "rules")
  const table = yield* device.allocate(4 * Tables.words, "table")
  const bits = yield* device.allocate(4 * SampleProgram.maskWords(vocabulary), "mask")
  yield* device.write(table, bytesOf(Tables.shared()))
  const buffers = new Map([
    [ids.logits, logits],
    [ids.token, token],
    [ids.rule, rule],
    [ids.table, table],
    [ids.mask, bits]
  ])
  const program = cuts === "greedy"
    ? SampleProgram.greedy(vocabulary, allowed)
    : SampleProgram.make(vocabulary, cuts, allowed)
  const prepared = yield* jit.prepare(program.sink, buffers)
  return Effect.fnUntraced(function*(
    row: Float32Array,
    settings: Sampler.Settings,
    words: Random.Words,
    mask?: Uint32Array
  ) {
    yield* device.write(logits, bytesOf(row))
    if (mask !== undefined) yield* device.write(bits, bytesOf(mask))
    yield* device.write(rule, bytesOf(SampleProgram.ruleOf(settings, words)), 4 * SampleProgram.ruleWords * draw)
    yield* prepared.run(ownOf(prepared, { draw }))
    const read = yield* device.read(token)
    return new DataView(read.buffer, read.byteOffset).getUint32(0, true)
  })
})

/** One of the draws that may be submitted together. */
const draw = 3

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
      return x < 0.3 ? -Infinity : x < 0.32 ? -0 : x < 0.34 ? 1e-40 : 6 * next()
    }),
  wide: (next, length) => Float32Array.from({ length }, () => 3e38 * (2 * next() - 1)),
  subnormal: (next, length) => Float32Array.from({ length }, () => 1e-39 * next())
}

/** Rows that are no distribution: nothing is drawn from them, on no device. */
const invalid: Readonly<Record<string, (next: () => number, length: number) => Float32Array>> = {
  "a NaN": (next, length) => one(next, length, NaN),
  // the one that x86 makes has a sign
  "a NaN with a sign": (next, length) => one(next, length, new Float32Array(Uint32Array.of(0xffc00000).buffer)[0]!),
  "an infinity": (next, length) => one(next, length, Infinity),
  "the largest float": (next, length) => one(next, length, Sampler.largestFloat),
  "no number": (_, length) => new Float32Array(length).fill(NaN),
  "nothing above -Infinity": (_, length) => new Float32Array(length).fill(-Infinity)
}

const one = (next: () => number, length: number, value: number): Float32Array => {
  const row = Float32Array.from({ length }, () => 12 * next() - 3)
  row[Math.floor(next() * length)] = value
  return row
}

/** A mask with a share of the tokens, at least one of them. */
const maskOf = (next: () => number, length: number, share: number): Uint32Array => {
  const mask = new Uint32Array(SampleProgram.maskWords(length))
  const allow = (id: number) => {
    mask[id >>> 5]! |= 1 << (id & 31)
  }
  allow(Math.floor(next() * length))
  for (let id = 0; id < length; id++) if (next() < share) allow(id)
  return mask
}

const settings = (next: () => number, { topK, topP }: SampleProgram.Cuts, length: number): Sampler.Settings => ({
  temperature: [0.01, 0.3, 0.7, 1, 1.5, 40, 1e-30, 1e30][Math.floor(8 * next())]!,
  topK: topK ? [2, 3, 40, 256, 257, length, length + 5][Math.floor(7 * next())]! : 0,
  topP: topP ? [1e-7, 0.01, 0.5, 0.9, 0.99, 0.9999][Math.floor(6 * next())]! : 1,
  minP: [0, 0, 0.001, 0.05, 0.5, 1][Math.floor(6 * next())]!,
  seed: 0
})

const everyCut = [[false, false], [true, false], [false, true], [true, true]].map(([topK, topP]) => ({
  topK: topK!,
  topP: topP!
}))

const test = (choice: Devices.Choice, lengths: ReadonlyArray<number>, rounds: number, cutsOf = everyCut) =>
  layer(Devices.layer(choice), { excludeTestServices: true })((it) => {
    for (const length of lengths) {
      for (const cuts of ["greedy", ...cutsOf] as const) {
        const said = cuts === "greedy" ? cuts : `top-k ${cuts.topK}, top-p ${cuts.topP}`
        for (const allowed of length === 4100 || length === 1 ? ["all"] as const : ["all", "masked"] as const) {
          it.effect(`vocabulary ${length}, ${said}, ${allowed}: the token of the host`, () =>
            Effect.gen(function*() {
              const sample = yield* sampler(length, cuts, allowed)
              const next = numbers(length)
              for (const [name, make] of Object.entries({ ...rows, ...invalid })) {
                for (let round = 0; round < rounds; round++) {
                  const row = make(next, length)
                  const given = cuts === "greedy" ? Sampler.greedy : settings(next, cuts, length)
                  const words: Random.Words = Random.words(round, length)
                  const mask = allowed === "masked" ? maskOf(next, length, [0, 0.03, 0.6][round % 3]!) : undefined
                  const isValid = Sampler.invalidRow(row, length, 0) === undefined
                  const expected = isValid
                    ? Sampler.sample(mask === undefined ? row : Shaping.masked(row, mask), given, words)
                    : undefined
                  if (name in invalid) assert.isUndefined(expected)
                  const found = yield* sample(row, given, words, mask)
                  const message = `${name} ${round} ${JSON.stringify(given)}`
                  // topK beyond the vocabulary and the like are ordinary
                  if (expected === undefined) assert.isAtLeast(found, length, message)
                  else assert.strictEqual(found, expected, message)
                }
              }
            }).pipe(Effect.scoped))
        }
      }
    }
  })

describe("on the reference device", () => test("reference", [37], 2))
describe("on wasm", () => test("wasm", [1, 1000, 4100, 8192], 6))
describe.skipIf((await availableAdapter()) === undefined)(
  "on WebGPU",
  () => test("webgpu", [8192], 1, isFull ? everyCut : everyCut.slice(-1))
)
