/** The programs of steps over a pool: of a few tokens of any conversations, and of many tokens of prompts. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { piece } from "@tg/model-parts/Attention"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type { CacheType } from "@tg/model-parts/Halves"
import * as Order from "@tg/model-parts/Order"
import * as Prediction from "@tg/model-parts/Prediction"
import type { Activations } from "@tg/model-parts/Product"
import * as Program from "@tg/tensor/Program"
import { buffer, scalar, type Tensor, variable } from "@tg/tensor/Tensor"
import { likeliest } from "./Likeliest.ts"
import { pagesFor } from "./Pages.ts"
import { hostInputs, ids, type ModelShape } from "./StepProgram.ts"
import * as TokenRing from "./TokenRing.ts"

/** Ids of the buffers that say where tokens stand, and where they come from; the others are those of `StepProgram`. */
export const placeIds = { position: 10, row: 11, pieces: 12, wanted: 13, from: 15, among: 8, begin: 9 } as const

/** Storage of the model's states in a pool of so many pages. */
export const statesOf = ({ embedding }: ModelShape["config"], { cache, pieces }: Pick<PoolShape, "cache" | "pieces">) =>
  Prediction.storage(embedding, { positions: piece * pieces, type: cache })

/** The states as programs of a pool have them. */
export const statesIn = (
  arena: Arena,
  { config }: Pick<ModelShape, "config">,
  shape: Pick<PoolShape, "cache" | "pieces">
) => buffer(arena, ids.states, { ...statesOf(config, shape), label: "states" })

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
  /** Where tokens lie. */
  readonly ring: TokenRing.TokenRing
  /** Rows of logits of a step at most. */
  readonly rows: number
  /** Whether every step computes just so many tokens and rows, of which the last ones may only fill up. */
  readonly isWhole: boolean
  /** Whether the likeliest token of each row is left beside its logits. */
  readonly draws: Draws
  readonly cache: CacheType
  readonly activations: Activations
  /** Whether states are kept, for the model's prediction block; they are not, if it is not said. */
  readonly states?: boolean | undefined
  /** The device it is for. */
  readonly profile?: DeviceProfile | undefined
}

/**
 * Logits that are left in a buffer for some rows; where the device draws, the likeliest token of each, too, in the ring of
 * tokens. `DrawRows` draws to the same places what is not the likeliest.
 */
const left = (
  arena: Arena,
  logits: Tensor,
  { config }: ModelShape,
  { draws, ring, rows: most }: Pick<PoolShape, "draws" | "ring" | "rows">
): ReadonlyArray<Tensor> => {
  const count = logits.dim(0)
  const first = (x: Tensor): Tensor => x.slice(0, 0, count)
  const rows = buffer(arena, ids.logits, { shape: [most, config.vocabulary], dtype: DType.f32, label: "logits" })
  const write = Program.assign(first(rows), logits)
  if (draws === "host") return [write]
  const places = TokenRing.drawnIn(TokenRing.bufferOf(arena, ring, ids.tokens), ring, count)
  const found = likeliest(first(Program.after(rows, [write])))
  return [write, Program.assign(places, found.label("sample"))]
}

/** The storage of a program, and what tokens read of it. */
const storageOf = (
  arena: Arena,
  model: ModelShape,
  { cache, context, pieces: total, states = false }: Pick<PoolShape, "cache" | "context" | "pieces" | "states">
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
    states: states ? statesIn(arena, model, { cache, pieces: total }) : undefined,
    ...hostInputs(arena, model, { context }),
    /** Where so many tokens stand, of `most`. */
    standing: (count: Tensor | number, most: number) => ({
      position: numbers(placeIds.position, "position", [most]).slice(0, 0, count),
      row: numbers(placeIds.row, "row", [most]).slice(0, 0, count)
    })
  }
}

/**
 * Tokens in, logits behind some of them out, and a row of the pool for each. Where a token stands is data: its position, its row,
 * the pieces that hold its conversation; and where the device draws, where it lies: another step may have drawn it. Variables: T tokens,
 * R rows of logits, `pieces` of the conversation that has most, `drawn` as in `TokenRing`.
 */
export const poolProgram = (model: ModelShape, shape: PoolShape): Program.TensorProgram => {
  const { activations, context, draws, isWhole, profile, ring, rows: mostRows, tokens: most } = shape
  const arena = new Arena()
  const count = isWhole ? most : variable(arena, "T", 1, most)
  const rows = isWhole ? mostRows : variable(arena, "R", 1, mostRows)
  const { numbers, standing, ...storage } = storageOf(arena, model, shape)
  const columns = pagesFor(context)
  const given = TokenRing.bufferOf(arena, ring, ids.tokens)
  // what a step under way draws need not be a token: its text ends there, and until then it is some token
  const tokens = draws === "host"
    ? given.slice(0, 0, count)
    : given.gather(numbers(placeIds.from, "from", [most]).slice(0, 0, count)).minimum(model.config.vocabulary - 1)
  const pieces = numbers(placeIds.pieces, "pieces", [most, columns]).slice(0, 0, count)
    .slice(1, 0, variable(arena, "pieces", 1, columns))
  const { effects, logits } = model.forward({
    activations,
    profile,
    ...storage,
    tokens,
    places: { ...standing(count, most), pieces },
    rows: numbers(placeIds.wanted, "wanted", [mostRows]).slice(0, 0, rows)
  })
  return Program.make([...left(arena, logits, model, shape), ...effects])
}

/**
 * The program of prompts' batches: many tokens of a few conversations, stored feature by feature, and the logits behind some of them.
 * They are computed as by a session, whose cache lies in one piece: the rows of the conversations are laid behind one another first, and a
 * token does not see those of others. Variables: T tokens that count, in `tiles`, R rows of logits, `pieces` of all conversations, and
 * `drawn` as in `TokenRing`.
 */
export const batchProgram = (model: ModelShape, shape: PoolShape): Program.TensorProgram => {
  const { activations, context, isWhole, profile, rows: mostRows } = shape
  const arena = new Arena()
  const most = Order.wholeTiles(shape.tokens)
  const columns = pagesFor(context)
  const tiles = variable(arena, "tiles", 1, Order.roomFor(most, profile) / Order.tileTokens)
  const pieces = variable(arena, "pieces", 1, columns)
  const count = tiles.mul(Order.tileTokens)
  const rows = isWhole ? mostRows : variable(arena, "R", 1, mostRows)
  const { numbers, standing, ...storage } = storageOf(arena, model, shape)
  const ofTokens = (id: number, label: string): Tensor => numbers(id, label, [most]).slice(0, 0, count)
  const { effects, logits } = model.forward({
    activations,
    profile,
    ...storage,
    tokens: TokenRing.bufferOf(arena, shape.ring, ids.tokens).slice(0, 0, count),
    places: {
      ...standing(count, most),
      pieces: numbers(placeIds.pieces, "pieces", [columns]).slice(0, 0, pieces),
      among: { position: ofTokens(placeIds.among, "among"), begin: ofTokens(placeIds.begin, "begin") }
    },
    rows: numbers(placeIds.wanted, "wanted", [mostRows]).slice(0, 0, rows),
    batch: { tiles, count: variable(arena, "T", 1, shape.tokens), keys: pieces.mul(piece) }
  })
  return Program.make([...left(arena, logits, model, shape), ...effects])
}
