/** Attention over a cache: of one token in pieces of the cache, of several tokens over all rows up to theirs. */
import { iota, scalar, type Tensor, zeros } from "@tg/tensor/Tensor"
import * as Nn from "@tg/tensor/Nn"
import { keep, type Order, tileTokens } from "./Order.ts"

/** What a step of many tokens has to know beside them; symbolic integers. */
export interface Batch {
  /** T / `Order.tileTokens`. */
  readonly tiles: Tensor
  /** Tokens that count: the last tile may not be full. */
  readonly count: Tensor
  /** Positions of the cache to look at: startPos + T, rounded up to whole pieces; what is behind a token is hidden. */
  readonly keys: Tensor
  /** To what tokens attend where a cache holds latents; to the latents if it is not said. */
  readonly attend?: Attend | undefined
}

/**
 * Two programs of equal results for caches of latents. `latents`: queries are brought into the space of latents, and mixes of
 * latents out of it. `heads`: each head's keys and values are made from the latents of all positions first, which takes longer,
 * and multiplying with them less long: for many tokens. Where a cache holds keys and values there is no choice.
 */
export type Attend = "latents" | "heads"

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

/** How rows of a cache `[S.., words]` are read. */
export interface Reader {
  /** Products of queries `[A.., K]` with the rows' keys: `[A.., S..]`. */
  readonly scores: (query: Tensor, rows: Tensor) => Tensor
  /** The rows' values, mixed by `weights [A.., S..]` over the last axis: `[A.., S.. without the last, width]`. */
  readonly mix: (weights: Tensor, rows: Tensor) => Tensor
  /** Values of one head. */
  readonly width: number
}

/** What attention of several tokens computes with. */
export interface WholeInput {
  readonly batch?: Batch | undefined
  readonly order: Order
  /** Position of the first token, dtype `index`. */
  readonly startPos: Tensor
  /** Positions that a token sees, itself included; all before it if it is not said. */
  readonly window?: number | undefined
  /** How the cache forgets; it keeps all positions if it is not said. */
  readonly ring?: Ring | undefined
  /** Several sequences of so many tokens, one behind the other, that do not see each other; one sequence if it is not said. */
  readonly sequence?: number | undefined
}

/** Attention of several tokens, `query [T, A.., K]`, over all rows up to theirs: `[T, A.., width]`. */
export const whole = (reader: Reader, input: WholeInput, query: Tensor, cache: Tensor): Tensor => {
  const { batch, order, ring, startPos } = input
  const all = batch?.keys ?? startPos.add(scalar(query.arena, query.dim(0)))
  const seen = cache.slice(0, 0, ring === undefined ? all : all.minimum(ring.positions))
  const scores = keep(order, causal(reader.scores(query, seen), input))
  return keep(order, reader.mix(softmax(order, scores), seen).label("attn_mix"))
}

/** Over the positions, `[T, A.., S]`. */
const softmax = (order: Order, scores: Tensor): Tensor => {
  const e = scores.sub(keep(order, scores.max({ axis: -1, keepDims: true }))).exp()
  return keep(order, e.div(keep(order, e.sum({ axis: -1, keepDims: true }))).label("attn_softmax"))
}

/**
 * Heads that read a piece of the cache together. In a short context there are so few pieces that each head is better off
 * alone; in a long one, reading the cache again for each head takes longest. On an H200, 20 heads take 8 us alone behind
 * 500 positions and 26 behind 4000, four together 11 and 20.
 */
export const headsTogether = (heads: number, positions: number): number =>
  positions <= shortContext ? 1 : [4, 2].find((n) => heads % n === 0) ?? 1
/** Rows of a cache for 4096 positions, with the end of the last tile of a prompt. */
const shortContext = 4096 + piece

/** Neighbouring tokens that read a piece of the cache together: as many as heads. */
const tokensTogether = (tokens: number): number => [4, 2].find((n) => tokens % n === 0) ?? 1

