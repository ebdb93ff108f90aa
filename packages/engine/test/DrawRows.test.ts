import { describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Device, together } from "@tg/runtime/Device"
import { Effect } from "effect"
import * as DrawRows from "../src/DrawRows.ts"
import * as Random from "../src/Random.ts"
import * as SampleProgram from "../src/SampleProgram.ts"
import * as Sampler from "../src/Sampler.ts"
import { masked } from "../src/Shaping.ts"
import * as TokenRing from "../src/TokenRing.ts"
import { bytesOf, wordsOf } from "../src/Words.ts"
import { wasm } from "./support/devices.ts"

const vocabulary = 1000
const most = 6

/** A number in [0, 1). */
const number = (seed: number, i: number): number => Random.words(seed, i)[0] / 2 ** 32

/** Rows as models give them: some with ties for the first place, with holes, close together, and one that is no distribution. */
const rowOf = (seed: number): Float32Array =>
  Float32Array.from({ length: vocabulary }, (_, i) => {
    const x = number(seed, i)
    return [12 * x - 3, Math.round(3 * x), x < 0.3 ? -Infinity : 6 * x, 1e-39 * x, i === 7 ? NaN : x][seed % 5]!
  })

const settings: ReadonlyArray<Partial<Sampler.Settings>> = [
  {},
  { temperature: 0.8 },
  { temperature: 0.8, topK: 40 },
  { temperature: 1.3, topP: 0.9 },
  { temperature: 0.6, topK: 20, topP: 0.95, minP: 0.05 },
  { temperature: 1, topK: 1 }
]

const maskOf = (seed: number): Uint32Array =>
  Uint32Array.from({ length: SampleProgram.maskWords(vocabulary) }, (_, i) => Random.words(seed, i)[1])

/** What the host takes; the vocabulary where there is nothing to take. */
const expected = (logits: Float32Array, { mask, position, sampling }: DrawRows.RowDraw): number => {
  const isValid = Sampler.invalidRow(logits, vocabulary, 0) === undefined
  const row = mask === undefined ? logits : masked(logits, mask)
  const id = isValid ? Sampler.sample(row, sampling, Random.words(sampling.seed, position)) : undefined
  return id ?? vocabulary
}

describe("draws of several rows on a device", () => {
  it.live("are those of the host, whatever is drawn beside them", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const logits = yield* device.allocate(4 * most * vocabulary, "logits")
      const ring = { given: 5, each: most }
      const tokens = yield* device.allocate(4 * TokenRing.size(ring), "tokens")
      const draw = yield* DrawRows.make({ logits, tokens, ring, vocabulary, most })
      for (let round = 0; round < 18; round++) {
        const count = 1 + round % most
        const values = Array.from({ length: count }, (_, i) => rowOf(round * most + i))
        const isMasked = round % 3 === 0
        const rows = values.map((_, i): DrawRows.RowDraw | undefined =>
          i === 4 ? undefined : {
            sampling: { ...Sampler.greedy, seed: round, ...settings[(round + 5 * i) % settings.length] },
            position: 3 * i,
            mask: isMasked && i % 2 === 0 ? maskOf(round) : undefined
          }
        )
        for (const [i, row] of values.entries()) yield* device.write(logits, bytesOf(row), 4 * i * vocabulary)
        const read = { buffer: tokens, offset: 4 * TokenRing.placeOf(ring, round), bytes: 4 * count }
        const [bytes] = yield* together(device, [yield* draw(rows, round), read])
        const found = wordsOf(bytes!)
        const drawn = rows.flatMap((row, i) => row === undefined ? [] : [Math.min(found[i]!, vocabulary)])
        const wanted = rows.flatMap((row, i) => row === undefined ? [] : [expected(values[i]!, row)])
        assertEquals(drawn, wanted)
      }
    }).pipe(Effect.scoped, Effect.provide(wasm)))
})
