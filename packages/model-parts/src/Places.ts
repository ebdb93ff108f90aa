/**
 * Tokens of one step that stand anywhere: each has a position of its own and pieces of a cache that several conversations share. A
 * piece holds `Attention.piece` neighbouring positions of one conversation, or of several that begin with the same tokens.
 */
import * as Nn from "@tg/tensor/Nn"
import { assign } from "@tg/tensor/Program"
import { iota, scalar, type Tensor } from "@tg/tensor/Tensor"
import { hidden, piece, type Reader } from "./Attention.ts"

/** Where each of T tokens stands. */
export interface Places {
  /** Its position in its conversation, `i32 [T]`. */
  readonly position: Tensor
  /** The row of the cache that is its own, `i32 [T]`; no two tokens have the same, unless they are the same. */
  readonly row: Tensor
  /**
   * The pieces of the cache that hold its conversation, in order, `i32 [T, P]`; any piece behind the one of its own row. `[P]` where
   * all tokens are of one conversation.
   */
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

/** Whether all tokens are of one conversation. */
export const areOfOne = ({ pieces }: Places): boolean => pieces.rank === 1

/** Rows of the one conversation's pieces behind one another, stored: every token of a batch reads them. */
export const rowsOf = (cache: Tensor, { pieces }: Places): Tensor => {
  const positions = scalar(cache.arena, pieces.dim(0)).mul(piece).node
  return cache.reshape([Number(cache.dim(0)) / piece, piece, cache.dim(1)]).gather(pieces)
    .reshape([positions, cache.dim(1)]).contiguous().label("cache_rows")
}

/**
 * Attention of tokens that stand anywhere, `query [T, A.., K]`, each over its own positions: `[T, A.., width]`. The reader's rows
 * have an axis of tokens in front, which is that of the queries. What stands behind a token counts as zero, so that the sum is the
 * same however many pieces others need.
 */
export const attend = (
  reader: Reader,
  query: Tensor,
  { cache, places, window }: { readonly cache: Tensor; readonly places: Places; readonly window?: number | undefined }
): Tensor => {
  const { arena } = query
  const tokens = query.dim(0)
  const positions = scalar(arena, places.pieces.dim(1)).mul(piece).node
  const rows = cache.reshape([Number(cache.dim(0)) / piece, piece, cache.dim(1)]).gather(places.pieces)
    .reshape([tokens, positions, cache.dim(1)])
  const own = places.position.reshape([tokens, ...query.shape.slice(1).map(() => 1)])
  const position = iota(arena, positions).cast(own.dtype)
  const before = position.le(own)
  const seen = window === undefined ? before : before.and(position.add(window).gt(own))
  return reader.mix(Nn.softmax(seen.where(reader.scores(query, rows), hidden)), rows).label("attn_mix")
}
