/** Attention over a cache, as its equation: of a few tokens over whole pages of the cache, of many over all rows up to theirs. */
import { iota, scalar, type Tensor } from "@tg/tensor/Tensor"
import * as Nn from "@tg/tensor/Nn"
import { tileTokens } from "./Order.ts"
import { type Laid, shared } from "./Schedule.ts"

/** What a step of many tokens has to know beside them; symbolic integers. */
export interface Batch {
  /** T / `Order.tileTokens`. */
  readonly tiles: Tensor
  /** Tokens that count: the last tile may not be full. */
  readonly count: Tensor
  /** Positions of the cache to look at: startPos + T, rounded up to whole pieces; what is behind a token is hidden. */
  readonly keys: Tensor
}

/** Positions of one piece of a cache: attention of a single token is split into such pieces. */
export const piece = 64

/** Positions of a cache with room for so many: whole pieces. */
export const wholePieces = (context: number): number => Math.ceil(context / piece) * piece

/**
 * A cache that forgets: position p lies in row p mod `positions`, whole pieces. A step writes rows one after the other, and
 * does not go on at the beginning; what stands beyond these rows is what its last tile fills up with.
 */
export interface Ring {
  readonly positions: number
  /** Positions that a token sees, itself included. */
  readonly window: number
}

/** Tokens of a step that are worth a longer ring. */
const ringStep = 512

/** The ring of a window: what the first token of a step sees stands there until the step is over. */
export const ringOf = (window: number): Ring => ({
  positions: wholePieces(window - 1 + Math.max(piece, Math.min(ringStep, wholePieces(window)))),
  window
})

/** Rows of a cache that is a ring. */
export const ringRows = ({ positions }: Ring): number => positions + piece

/** Tokens that a step may have: whole tiles. */
export const ringTokens = ({ positions, window }: Ring): number => (positions - window + 1) & -tileTokens

/** Scores of positions that must not be seen: finite, so that no infinity enters arithmetic. */
export const hidden = -1e30

/** How queries meet rows of a cache `[S.., words]`. */
export interface RowReader {
  /** Products of queries `[T, A.., K]` with the rows' keys: `[T, A.., S..]`. */
  readonly scores: (query: Tensor, rows: Tensor) => Tensor
  /** The rows' values, mixed by `weights [T, A.., S..]` over the last axis: `[T, A.., S.. without the last, width]`. */
  readonly mix: (weights: Tensor, rows: Tensor) => Tensor
}

/** A reader of rows that all tokens share. */
export interface Reader extends RowReader {
  /**
   * The reader of rows that each of several sequences has of its own: queries `[B, T, A.., K]`, rows `[B, S.., words]`. Without it
   * sequences are told apart by hiding those of the others, and tokens cannot stand anywhere (`Places`).
   */
  readonly each?: RowReader | undefined
}

/** What attention of several tokens computes with. */
export interface WholeInput extends Laid {
  readonly batch?: Batch | undefined
  /** Position of the first token, dtype `index`. */
  readonly startPos: Tensor
  /** Position of each token, `i32 [T]`; behind one another from `startPos` on if it is not said. */
  readonly position?: Tensor | undefined
  /** The first position that each token sees, `i32 [T]`; 0 if it is not said. */
  readonly begin?: Tensor | undefined
  /** Positions that a token sees, itself included; all before it if it is not said. */
  readonly window?: number | undefined
  /** How the cache forgets; it keeps all positions if it is not said. */
  readonly ring?: Ring | undefined
  /** Several sequences of so many tokens, one behind the other, that do not see each other; one sequence if it is not said. */
  readonly sequence?: number | undefined
}

/** Attention of several tokens, `query [T, A.., K]`, over all rows up to theirs: `[T, A.., width]`. */
export const whole = (reader: Reader, input: WholeInput, query: Tensor, cache: Tensor): Tensor => {
  const { batch, ring, sequence, startPos } = input
  if (sequence !== undefined && reader.each !== undefined && batch === undefined && ring === undefined) {
    return ofEach(reader.each, { ...input, sequence }, query, cache)
  }
  const all = batch?.keys ?? startPos.add(scalar(query.arena, query.dim(0)))
  const seen = cache.slice(0, 0, ring === undefined ? all : all.minimum(ring.positions))
  const scores = shared(input, causal(reader.scores(query, seen), input))
  return shared(input, reader.mix(softmax(input, scores), seen).label("attn_mix"))
}

