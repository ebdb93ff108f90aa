/** The cache of one block: per position a row of keys, then of values, head after head. */
import * as DType from "@tg/core-uop/DType"
import { type Reader, type Ring, ringOf, ringRows, wholePieces } from "@tg/model-parts/Attention"
import type { Storage } from "@tg/model-parts/Family"
import * as Halves from "@tg/model-parts/Halves"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import { type Config, windowOf } from "./Config.ts"

/** Values of a head as they are stored: halves in whole groups. */
const stored = ({ headSize }: Config, type: Halves.CacheType): number =>
  type === "f32" ? headSize : Halves.wholeGroups(headSize)

/** The ring of a cache with so many rows, where a block with this window has one: a context of no more is not worth it. */
export const ringIn = (rows: number, window: number | undefined): Ring | undefined => {
  const ring = window === undefined ? undefined : ringOf(window)
  return ring !== undefined && rows >= ringRows(ring) ? ring : undefined
}

/** A block's cache buffer: whole pieces, or a ring. */
export const storage = (
  config: Config,
  { block, context, type }: { readonly type: Halves.CacheType; readonly context: number; readonly block: number }
): Storage => {
  const values = 2 * config.keyValueHeads * stored(config, type)
  const ring = ringIn(wholePieces(context), windowOf(config, block))
  const rows = ring === undefined ? wholePieces(context) : ringRows(ring)
  return {
    ...(type === "f32" ? { shape: [rows, values], dtype: DType.f32 } : { shape: [rows, values / 2], dtype: DType.u32 }),
    ring
  }
}

const typeOf = (cache: Tensor): Halves.CacheType => cache.dtype === DType.f32 ? "f32" : "f16"

/** Keys and values `[T, heads, size]` as rows of a cache like this one. */
export const pack = (config: Config, cache: Tensor, [key, value]: readonly [key: Tensor, value: Tensor]): Tensor => {
  const both = Halves.widen(Nn.stack([key, value], 1), stored(config, typeOf(cache)))
  const rows = typeOf(cache) === "f32" ? both : Halves.pack(both)
  return rows.reshape([key.dim(0), cache.dim(1)])
}

/** Keys (0) or values (1) of rows `[S.., words]`, by head: `[G, S.., ...row]`. */
const part = (config: Config, rows: Tensor, which: 0 | 1): Tensor => {
  const { keyValueHeads: heads } = config
  const lead = rows.shape.slice(0, -1)
  const own = rows.reshape([...lead, 2, heads, Number(rows.dim(-1)) / 2 / heads])
    .slice(lead.length, which, 1).reshape([...lead, heads, Number(rows.dim(-1)) / 2 / heads])
  const values = typeOf(rows) === "f32" ? own : Halves.unpack(own)
  const axes = [...values.shape.keys()]
  return values.permute([lead.length, ...axes.filter((axis) => axis !== lead.length)])
}

/**
 * Reads rows for queries `[T, G, A.., size]`: the query heads of a group read the same keys and values. Of the groups'
 * axis in the rows, queries see their own part.
 */
export const reader = (config: Config): Reader => {
  const width = config.headSize
  /** `[G, S.., ...row]` for queries with `between` axes behind that of the groups. */
  const beside = (x: Tensor, between: number): Tensor =>
    x.reshape([1, x.dim(0), ...Halves.ones(between), ...x.shape.slice(1)])
  return {
    width,
    scores: (query, rows) => {
      const keys = part(config, rows, 0)
      const row = keys.shape.slice(rows.rank)
      const size = row.reduce<number>((n, d) => n * Number(d), 1)
      return Halves.widen(query, size).reshape([...query.shape.slice(0, -1), ...Halves.ones(rows.rank - 1), ...row])
        .mul(beside(keys, query.rank - 3)).sum({ axis: row.map((_, i) => i - row.length) })
    },
    mix: (weights, rows) => {
      const values = part(config, rows, 1)
      const row = values.shape.slice(rows.rank)
      const mixed = weights.reshape([...weights.shape, ...Halves.ones(row.length)])
        .mul(beside(values, weights.rank - 1 - rows.rank)).sum(-1 - row.length)
      const size = row.reduce<number>((n, d) => n * Number(d), 1)
      const flat = mixed.reshape([...weights.shape.slice(0, -1), size])
      return size === width ? flat : flat.slice(-1, 0, width)
    }
  }
}
