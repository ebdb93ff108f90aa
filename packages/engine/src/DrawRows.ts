/** Draws of several rows on a device: the programs of `SampleProgram.ofRows`, bound to the logits of a step. */
import type { JitError } from "@tg/jit/Jit"
import { Device, type DeviceBuffer, type DeviceError, type Work } from "@tg/runtime/Device"
import { Effect } from "effect"
import { prepared } from "./Prepared.ts"
import * as Random from "./Random.ts"
import * as SampleProgram from "./SampleProgram.ts"
import * as Sampler from "./Sampler.ts"
import * as Tables from "./SamplerTables.ts"
import * as TokenRing from "./TokenRing.ts"
import { bytesOf } from "./Words.ts"

/** How the token of a row is drawn. */
export interface RowDraw {
  readonly sampling: Sampler.Settings
  /** Its place in the text. */
  readonly position: number
  /** One bit per token: those that may be drawn. */
  readonly mask?: Uint32Array | undefined
}

/** Whether it is the likeliest token of all. */
export const isPlain = ({ mask, sampling }: RowDraw): boolean => mask === undefined && Sampler.isGreedy(sampling)

/** The buffers of a step: `most` rows of logits, and a ring of tokens. */
export interface Rows {
  readonly logits: DeviceBuffer
  readonly tokens: DeviceBuffer
  readonly ring: TokenRing.TokenRing
  readonly vocabulary: number
  readonly most: number
}

/** Bytes that draws of so many rows read beside logits: rules, tables, masks. */
export const inputBytes = (vocabulary: number, most: number): number =>
  4 * (most * (SampleProgram.ruleWords + SampleProgram.maskWords(vocabulary)) + Tables.words)

/** The program that draws rows like these; nothing is drawn in those without a draw. */
const shapeOf = (rows: ReadonlyArray<RowDraw | undefined>) => {
  const cuts = rows.flatMap((row) =>
    row === undefined || Sampler.isGreedy(row.sampling) ? [] : [SampleProgram.cutsOf(row.sampling)]
  )
  return {
    cuts: { topK: cuts.some(({ topK }) => topK), topP: cuts.some(({ topP }) => topP) },
    allowed: rows.some((row) => row?.mask !== undefined) ? "masked" : "all"
  } as const
}

/** A mask for each row, one behind the other. What a mask does not have it does not allow; without one, all is allowed. */
const masksOf = (rows: ReadonlyArray<RowDraw | undefined>, words: number): Uint32Array => {
  const masks = new Uint32Array(rows.length * words)
  for (const [i, row] of rows.entries()) {
    const mask = row?.mask
    if (mask === undefined) masks.fill(2 ** 32 - 1, i * words, (i + 1) * words)
    else masks.set(mask.subarray(0, words), i * words)
  }
  return masks
}

const rulesOf = (rows: ReadonlyArray<RowDraw | undefined>): Uint32Array => {
  const rules = new Uint32Array(rows.length * SampleProgram.ruleWords)
  for (const [i, row] of rows.entries()) {
    const { position, sampling } = row ?? { position: 0, sampling: Sampler.greedy }
    rules.set(
      SampleProgram.ruleAmong(sampling, Random.words(sampling.seed, position)),
      i * SampleProgram.ruleWords
    )
  }
  return rules
}

/**
 * What draws the first rows, at least one, of a step: in its place of the ring there is then a token for each, `vocabulary` or above where
 * the row has none.
 */
export const make = Effect.fnUntraced(function*({ logits, most, ring, tokens, vocabulary }: Rows) {
  const device = yield* Device
  const words = SampleProgram.maskWords(vocabulary)
  const table = yield* device.allocate(4 * Tables.words, "tables")
  const rule = yield* device.allocate(4 * most * SampleProgram.ruleWords, "rule")
  const mask = yield* device.allocate(4 * most * words, "mask")
  yield* device.write(table, bytesOf(Tables.shared()))
  const { ids } = SampleProgram
  const bound = new Map([
    [ids.logits, logits],
    [ids.token, tokens],
    [ids.rule, rule],
    [ids.table, table],
    [ids.mask, mask]
  ])
  const once = yield* prepared(bound)
  return Effect.fnUntraced(
    function*(
      rows: ReadonlyArray<RowDraw | undefined>,
      step: number
    ): Effect.fn.Return<Work, JitError | DeviceError> {
      const shape = shapeOf(rows)
      const replay = yield* once(
        JSON.stringify(shape),
        () => SampleProgram.ofRows(vocabulary, { most, ring }, shape)
      )
      yield* device.write(rule, bytesOf(rulesOf(rows)))
      if (shape.allowed === "masked") yield* device.write(mask, bytesOf(masksOf(rows, words)))
      return { replay, vars: { R: rows.length, drawn: TokenRing.placeOf(ring, step) } }
    }
  )
})
