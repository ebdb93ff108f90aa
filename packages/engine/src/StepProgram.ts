/** The programs that a session runs: tokens in, logits or a token out, the cache extended. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { piece, wholePieces } from "@tg/model-parts/Attention"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type { Model, Storage } from "@tg/model-parts/Family"
import type { CacheType } from "@tg/model-parts/Halves"
import * as Order from "@tg/model-parts/Order"
import * as Prediction from "@tg/model-parts/Prediction"
import type { Activations } from "@tg/model-parts/Product"
import * as Program from "@tg/tensor/Program"
import { buffer, variable } from "@tg/tensor/Tensor"
import { likeliest } from "./Likeliest.ts"
import type * as Spans from "./Spans.ts"

/** Logits of every token of a step, or of its last one. */
export type Rows = "all" | "last"

/** Positions that a cache has room for, in whole pieces: a last tile may stand beyond the context. */
export const cacheRows = (context: number): number => wholePieces(context + Order.tileTokens - 1)

/** Ids of the buffers that steps read and leave: `next` is the token of decoding. The weights follow the caches. */
export const ids = { tokens: 0, logits: 2, next: 3, states: 14, firstCache: 16 } as const

/** The id of what the host computes for each position, counted from 0. */
export const inputId = (input: number): number => input === 0 ? 1 : 3 + input

/** What tells steps apart. */
export interface StepShape {
  readonly rows: Rows
  /** Tokens of a step at most. */
  readonly chunk: number
  /** Whether every step computes just so many, of which the last ones may only fill up; in the order of tokens. It does not, if it is not said. */
  readonly isWhole?: boolean | undefined
  readonly context: number
  /** Where steps stand; anywhere in the context, if it is not said. */
  readonly span?: Spans.Span | undefined
  readonly cache: CacheType
  /** `float` if it is not said. */
  readonly activations?: Activations | undefined
  readonly order: Order.Order
  /** The device it is for: what is stored of a few tokens, and how experts are computed, is a matter of its quantities. */
  readonly profile?: DeviceProfile | undefined
  /** Whether states are kept, for the model's prediction block; they are not, if it is not said. */
  readonly states?: boolean | undefined
}

/** Storage of the states of a context. */
export const statesOf = (
  { embedding }: Pick<Model["config"], "embedding">,
  { cache, context }: Pick<StepShape, "cache" | "context">
): Storage => Prediction.storage(embedding, { positions: cacheRows(context), type: cache })

/** What a program is built from. */
export type ModelShape = Pick<Model, "caches" | "config" | "forward" | "inputs" | "weights">

/** Storage of the program, apart from what a step reads and gives. */
const storage = (
  arena: Arena,
  { caches, config, weights }: ModelShape,
  { cache, context, span, states = false }: Pick<StepShape, "cache" | "context" | "span" | "states">
) => ({
  states: states ? buffer(arena, ids.states, { ...statesOf(config, { cache, context }), label: "states" }) : undefined,
  caches: caches({ type: cache, context: cacheRows(context) }).map((storage, i) =>
    buffer(arena, ids.firstCache + i, { ...storage, label: `cache_${i}` })
  ),
  buffers: weightBuffers(arena, weights, ids.firstCache + config.layers),
  startPos: variable(arena, "startPos", span?.from ?? 0, (span?.to ?? context) - 1)
})

/** What the host computes for each position of the context: a step finds its own there, so nothing is written for it. */
export const hostInputs = (
  arena: Arena,
  { inputs }: Pick<ModelShape, "inputs">,
  { context }: Pick<StepShape, "context">
) => ({
  inputRows: "positions" as const,
  inputs: inputs.map(({ label, row }, i) =>
    buffer(arena, inputId(i), { shape: [cacheRows(context), ...row], dtype: DType.f32, label })
  )
})

/** Values of the variables of a step program. */
export const variablesOf = (order: Order.Order, start: number, length: number): Readonly<Record<string, number>> =>
  order === "tokens" ? { T: length, startPos: start } : {
    T: length,
    startPos: start,
    tiles: Order.wholeTiles(length) / Order.tileTokens,
    pieces: Math.ceil((start + Order.wholeTiles(length)) / piece)
  }

/** The program of one step: tokens in, logits out, the cache extended. */
export const stepProgram = (
  model: ModelShape,
  { activations, cache, chunk, context, isWhole = chunk === 1, order, profile, rows, span, states }: StepShape
): Program.TensorProgram => {
  const { config } = model
  const arena = new Arena()
  const count = variable(arena, "T", 1, chunk)
  const isBatch = order === "features"
  const most = isBatch ? Order.wholeTiles(chunk) : chunk
  // its greatest value says how far rows are apart; a step takes no more tokens than `most`
  const tiles = variable(arena, "tiles", 1, Order.roomFor(chunk, profile) / Order.tileTokens)
  const keys = variable(arena, "pieces", 1, cacheRows(context) / piece).mul(piece)
  const length = isBatch ? tiles.mul(Order.tileTokens) : isWhole ? chunk : count
  const { effects, logits } = model.forward({
    activations,
    profile,
    ...storage(arena, model, { cache, context, span, states }),
    tokens: buffer(arena, ids.tokens, { shape: [most], dtype: DType.u32, label: "tokens" }).slice(0, 0, length),
    ...hostInputs(arena, model, { context }),
    rows,
    count: isWhole && chunk > 1 ? count : undefined,
    batch: isBatch ? { tiles, count, keys } : undefined
  })
  const output = buffer(arena, ids.logits, {
    shape: [rows === "all" ? most : 1, config.vocabulary],
    dtype: DType.f32,
    label: "logits"
  })
  const target = rows === "all" ? output.slice(0, 0, length) : output
  return Program.make([Program.assign(target, logits), ...effects])
}

/**
 * The program of decoding: takes a token from a buffer, extends the cache, and leaves the likeliest next token there, or the
 * logits in a buffer of their own.
 */
export const decodeProgram = (
  model: ModelShape,
  { activations, cache, context, profile, span, states }: Omit<StepShape, "rows" | "chunk" | "order">,
  result: "token" | "logits" = "token"
): Program.TensorProgram => {
  const { config } = model
  const arena = new Arena()
  const token = buffer(arena, ids.next, { shape: [1], dtype: DType.u32, label: "next" })
  const { effects, logits } = model.forward({
    activations,
    profile,
    ...storage(arena, model, { cache, context, span, states }),
    tokens: token,
    ...hostInputs(arena, model, { context }),
    rows: "last"
  })
  if (result === "token") return Program.make([Program.assign(token, likeliest(logits).label("sample")), ...effects])
  const output = buffer(arena, ids.logits, { shape: [1, config.vocabulary], dtype: DType.f32, label: "logits" })
  return Program.make([Program.assign(output, logits), ...effects])
}
