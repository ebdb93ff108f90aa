/** The cache of one block: per position a row `[latent | rotated key]`, shared by all heads. */
import * as DType from "@tg/core-uop/DType"
import type * as Shape from "@tg/core-uop/Shape"
import { counting } from "@tg/gguf/LayoutPacking"
import { cat } from "@tg/tensor/Nn"
import { type Tensor, zeros } from "@tg/tensor/Tensor"
import { cacheRow, type Config } from "./Config.ts"

/** How cached values are stored. */
export type CacheType = "f16" | "f32"

/** Positions of one piece of the cache: attention of a single token is split into such pieces. */
export const piece = 64

/** Shape and dtype of a block's cache buffer: whole pieces. */
export const storage = (
  config: Config,
  options: { readonly type: CacheType; readonly context: number }
): { readonly shape: Shape.Shape; readonly dtype: DType.DType } => {
  const positions = Math.ceil(options.context / piece) * piece
  return options.type === "f32"
    ? { shape: [positions, cacheRow(config)], dtype: DType.f32 }
    : { shape: [positions, halfRow(config) / 2], dtype: DType.u32 }
}

/** Rows of halves are padded to groups of 8 values in 4 words: value 4h + w of a group is half h of word w. */
const halfRow = (config: Config): number => Math.ceil(cacheRow(config) / 8) * 8

/** Rows `[T, latent + rotated]` as they are stored in a cache like this one. */
export const pack = (config: Config, cache: Tensor, rows: Tensor): Tensor => {
  if (cache.dtype === DType.f32) return rows
  const padded = widen(rows, halfRow(config))
  const halves = padded.reshape([rows.dim(0), halfRow(config) / 8, 2, 4]).floatToHalf()
  return halves.shl(counting(rows.arena, 2, 16, 1)).sum(2).reshape([rows.dim(0), halfRow(config) / 2])
}

/** Zeros behind the last axis, up to `width`. */
const widen = (x: Tensor, width: number): Tensor => {
  const missing = width - Number(x.dim(-1))
  return missing === 0 ? x : cat([x, zeros(x.arena, [...x.shape.slice(0, -1), missing])], -1)
}

/** Stored rows `[..., words]` as floats, with the row on nested axes. */
const unpack = (config: Config, stored: Tensor): Tensor =>
  stored.dtype === DType.f32
    ? stored
    : stored.reshape([...stored.shape.slice(0, -1), halfRow(config) / 8, 1, 4])
      .shr(counting(stored.arena, 2, 16, 1)).halfToFloat()

const ones = (n: number): ReadonlyArray<number> => Array.from({ length: n }, () => 1)

/** Products of queries `[A..., latent + rotated]` with stored rows `[S..., words]`: `[A..., S...]`. */
export const scores = (config: Config, query: Tensor, stored: Tensor): Tensor => {
  const keys = unpack(config, stored)
  const leading = stored.rank - 1
  const row = keys.shape.slice(leading)
  const width = row.reduce<number>((n, d) => n * Number(d), 1)
  return widen(query, width).reshape([...query.shape.slice(0, -1), ...ones(leading), ...row]).mul(keys)
    .sum({ axis: row.map((_, i) => i - row.length) })
}

/** The latents of stored rows `[S..., n, words]`, mixed by `weights [A..., S..., n]`: `[A..., S..., latent]`. */
export const mix = (config: Config, weights: Tensor, stored: Tensor): Tensor => {
  const rows = unpack(config, stored)
  const leading = stored.rank - 1
  const latents = rows.rank === stored.rank
    ? rows.slice(-1, 0, config.latent)
    : config.latent % 8 === 0
    ? rows.slice(leading, 0, config.latent / 8)
    : rows.reshape([...stored.shape.slice(0, -1), halfRow(config)]).slice(-1, 0, config.latent)
  const row = latents.shape.slice(leading)
  return weights.reshape([...weights.shape, ...ones(row.length)]).mul(latents)
    .sum(-1 - row.length).reshape([...weights.shape.slice(0, -1), config.latent])
}
