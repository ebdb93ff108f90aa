/** The pages that a device has room for, beside everything else that conversations in one step need. */
import { pagesFor, pageTokens } from "./Pages.ts"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import { Effect, Result } from "effect"
import * as DrawRows from "./DrawRows.ts"
import * as Loader from "./Loader.ts"
import {
  type DoesNotFit,
  doesNotFit,
  type Memory,
  type Model,
  mostBytes,
  plenty,
  type Setting,
  weightsOf
} from "./MemoryPlan.ts"
import { heldTokens, type PoolOptions, ringOf, storedIn } from "./Pool.ts"
import { guessProgram, readProgram } from "./PoolPredictionProgram.ts"
import { batchProgram, poolProgram } from "./PoolProgram.ts"
import { draftRoom } from "./PredictionProgram.ts"
import { cacheRows } from "./StepProgram.ts"
import * as TokenRing from "./TokenRing.ts"

const sum = (values: ReadonlyArray<number>): number => values.reduce((a, b) => a + b, 0)

/** Words of a row in each block's cache. */
const rowWords = (model: Model, options: PoolOptions): number =>
  sum(storedIn(model, options).map(({ shape }) => Number(shape[1])))

/** Without what steps and loading need. */
const stored = (model: Model, options: PoolOptions): Memory => ({
  weightBytes: sum(weightsOf(model, options.predicts === true).map(({ layout }) => 4 * layout.words)),
  kvBytes: 4 * pageTokens * options.pages * rowWords(model, options),
  scratchBytes: 0,
  fewBytes: 0,
  ioBytes: 0,
  stagingBytes: 0
})

/** What guesses take: memory of the largest programs, and words of what goes in and out. */
const guessing = Effect.fnUntraced(function*(
  model: Model,
  { estimate, profile }: Pick<Setting, "estimate" | "profile">,
  { activations, cache, context, pages: pieces, sizes, tokens: most }: PoolOptions
) {
  const block = Result.getOrThrow(model.prediction!)
  const shape = { activations, cache, context, pieces, profile, most, size: sizes.at(-1) }
  const programs = [readProgram({ model, block }, shape), guessProgram({ model, block }, shape)]
  const made = yield* Effect.forEach(programs, ({ sink }) => estimate(sink))
  return {
    blocks: sum(made.flatMap(({ blocks }) => blocks)),
    numbers: most * (5 + pagesFor(context) + 3 * draftRoom + model.config.embedding)
  }
})

/** All that a pool takes. Each size of steps has a program with memory of its own, in proportion to its tokens. */
export const memoryOf = (
  model: Model,
  { estimate, profile }: Pick<Setting, "estimate" | "profile">,
  options: PoolOptions
): Effect.Effect<Memory, RangeifyError> =>
  Effect.gen(function*() {
    const { batch, pages: pieces, predicts: states = false, sizes, tokens, ...others } = options
    const ring = ringOf(options)
    const shape = { ...others, profile, pieces, ring, states }
    const few = yield* estimate(
      poolProgram(model, { ...shape, tokens, rows: tokens, isWhole: sizes.length > 0 }).sink
    )
    const batches = batch === undefined
      ? []
      : (yield* estimate(batchProgram(model, { ...shape, ...batch, isWhole: sizes.length > 0 }).sink)).blocks
    const inputs = sum(model.inputs.map(({ row }) => row.reduce((n, d) => n * d, 1)))
    const { vocabulary } = model.config
    // which each token is, where it stands, where it lies; what the host computes for each position; pages, which are wanted, logits
    const numbers = TokenRing.size(ring) + 4 * heldTokens(options) + inputs * cacheRows(options.context) +
      tokens * (2 + pagesFor(options.context) + vocabulary)
    const widest = Math.max(...storedIn(model, options).map(({ shape }) => Number(shape[1])))
    const guesses = states ? yield* guessing(model, { estimate, profile }, options) : { blocks: 0, numbers: 0 }
    return {
      ...stored(model, options),
      scratchBytes: sum(batches),
      fewBytes: (sum(few.blocks) + guesses.blocks) * Math.max(1, sum(sizes) / tokens),
      ioBytes: 4 * (numbers + guesses.numbers) + 4 * pageTokens * widest +
        (options.draws === "host" ? 0 : DrawRows.inputBytes(vocabulary, tokens)),
      stagingBytes: yield* Loader.stagingBytes(weightsOf(model, states).map(({ layout }) => layout), profile, estimate)
    }
  })

/** As many of the pages as there is room for; a device without room for one whole conversation is refused. */
export const fitting = (
  model: Model,
  setting: Pick<Setting, "estimate" | "profile">,
  options: PoolOptions
): Effect.Effect<number, DoesNotFit | RangeifyError> =>
  Effect.gen(function*() {
    const { memoryBytes } = setting.profile
    if (memoryBytes === undefined || mostBytes(stored(model, options)) < plenty * memoryBytes) return options.pages
    const memory = yield* memoryOf(model, setting, options)
    const pageBytes = memory.kvBytes / options.pages
    const room = Math.floor((memoryBytes - mostBytes({ ...memory, kvBytes: 0 })) / pageBytes)
    const needed = pagesFor(options.context)
    if (room >= needed) return Math.min(options.pages, room)
    const least = { ...memory, kvBytes: needed * pageBytes }
    return yield* doesNotFit(model, { ...setting, ...options }, least)
  })