/** Several sequences from position 0 on: each computes with its own rows alone, in place of hiding those of all others. */
const ofEach = (
  reader: RowReader,
  { order, sequence, startPos, window }: WholeInput & { readonly sequence: number },
  query: Tensor,
  cache: Tensor
): Tensor => {
  const [tokens, ...inner] = query.shape
  const sequences = Number(tokens) / sequence
  const rows = cache.slice(0, startPos, tokens!).reshape([sequences, sequence, cache.dim(1)])
  const products = reader.scores(query.reshape([sequences, sequence, ...inner]), rows)
  const own = iota(query.arena, sequence).reshape([sequence, ...inner.map(() => 1)])
  const position = iota(query.arena, sequence)
  const reached = position.le(own)
  const seen = window === undefined ? reached : reached.and(position.add(window).gt(own))
  const mixed = reader.mix(softmax({ order }, seen.where(products, hidden)), rows).label("attn_mix")
  return mixed.reshape([tokens!, ...mixed.shape.slice(2)])
}

/** Over the positions, `[T, A.., S]`. */
const softmax = (laid: Laid, scores: Tensor): Tensor => {
  const e = scores.sub(shared(laid, scores.max({ axis: -1, keepDims: true }))).exp()
  return shared(laid, e.div(shared(laid, e.sum({ axis: -1, keepDims: true }))).label("attn_softmax"))
}

/** Where the tokens are, and how far they see. */
export interface FewInput {
  /** Position of the first token. */
  readonly startPos: Tensor
  readonly window?: number | undefined
  readonly ring?: Ring | undefined
}

/** The pieces of the cache that some token may see: all up to the last one's, or the last ones, as many for every position. */
const visible = (
  cache: Tensor,
  { ring, startPos, tokens, window }: FewInput & { readonly tokens: number }
) => {
  const all = Number(cache.dim(0)) / piece
  const pieces = cache.reshape([all, piece, cache.dim(1)])
  const joined = (some: Tensor): Tensor =>
    some.reshape([scalar(cache.arena, some.dim(0)).mul(piece).node, cache.dim(1)])
  const most = window === undefined ? all : Math.ceil((window + tokens - 2) / piece) + 1
  const last = tokens === 1 ? startPos : startPos.add(tokens - 1)
  if (ring !== undefined) {
    const first = last.floordiv(piece).sub(most - 1).maximum(0)
    const turned = iota(cache.arena, most).add(first).mod(ring.positions / piece)
    return { rows: joined(pieces.gather(turned)), first: first.mul(piece) }
  }
  if (most >= all) {
    const rows = cache.slice(0, 0, last.add(piece).floordiv(piece).mul(piece))
    return { rows, first: undefined }
  }
  const first = last.floordiv(piece).sub(most - 1).maximum(0)
  return { rows: cache.slice(0, first.mul(piece), most * piece), first: first.mul(piece) }
}

/** Attention of a few tokens, `query [T, A.., K]`, over all rows up to theirs: `[T, A.., width]`. */
export const few = (reader: Reader, query: Tensor, cache: Tensor, input: FewInput): Tensor => {
  const { arena } = query
  const { startPos, window } = input
  const tokens = Number(query.dim(0))
  const { first, rows } = visible(cache, { ...input, tokens })
  const place = tokens === 1
    ? startPos
    : iota(arena, tokens).add(startPos).reshape([tokens, ...query.shape.slice(1).map(() => 1)])
  const own = iota(arena, rows.dim(0))
  const position = first === undefined ? own : own.add(first)
  const before = position.le(place)
  const seen = window === undefined ? before : before.and(position.add(window).gt(place))
  const scores = seen.where(reader.scores(query, rows), hidden)
  return reader.mix(Nn.softmax(scores), rows).label("attn_mix")
}

/** Hides position u from token t unless u is t's or in front of it, and it is in t's window and sequence. */
const causal = (scores: Tensor, { begin, position: given, ring, sequence, startPos, window }: WholeInput): Tensor => {
  const { arena } = scores
  const tokens = scores.dim(0)
  const ofToken = (x: Tensor): Tensor => x.reshape([tokens, ...scores.shape.slice(1).map(() => 1)])
  const own = ofToken(given ?? iota(arena, tokens).add(startPos))
  const row = iota(arena, scores.dim(-1)).cast(own.dtype)
  const position = ring === undefined ? row : inRing(row, ring, { startPos, tokens: scalar(arena, tokens) })
  const before = position.le(own)
  const reached = begin === undefined ? before : before.and(position.ge(ofToken(begin)))
  const together = sequence === undefined
    ? reached
    : reached.and(position.floordiv(sequence).eq(own.floordiv(sequence)))
  const there = ring === undefined ? together : together.and(position.ge(0))
  return (window === undefined ? there : there.and(position.add(window).gt(own))).where(scores, hidden)
}

/** The position in each row of a ring, when a step has been written: behind its last token stand those of the turn before. */
const inRing = (
  row: Tensor,
  { positions }: Ring,
  { startPos, tokens }: { readonly startPos: Tensor; readonly tokens: Tensor }
): Tensor => {
  const first = startPos.mod(positions)
  const turn = startPos.sub(first)
  const position = row.add(turn)
  return row.lt(first.add(tokens)).where(position, position.sub(positions))
}
