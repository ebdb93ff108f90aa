/** The cache of one block: per position a row of keys, then of values, head after head. */
import * as DType from "@tg/core-uop/DType"
import { type Reader, type Ring, ringOf, ringRows, type RowReader, wholePieces } from "@tg/model-parts/Attention"
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

/** Keys (0) or values (1) of rows `[B.., S.., words]`, by head: `[B.., G, S.., ...row]`. */
const part = (config: Config, rows: Tensor, { shared, which }: { readonly which: 0 | 1; readonly shared: number }) => {
  const { keyValueHeads: heads } = config
  const lead = rows.shape.slice(0, -1)
  const own = rows.reshape([...lead, 2, heads, Number(rows.dim(-1)) / 2 / heads])
    .slice(lead.length, which, 1).reshape([...lead, heads, Number(rows.dim(-1)) / 2 / heads])
  const values = typeOf(rows) === "f32" ? own : Halves.unpack(own)
  const axes = [...values.shape.keys()]
  const others = axes.filter((axis) => axis !== lead.length)
  return values.permute([...others.slice(0, shared), lead.length, ...others.slice(shared)])
}

/**
 * Reads rows for queries `[T, G, A.., size]`: the query heads of a group read the same keys and values. Of the groups'
 * axis in the rows, queries see their own part.
 */
export const reader = (config: Config): Reader => ({ ...rowReader(config, 0), each: rowReader(config, 1) })

/** The first `shared` axes of rows are those of the queries. */
const rowReader = (config: Config, shared: 0 | 1): RowReader => {
  const width = config.headSize
  /** `[B.., G, S.., ...row]` beside queries `[B.., T, G, A.., size]` with `between` axes A. */
  const beside = (x: Tensor, between: number): Tensor => {
    const [groups, ...row] = x.shape.slice(shared)
    return x.reshape([...x.shape.slice(0, shared), 1, groups!, ...Halves.ones(between), ...row])
  }
  return {
    scores: (query, rows) => {
      const keys = part(config, rows, { which: 0, shared })
      const row = keys.shape.slice(rows.rank)
      const size = row.reduce<number>((n, d) => n * Number(d), 1)
      return Halves.widen(query, size)
        .reshape([...query.shape.slice(0, -1), ...Halves.ones(rows.rank - 1 - shared), ...row])
        .mul(beside(keys, query.rank - 3 - shared)).sum({ axis: row.map((_, i) => i - row.length) })
    },
    mix: (weights, rows) => {
      const values = part(config, rows, { which: 1, shared })
      const row = values.shape.slice(rows.rank)
      const mixed = weights.reshape([...weights.shape, ...Halves.ones(row.length)])
        .mul(beside(values, weights.rank - 1 - rows.rank)).sum(-1 - row.length).label("attn_mix")
      const size = row.reduce<number>((n, d) => n * Number(d), 1)
      const flat = mixed.reshape([...weights.shape.slice(0, -1), size])
      return size === width ? flat : flat.slice(-1, 0, width)
    }
  }
}
