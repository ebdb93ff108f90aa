/** The cache of one block: per position a row `[latent | rotated key]`, shared by all heads. */
import * as DType from "@tg/core-uop/DType"
import type * as Shape from "@tg/core-uop/Shape"
import { wholePieces } from "@tg/model-parts/Attention"
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

/** The parts of stored rows `[.., words]`. */
export interface Rows {
  /** `[.., latent]`. */
  readonly latents: Tensor
  /** The rotated keys, `[.., rotated]`. */
  readonly positions: Tensor
}

/** Stored rows `[.., words]` by their parts. */
export const parts = (config: Config, stored: Tensor): Rows => {
  const values = unpack(stored)
  const rows = values.reshape([
    ...stored.shape.slice(0, -1),
    stored.dtype === DType.f32 ? cacheRow(config) : halfRow(config)
  ])
  return { latents: rows.slice(-1, 0, config.latent), positions: rows.slice(-1, config.latent, config.rotated) }
}
