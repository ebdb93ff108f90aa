/** The program of a step that takes tokens of several conversations, whose caches are pieces of one pool. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { piece } from "@tg/model-parts/Attention"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type { CacheType } from "@tg/model-parts/Halves"
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

/**
 * Tokens in, logits behind some of them out, and a row of the pool for each. Where a token stands is data: its position, its row,
 * the pieces that hold its conversation. Variables: T tokens, R rows of logits, `pieces` of the conversation that has most.
 */
export const poolProgram = (model: ModelShape, shape: PoolShape): Program.TensorProgram => {
  const { activations, cache, context, isWhole, profile, rows: mostRows, tokens: mostTokens } = shape
  const { config } = model
  const arena = new Arena()
  const tokens = isWhole ? mostTokens : variable(arena, "T", 1, mostTokens)
  const rows = isWhole ? mostRows : variable(arena, "R", 1, mostRows)
  const pieces = variable(arena, "pieces", 1, pagesFor(context))
  const numbers = (id: number, label: string, most: number, columns: ReadonlyArray<number> = []) =>
    buffer(arena, id, { shape: [most, ...columns], dtype: DType.i32, label })
  const ofTokens = (id: number, label: string) => numbers(id, label, mostTokens).slice(0, 0, tokens)
  const { effects, logits } = model.forward({
    activations,
    profile,
    // rings are for one conversation: a pool keeps all positions
    caches: model.caches({ type: cache, context: piece * shape.pieces }).map(({ dtype, shape: [, words] }, i) =>
      buffer(arena, ids.firstCache + i, { shape: [piece * shape.pieces, words!], dtype, label: `cache_${i}` })
    ),
    buffers: weightBuffers(arena, model.weights, ids.firstCache + config.layers),
    startPos: scalar(arena, 0),
    tokens: buffer(arena, ids.tokens, { shape: [mostTokens], dtype: DType.u32, label: "tokens" }).slice(0, 0, tokens),
    inputs: model.inputs.map(({ label, row }, i) =>
      buffer(arena, inputId(i), { shape: [mostTokens, ...row], dtype: DType.f32, label }).slice(0, 0, tokens)
    ),
    places: {
      position: ofTokens(placeIds.position, "position"),
      row: ofTokens(placeIds.row, "row"),
      pieces: numbers(placeIds.pieces, "pieces", mostTokens, [pagesFor(context)]).slice(0, 0, tokens)
        .slice(1, 0, pieces)
    },
    rows: numbers(placeIds.wanted, "wanted", mostRows).slice(0, 0, rows)
  })
  return Program.make([...left(arena, logits, model, shape), ...effects])
}
