/** The programs of a prediction block: tokens and states in, a guess and what stands in for its state out, the block's cache extended. */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type { Prediction as Block } from "@tg/model-parts/Family"
import * as Order from "@tg/model-parts/Order"
import * as Prediction from "@tg/model-parts/Prediction"
import { piece } from "@tg/model-parts/Attention"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor, variable } from "@tg/tensor/Tensor"
import { mostDrafts } from "./DraftLength.ts"
import { likeliest } from "./Likeliest.ts"
import { cacheRows, hostInputs, ids, type ModelShape, statesOf, type StepShape } from "./StepProgram.ts"

/**
 * Ids of buffers that differ from those of steps: guesses in order, the row that stands in for the state of the last of them, the
 * block's cache. The weights follow.
 */
export const predictionIds = {
  drafts: ids.next,
  row: ids.logits,
  cache: ids.firstCache,
  firstWeight: ids.firstCache + 1
} as const

/** Guesses that there is room for. */
export const draftRoom = mostDrafts + 1

/** What tells these programs apart. */
export type PredictionShape = Omit<StepShape, "rows" | "states">

/** A model and its prediction block. */
export interface Predicting {
  readonly model: Pick<ModelShape, "config" | "inputs">
  readonly block: Block
}

/** Buffers that every one of the programs has. */
const storage = (arena: Arena, { block, model: { config } }: Predicting, { cache, context }: PredictionShape) => ({
  drafts: buffer(arena, predictionIds.drafts, { shape: [draftRoom], dtype: DType.u32, label: "drafts" }),
  row: buffer(arena, predictionIds.row, { shape: [1, config.embedding], dtype: DType.f32, label: "hidden" }),
  cache: buffer(arena, predictionIds.cache, {
    ...block.cache({ type: cache, context: cacheRows(context) }),
    label: "cache_mtp"
  }),
  buffers: weightBuffers(arena, { all: block.weights }, predictionIds.firstWeight),
  startPos: variable(arena, "startPos", 0, context - 1)
})

/** Leaves a guess, and what stands in for its state. */
const left = (
  { drafts, row }: Pick<ReturnType<typeof storage>, "drafts" | "row">,
  { effects, hidden, logits }: Prediction.PredictionOutput,
  at: Tensor | number
): Program.TensorProgram =>
  Program.make([
    Program.assign(drafts.slice(0, at, 1), likeliest(logits).label("sample")),
    Program.assign(row, hidden),
    ...effects
  ])

/** Takes tokens behind states of the model, and leaves the first guess behind the last of them. */
export const readProgram = (predicting: Predicting, shape: PredictionShape): Program.TensorProgram => {
  const { block, model } = predicting
  const { activations, cache, chunk, context, isWhole = chunk === 1, order, profile } = shape
  const arena = new Arena()
  const isBatch = order === "features"
  const count = variable(arena, "T", 1, chunk)
  const tiles = variable(arena, "tiles", 1, Order.roomFor(chunk, profile) / Order.tileTokens)
  const keys = variable(arena, "pieces", 1, cacheRows(context) / piece).mul(piece)
  const most = isBatch ? Order.wholeTiles(chunk) : chunk
  const length = isBatch ? tiles.mul(Order.tileTokens) : isWhole ? chunk : count
  const { buffers, cache: own, drafts, row, startPos } = storage(arena, predicting, shape)
  const tokens = buffer(arena, ids.tokens, { shape: [most], dtype: DType.u32, label: "tokens" }).slice(0, 0, length)
  const states = buffer(arena, ids.states, { ...statesOf(model.config, { cache, context }), label: "states" })
  const { embedding } = model.config
  const made = block.forward({
    activations,
    profile,
    buffers,
    startPos,
    cache: own,
    tokens,
    ...hostInputs(arena, model, shape),
    hidden: Prediction.before(states, { embedding, first: startPos, length: tokens.dim(0) }),
    rows: "last",
    count: isWhole && chunk > 1 ? count : undefined,
    batch: isBatch ? { tiles, count, keys } : undefined
  })
  return left({ drafts, row }, made, 0)
}

/** Takes guess number `guess` behind the row that stands in for a state, and leaves the next one. */
export const guessProgram = (predicting: Predicting, shape: PredictionShape): Program.TensorProgram => {
  const { activations, profile } = shape
  const arena = new Arena()
  const { buffers, cache, drafts, row, startPos } = storage(arena, predicting, shape)
  const guess = variable(arena, "guess", 0, draftRoom - 2)
  const made = predicting.block.forward({
    activations,
    profile,
    buffers,
    startPos,
    cache,
    tokens: drafts.slice(0, guess, 1),
    ...hostInputs(arena, predicting.model, shape),
    hidden: row,
    rows: "last"
  })
  return left({ drafts, row }, made, guess.add(1))
}
