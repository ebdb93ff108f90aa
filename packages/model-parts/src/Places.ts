/**
 * Tokens of one step that stand anywhere: each has a position of its own and pieces of a cache that several conversations share. A
 * piece holds `Attention.piece` neighbouring positions of one conversation, or of several that begin with the same tokens.
 */
import * as Nn from "@tg/tensor/Nn"
import { assign } from "@tg/tensor/Program"
import { iota, scalar, type Tensor } from "@tg/tensor/Tensor"
import { hidden, piece, type Reader, type RowReader } from "./Attention.ts"
import { once } from "./Schedule.ts"

/** Where each of T tokens stands. */
export interface Places {
  /** Its position in its conversation, `i32 [T]`. */
  readonly position: Tensor
  /** The row of the cache that is its own, `i32 [T]`; no two tokens have the same, unless they are the same. */
  readonly row: Tensor
  /**
   * The pieces of the cache that hold its conversation, in order, `i32 [T, P]`; any piece behind the one of its own row. `[P]` where
   * all tokens look at the same pieces, which hold their conversations one behind the other. A number of pieces (rank 0) where a
   * conversation has the cache to itself: a token's row is its position.
   */
  readonly pieces: Tensor
  /** Where the pieces are the same for all: where in them a token stands, and where its conversation begins, `i32 [T]` each. */
  readonly among?: { readonly position: Tensor; readonly begin: Tensor } | undefined
}

/** Places as arguments of a block's call. */
export const toArguments = ({ among, pieces, position, row }: Places): ReadonlyArray<Tensor> => [
  position,
  row,
  pieces,
  ...among === undefined ? [] : [among.position, among.begin]
]

/** What `toArguments` has taken apart. */
export const fromArguments = ([position, row, pieces, among, begin]: ReadonlyArray<Tensor>): Places => ({
  position: position!,
  row: row!,
  pieces: pieces!,
  among: among === undefined ? undefined : { position: among, begin: begin! }
})

/** Writes a row for each token: behind one another from `first` on, or where the tokens stand. */
export const write = (
  cache: Tensor,
  rows: Tensor,
  { first, places }: { readonly first: Tensor; readonly places: Places | undefined }
): Tensor => assign(places === undefined ? cache.slice(0, first, rows.dim(0)) : cache.gather(places.row), rows)

/** Whether all tokens look at the same pieces. */
export const areSame = ({ pieces }: Places): boolean => pieces.rank === 1

/** Whether one conversation has the cache to itself. */
export const isAlone = ({ pieces }: Places): boolean => pieces.rank === 0

/** Rows of the pieces behind one another, where they are the same for all; stored: every token of a batch reads them. */
export const rowsOf = (cache: Tensor, { pieces }: Places): Tensor => {
  const positions = scalar(cache.arena, pieces.dim(0)).mul(piece).node
  const rows = cache.reshape([Number(cache.dim(0)) / piece, piece, cache.dim(1)]).gather(pieces)
  return once(rows.reshape([positions, cache.dim(1)])).label("cache_rows")
}

/** Rows to look at: as many, from the first position on. */
interface Looked {
  readonly positions: Tensor
  readonly places: Places
  readonly window?: number | undefined
}

/** Scores `[T, .., S]` of what a token sees: what stands behind it counts as zero, so that the sum is the same however many pieces others need. */
const ofSeen = (scores: Tensor, { places, positions, window }: Looked): Tensor => {
  const own = places.position.reshape([scores.dim(0), ...scores.shape.slice(1).map(() => 1)])
  const position = iota(scores.arena, positions.node).cast(own.dtype)
  const before = position.le(own)
  const seen = window === undefined ? before : before.and(position.add(window).gt(own))
  return seen.where(scores, hidden)
}

/** What attention looks at. */
interface Attended {
  readonly cache: Tensor
  readonly places: Places
  readonly window?: number | undefined
}

/** Attention of tokens that stand anywhere, `query [T, A.., K]`, each over its own positions: `[T, A.., width]`. A token is a sequence of one. */
export const attend = ({ each }: Reader, query: Tensor, { cache, places, window }: Attended): Tensor => {
  if (each === undefined) throw new Error("tokens stand anywhere only in a cache whose reader has `each`")
  const tokens = query.dim(0)
  const positions = scalar(query.arena, places.pieces.dim(1)).mul(piece)
  const rows = cache.reshape([Number(cache.dim(0)) / piece, piece, cache.dim(1)]).gather(places.pieces)
    .reshape([tokens, positions.node, cache.dim(1)])
  const scores = ofSeen(each.scores(query.unsqueeze(1), rows), { places, positions, window })
  const mixed = each.mix(Nn.softmax(scores), rows).label("attn_mix")
  return mixed.reshape([tokens, ...mixed.shape.slice(2)])
}

/** The same where one conversation has the cache to itself: all tokens look at the same rows, so what is read for one is there for others. */
export const attendAlone = (reader: RowReader, query: Tensor, { cache, places, window }: Attended): Tensor => {
  const positions = places.pieces.mul(piece)
  const rows = cache.slice(0, 0, positions)
  const scores = ofSeen(reader.scores(query, rows), { places, positions, window })
  return reader.mix(Nn.softmax(scores), rows).label("attn_mix")
}
