/** The cache of one block: per position a row `[latent | rotated key]`, shared by all heads. */
import * as DType from "@tg/core-uop/DType"
import type * as Shape from "@tg/core-uop/Shape"
import { counting } from "@tg/gguf/LayoutPacking"
import { cat } from "@tg/tensor/Nn"
import { type Tensor, zeros } from "@tg/tensor/Tensor"
import { cacheRow, type Config } from "./Config.ts"

/** How cached values are stored. */
export type CacheType = "f16" | "f32"

/** Shape and dtype of a block's cache buffer. */
export const storage = (
  config: Config,
  options: { readonly type: CacheType; readonly context: number }
): { readonly shape: Shape.Shape; readonly dtype: DType.DType } =>
  options.type === "f32"
    ? { shape: [options.context, cacheRow(config)], dtype: DType.f32 }
    : { shape: [options.context, halfRow(config) / 2], dtype: DType.u32 }

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

/** Stored rows `[S, words]` as floats, with the row on nested axes. */
const unpack = (config: Config, stored: Tensor): Tensor =>
  stored.dtype === DType.f32
    ? stored
    : stored.reshape([stored.dim(0), halfRow(config) / 8, 1, 4]).shr(counting(stored.arena, 2, 16, 1)).halfToFloat()

/** Products of queries `[T, H, latent + rotated]` with stored rows `[S, words]`: `[T, H, S]`. */
export const scores = (config: Config, query: Tensor, stored: Tensor): Tensor => {
  const keys = unpack(config, stored)
  const row = keys.shape.slice(1)
  const width = row.reduce<number>((n, d) => n * Number(d), 1)
  const [tokens, heads] = query.shape
  return widen(query, width).reshape([tokens!, heads!, 1, ...row]).mul(keys)
    .sum({ axis: row.map((_, i) => i - row.length) })
}

/** The latents of stored rows, mixed by `weights [T, H, S]`: `[T, H, latent]`. */
export const mix = (config: Config, weights: Tensor, stored: Tensor): Tensor => {
  const rows = unpack(config, stored)
  const length = stored.dim(0)
  const latents = rows.rank === 2
    ? rows.slice(1, 0, config.latent)
    : config.latent % 8 === 0
    ? rows.slice(1, 0, config.latent / 8)
    : rows.reshape([length, halfRow(config)]).slice(1, 0, config.latent)
  const [tokens, heads] = weights.shape
  const aside = latents.shape.slice(1).map(() => 1)
  return weights.reshape([tokens!, heads!, length, ...aside]).mul(latents).sum(2)
    .reshape([tokens!, heads!, config.latent])
}
