/** The cache of one block: per position a row `[latent | rotated key]`, shared by all heads. */
import * as DType from "@tg/core-uop/DType"
import type * as Shape from "@tg/core-uop/Shape"
import { type Reader, wholePieces } from "@tg/model-parts/Attention"
import * as Halves from "@tg/model-parts/Halves"
import type { Tensor } from "@tg/tensor/Tensor"
import { cacheRow, type Config } from "./Config.ts"

/** Shape and dtype of a block's cache buffer: whole pieces. */
export const storage = (
  config: Config,
  options: { readonly type: Halves.CacheType; readonly context: number }
): { readonly shape: Shape.Shape; readonly dtype: DType.DType } => {
  const positions = wholePieces(options.context)
  return options.type === "f32"
    ? { shape: [positions, cacheRow(config)], dtype: DType.f32 }
    : { shape: [positions, halfRow(config) / 2], dtype: DType.u32 }
}

/** Rows of halves are filled up to whole groups. */
const halfRow = (config: Config): number => Halves.wholeGroups(cacheRow(config))

/** Rows `[T, latent + rotated]` as they are stored in a cache like this one. */
export const pack = (config: Config, cache: Tensor, rows: Tensor): Tensor =>
  cache.dtype === DType.f32 ? rows : Halves.pack(Halves.widen(rows, halfRow(config)))

/** Stored rows `[..., words]` as floats, with the row on nested axes. */
const unpack = (stored: Tensor): Tensor => stored.dtype === DType.f32 ? stored : Halves.unpack(stored)

/** Keys are whole rows, values their latents. The first `shared` axes of rows are those of the queries. */
export const reader = (config: Config, shared = 0): Reader => ({
  scores: (query, rows) => scores(query, rows, shared),
  mix: (weights, rows) => mix(config, weights, rows, shared),
  each: {
    scores: (query, rows) => scores(query, rows, 1),
    mix: (weights, rows) => mix(config, weights, rows, 1)
  },
  width: config.latent
})

/** The parts of stored rows `[S, words]`. */
export interface Rows {
  /** `[S, latent]`. */
  readonly latents: Tensor
  /** The rotated keys, `[S, rotated]`. */
  readonly positions: Tensor
}

/** Stored rows `[S, words]` by their parts. */
export const parts = (config: Config, stored: Tensor): Rows => {
  const values = unpack(stored)
  const rows = values.reshape([stored.dim(0), stored.dtype === DType.f32 ? cacheRow(config) : halfRow(config)])
  return { latents: rows.slice(-1, 0, config.latent), positions: rows.slice(-1, config.latent, config.rotated) }
}

/** With so many axes of size 1 behind the first `shared` ones. */
const spread = (x: Tensor, shared: number, between: number): Tensor =>
  shared === 0 ? x : x.reshape([...x.shape.slice(0, shared), ...Halves.ones(between), ...x.shape.slice(shared)])

/** Products of queries `[B..., A..., latent + rotated]` with stored rows `[B..., S..., words]`: `[B..., A..., S...]`. */
const scores = (query: Tensor, stored: Tensor, shared: number): Tensor => {
  const keys = unpack(stored)
  const leading = stored.rank - 1
  const row = keys.shape.slice(leading)
  const width = row.reduce<number>((n, d) => n * Number(d), 1)
  return Halves.widen(query, width)
    .reshape([...query.shape.slice(0, -1), ...Halves.ones(leading - shared), ...row])
    .mul(spread(keys, shared, query.rank - 1 - shared))
    .sum({ axis: row.map((_, i) => i - row.length) })
}

/**
 * The latents of stored rows `[B..., S..., n, words]`, mixed by `weights [B..., A..., S..., n]`: `[B..., A..., S..., latent]`.
 */
const mix = (config: Config, weights: Tensor, stored: Tensor, shared: number): Tensor => {
  const rows = unpack(stored)
  const leading = stored.rank - 1
  const latents = rows.rank === stored.rank
    ? rows.slice(-1, 0, config.latent)
    : config.latent % 8 === 0
    ? rows.slice(leading, 0, config.latent / 8)
    : rows.reshape([...stored.shape.slice(0, -1), halfRow(config)]).slice(-1, 0, config.latent)
  const row = latents.shape.slice(leading)
  return weights.reshape([...weights.shape, ...Halves.ones(row.length)])
    .mul(spread(latents, shared, weights.rank - leading))
    .sum(-1 - row.length).label("attn_mix").reshape([...weights.shape.slice(0, -1), config.latent])
}
