/** The pages that a device has room for, beside everything else that conversations in one step need. */
import { pagesFor, pageTokens } from "./Pages.ts"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import { Effect } from "effect"
import * as DrawRows from "./DrawRows.ts"
import * as Loader from "./Loader.ts"
import { type DoesNotFit, doesNotFit, type Memory, type Model, mostBytes, plenty, type Setting } from "./MemoryPlan.ts"
import { heldTokens, type PoolOptions } from "./Pool.ts"
import { batchProgram, poolProgram } from "./PoolProgram.ts"
import * as Prompts from "./Prompts.ts"

const sum = (values: ReadonlyArray<number>): number => values.reduce((a, b) => a + b, 0)

/** Words of a row in each block's cache. */
const rowWords = (model: Model, { cache, context }: PoolOptions): number =>
  sum(model.caches({ type: cache, context }).map(({ shape }) => Number(shape[1])))

/** Without what steps and loading need. */
const stored = (model: Model, options: PoolOptions): Memory => ({
  weightBytes: sum(model.weights.all.map(({ layout }) => 4 * layout.words)),
  kvBytes: 4 * pageTokens * options.pages * rowWords(model, options),
  scratchBytes: 0,
  fewBytes: 0,
  ioBytes: 0,
  stagingBytes: 0
})

/** All that a pool takes. Each size of steps has a program with memory of its own, in proportion to its tokens. */
export const memoryOf = (
  model: Model,
  { estimate, profile }: Pick<Setting, "estimate" | "profile">,
  options: PoolOptions
): Effect.Effect<Memory, RangeifyError> =>
  Effect.gen(function*() {
    const { batch, pages: pieces, sizes, tokens, ...others } = options
    const shape = { ...others, profile, pieces }
    const few = yield* estimate(
      poolProgram(model, { ...shape, tokens, rows: tokens, isWhole: sizes.length > 0 }).sink
    )
    const attends = batch === undefined ? [] : Prompts.attendsOf(model, batch)
    const batches = yield* Effect.forEach(attends, (attend) =>
      estimate(batchProgram(model, { ...shape, attend, tokens: batch!.tokens }).sink))
    const inputs = sum(model.inputs.map(({ row }) =>
      row.reduce((n, d) => n * d, 1)
    ))
    const { vocabulary } = model.config
    // of each token that it is, where it stands, and what the host computes for it; pages, which are wanted, what is drawn, logits
    const numbers = heldTokens(options) * (3 + inputs) + tokens * (2 + pagesFor(options.context) + vocabulary)
    const widest = Math.max(
      ...model.caches({ type: options.cache, context: pageTokens }).map(({ shape }) => Number(shape[1]))
    )
    return {
      ...stored(model, options),
      scratchBytes: sum(batches.flatMap(({ blocks }) => blocks)),
      fewBytes: sum(few.blocks) * Math.max(1, sum(sizes) / tokens),
      ioBytes: 4 * numbers + 4 * pageTokens * widest +
        (options.draws === "host" ? 0 : DrawRows.inputBytes(vocabulary, tokens)),
      stagingBytes: yield* Loader.stagingBytes(model.weights.all.map(({ layout }) => layout), profile, estimate)
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