/** Where the tokens are, and how far they see. */
export interface SplitInput {
  /** Position of the first token. */
  readonly startPos: Tensor
  /** Tokens one behind the other; one if it is not said. */
  readonly tokens?: number | undefined
  readonly window?: number | undefined
  readonly ring?: Ring | undefined
}

/** The pieces of the cache that some token may see: all up to the last one's, or the last ones, as many for every position. */
const visible = (cache: Tensor, { ring, startPos, tokens = 1, window }: SplitInput) => {
  const all = Number(cache.dim(0)) / piece
  const pieces = cache.reshape([all, piece, cache.dim(1)])
  const most = window === undefined ? all : Math.ceil((window + tokens - 2) / piece) + 1
  const last = tokens === 1 ? startPos : startPos.add(tokens - 1)
  if (ring !== undefined) {
    const first = last.floordiv(piece).sub(most - 1).maximum(0)
    const turned = iota(cache.arena, most).add(first).mod(ring.positions / piece)
    return { rows: pieces.gather(turned), first: first.mul(piece) }
  }
  if (most >= all) {
    const rows = pieces.slice(0, 0, last.add(piece).floordiv(piece))
    return { rows, first: undefined }
  }
  const first = last.floordiv(piece).sub(most - 1).maximum(0)
  return { rows: pieces.slice(0, first, most), first: first.mul(piece) }
}

/**
 * Attention of one token, `query [A.., K]`, or of several, `[T, A.., K]`: each piece of the cache gives the attention over its rows, with the logarithm
 * of the sum of its exponentials; weighed by these sums, the pieces are the attention over all rows (FlashDecoding):
 * `[A.., width]`.
 */
export const split = (reader: Reader, query: Tensor, cache: Tensor, input: SplitInput): Tensor => {
  const { startPos, tokens = 1 } = input
  if (tokens === 1) return splitAt(reader, query, { ...input, cache, place: startPos })
  const together = tokensTogether(tokens)
  const inner = query.shape.slice(1, -1)
  const grouped = query.reshape([tokens / together, together, ...query.shape.slice(1)])
    .permute([0, ...inner.map((_, i) => i + 2), 1, inner.length + 2])
  const place = iota(query.arena, tokens).add(startPos)
    .reshape([tokens / together, ...inner.map(() => 1), together, 1, 1])
  return splitAt(reader, grouped, { ...input, cache, place })
    .permute([0, inner.length + 1, ...inner.map((_, i) => i + 1), inner.length + 2])
    .reshape([tokens, ...inner, reader.width])
}

/** The same of any queries; `place` is the position of each, `[A.., 1, 1]` or one for all. */
const splitAt = (
  reader: Reader,
  query: Tensor,
  { cache, place, ...input }: SplitInput & { readonly cache: Tensor; readonly place: Tensor }
): Tensor => {
  const { arena } = query
  const { window } = input
  const { first, rows } = visible(cache, input)
  const own = iota(arena, rows.dim(0)).mul(piece).unsqueeze(1).add(iota(arena, piece))
  const position = first === undefined ? own : own.add(first)
  const before = position.le(place)
  const seen = window === undefined ? before : before.and(position.add(window).gt(place))
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

/** Hides position u from token t unless u <= startPos + t, and it is in t's window and sequence. */
const causal = (scores: Tensor, { ring, sequence, startPos, window }: WholeInput): Tensor => {
  const { arena } = scores
  const tokens = scores.dim(0)
  const own = iota(arena, tokens).add(startPos).reshape([tokens, ...scores.shape.slice(1).map(() => 1)])
  const row = iota(arena, scores.dim(-1))
  const position = ring === undefined ? row : inRing(row, ring, { startPos, tokens: scalar(arena, tokens) })
  const reached = position.le(own)
  const together = sequence === undefined
    ? reached
    : reached.and(position.floordiv(sequence).eq(own.floordiv(sequence)))
  const before = ring === undefined ? together : together.and(position.ge(0))
  return (window === undefined ? before : before.and(position.add(window).gt(own))).where(scores, hidden)
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
