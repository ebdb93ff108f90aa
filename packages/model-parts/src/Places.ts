/**
 * Tokens of one step that stand anywhere: each has a position of its own and pieces of a cache that several conversations share. A
 * piece holds `Attention.piece` neighbouring positions of one conversation, or of several that begin with the same tokens.
 */
import * as Nn from "@tg/tensor/Nn"
import { assign } from "@tg/tensor/Program"
import { iota, type Tensor, zeros } from "@tg/tensor/Tensor"
import { hidden, piece, type Reader } from "./Attention.ts"

/** Where each of T tokens stands. */
export interface Places {
  /** Its position in its conversation, `i32 [T]`. */
  readonly position: Tensor
  /** The row of the cache that is its own, `i32 [T]`; no two tokens have the same, unless they are the same. */
  readonly row: Tensor
  /** The pieces of the cache that hold its conversation, in order, `i32 [T, P]`; any piece behind the one of its own row. */
  readonly pieces: Tensor
}

/** Places as arguments of a block's call. */
export const toArguments = ({ pieces, position, row }: Places): ReadonlyArray<Tensor> => [position, row, pieces]

/** What `toArguments` has taken apart. */
export const fromArguments = ([position, row, pieces]: ReadonlyArray<Tensor>): Places => ({
  position: position!,
  row: row!,
  pieces: pieces!
})

/** Writes a row for each token: behind one another from `first` on, or where the tokens stand. */
export const write = (
  cache: Tensor,
  rows: Tensor,
  { first, places }: { readonly first: Tensor; readonly places: Places | undefined }
): Tensor => assign(places === undefined ? cache.slice(0, first, rows.dim(0)) : cache.gather(places.row), rows)

/**
 * Attention of tokens that stand anywhere, `query [T, A.., K]`, each over its own positions: `[T, A.., width]`. The reader's rows
 * have an axis of tokens in front, which is that of the queries. As with `Attention.split` a piece gives the attention over its
 * rows, and sums of exponentials weigh the pieces; what stands behind a token counts as zero, so that the sum is the same however
 * many pieces others need.
 */
export const attend = (
  reader: Reader,
  query: Tensor,
  { cache, places, window }: { readonly cache: Tensor; readonly places: Places; readonly window?: number | undefined }
): Tensor => {
  const { arena } = query
  const tokens = query.dim(0)
  const rows = cache.reshape([Number(cache.dim(0)) / piece, piece, cache.dim(1)]).gather(places.pieces)
  const own = places.position.reshape([tokens, ...query.shape.slice(1).map(() => 1), 1])
  const position = iota(arena, places.pieces.dim(1)).mul(piece).unsqueeze(1).add(iota(arena, piece)).cast(own.dtype)
  const before = position.le(own)
  const seen = window === undefined ? before : before.and(position.add(window).gt(own))
  const scores = seen.where(reader.scores(query, rows), hidden)
  const most = scores.max({ axis: -1, keepDims: true })
  const weights = scores.sub(most).exp()
  const sum = weights.sum({ axis: -1, keepDims: true })
  const mix = reader.mix(weights, rows).div(sum)
  // eight columns more, of which one counts: as many as a group of values in the cache
  const rest = zeros(arena, [...most.shape.slice(0, -1), 7])
  const record = Nn.cat([mix, most.add(sum.log()), rest], -1).contiguous().label("attn_split")
  const logSum = record.slice(-1, reader.width, 1)
  const scale = logSum.sub(logSum.max({ axis: -2, keepDims: true })).exp()
  return record.slice(-1, 0, reader.width).mul(scale).sum(-2).div(scale.sum(-2)).label("attn_mix")
}
