/** The programs of steps over a pool: of a few tokens of any conversations, and of many tokens of one. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { type Attend, piece } from "@tg/model-parts/Attention"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type { CacheType } from "@tg/model-parts/Halves"
import * as Order from "@tg/model-parts/Order"
import type { Activations } from "@tg/model-parts/Product"
import * as Program from "@tg/tensor/Program"
import { buffer, scalar, type Tensor, variable } from "@tg/tensor/Tensor"
import { likeliest } from "./Likeliest.ts"
import { pagesFor } from "./Pages.ts"
import { ids, inputId, type ModelShape } from "./StepProgram.ts"

/** Ids of the buffers that say where tokens stand; the others are those of `StepProgram`. */
export const placeIds = { position: 10, row: 11, pieces: 12, wanted: 13 } as const

/** Who takes tokens from logits. */
export type Draws = "device" | "host"

/** What tells programs of a pool apart. */
export interface PoolShape {
  /** Tokens that a conversation may have. */
  readonly context: number
  /** Pieces of the pool. */
  readonly pieces: number
  /** Tokens of a step at most. */
  readonly tokens: number
  /** Rows of logits of a step at most. */
  readonly rows: number
  /** Whether every step computes just so many tokens and rows, of which the last ones may only fill up. */
  readonly isWhole: boolean
  /** Whether the likeliest token of each row is left beside its logits. */
  readonly draws: Draws
  readonly cache: CacheType
  readonly activations: Activations
  /** The device it is for. */
  readonly profile?: DeviceProfile | undefined
}

/**
 * Logits that are left in a buffer for some rows; where the device draws, the likeliest token of each, too. `DrawRows`
 * draws from the same buffer what is not the likeliest.
 */
const left = (
  arena: Arena,
  logits: Tensor,
  { config }: ModelShape,
  { draws, rows: most }: Pick<PoolShape, "draws" | "rows">
): ReadonlyArray<Tensor> => {
  const first = (x: Tensor): Tensor => x.slice(0, 0, logits.dim(0))
  const rows = buffer(arena, ids.logits, { shape: [most, config.vocabulary], dtype: DType.f32, label: "logits" })
  const write = Program.assign(first(rows), logits)
  if (draws === "host") return [write]
  const tokens = buffer(arena, ids.next, { shape: [most], dtype: DType.u32, label: "next" })
  const found = likeliest(first(Program.after(rows, [write])))
  return [write, Program.assign(first(tokens), found.label("sample"))]
}

/** The storage of a program for up to `most` tokens, and what the first of them read of it. */
const storageOf = (
  arena: Arena,
  model: ModelShape,
  { cache, most, pieces: total }: Pick<PoolShape, "cache" | "pieces"> & { readonly most: number }
) => {
  const numbers = (id: number, label: string, shape: ReadonlyArray<number>) =>
    buffer(arena, id, { shape, dtype: DType.i32, label })
  return {
    numbers,
    // rings are for one conversation: a pool keeps all positions
    caches: model.caches({ type: cache, context: piece * total }).map(({ dtype, shape: [, words] }, i) =>
      buffer(arena, ids.firstCache + i, { shape: [piece * total, words!], dtype, label: `cache_${i}` })
    ),
    buffers: weightBuffers(arena, model.weights, ids.firstCache + model.config.layers),
    startPos: scalar(arena, 0),
    /** What the host says of so many tokens. */
    ofTokens: (count: Tensor | number) => ({
      tokens: buffer(arena, ids.tokens, { shape: [most], dtype: DType.u32, label: "tokens" }).slice(0, 0, count),
      inputs: model.inputs.map(({ label, row }, i) =>
        buffer(arena, inputId(i), { shape: [most, ...row], dtype: DType.f32, label }).slice(0, 0, count)
      ),
      position: numbers(placeIds.position, "position", [most]).slice(0, 0, count),
      row: numbers(placeIds.row, "row", [most]).slice(0, 0, count)
    })
  }
}

/**
 * Tokens in, logits behind some of them out, and a row of the pool for each. Where a token stands is data: its position, its row,
 * the pieces that hold its conversation. Variables: T tokens, R rows of logits, `pieces` of the conversation that has most.
 */
export const poolProgram = (model: ModelShape, shape: PoolShape): Program.TensorProgram => {
  const { activations, context, isWhole, profile, rows: mostRows, tokens: most } = shape
  const arena = new Arena()
  const count = isWhole ? most : variable(arena, "T", 1, most)
  const rows = isWhole ? mostRows : variable(arena, "R", 1, mostRows)
  const { buffers, caches, numbers, ofTokens, startPos } = storageOf(arena, model, { ...shape, most })
  const { inputs, position, row, tokens } = ofTokens(count)
  const columns = pagesFor(context)
  const pieces = numbers(placeIds.pieces, "pieces", [most, columns]).slice(0, 0, count)
    .slice(1, 0, variable(arena, "pieces", 1, columns))
  const { effects, logits } = model.forward({
    activations,
    profile,
    caches,
    buffers,
    startPos,
    tokens,
    inputs,
    places: { position, row, pieces },
    rows: numbers(placeIds.wanted, "wanted", [mostRows]).slice(0, 0, rows)
  })
  return Program.make([...left(arena, logits, model, shape), ...effects])
}

/** What tells programs apart that take many tokens of one conversation. */
export interface BatchShape extends Omit<PoolShape, "isWhole" | "rows"> {
  /** What tokens attend to where a cache holds latents. */
  readonly attend: Attend
}

/**
 * The program of a prompt's batch: many tokens of one conversation, stored feature by feature, and the logits behind the last one.
 * They are computed as by a session, whose cache lies in one piece: the rows of the conversation are laid behind one another first.
 * Variables: T tokens that count, in `tiles`, and `pieces` of the conversation.
 */
export const batchProgram = (model: ModelShape, shape: BatchShape): Program.TensorProgram => {
  const { activations, attend, context, profile } = shape
  const arena = new Arena()
  const most = Order.wholeTiles(shape.tokens)
  const columns = pagesFor(context)
  const tiles = variable(arena, "tiles", 1, most / Order.tileTokens)
  const pieces = variable(arena, "pieces", 1, columns)
  const { buffers, caches, numbers, ofTokens, startPos } = storageOf(arena, model, { ...shape, most })
  const { inputs, position, row, tokens } = ofTokens(tiles.mul(Order.tileTokens))
  const { effects, logits } = model.forward({
    activations,
    profile,
    caches,
    buffers,
    startPos,
    tokens,
    inputs,
    places: { position, row, pieces: numbers(placeIds.pieces, "pieces", [columns]).slice(0, 0, pieces) },
    rows: "last",
    batch: { tiles, count: variable(arena, "T", 1, shape.tokens), keys: pieces.mul(piece), attend }
  })
  return Program.make([...left(arena, logits, model, { ...shape, rows: 1 }), ...effects])
}
