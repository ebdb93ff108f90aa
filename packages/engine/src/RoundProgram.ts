/**
 * The programs of rounds that a device goes through by itself. A round verifies guesses, finds how many of them are right, and makes those of
 * the next round, which so stands behind a text that the host does not know yet: where tokens stand is data, as in a pool.
 */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { piece } from "@tg/model-parts/Attention"
import { weightBuffers } from "@tg/model-parts/Decoder"
import * as Halves from "@tg/model-parts/Halves"
import type { PredictionOutput } from "@tg/model-parts/Prediction"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, iota, scalar, type Tensor, variable } from "@tg/tensor/Tensor"
import { likeliest } from "./Likeliest.ts"
import { placeIds } from "./PoolProgram.ts"
import type { Predicting, PredictionShape } from "./PredictionProgram.ts"
import * as SampleProgram from "./SampleProgram.ts"
import { cacheRows, hostInputs, ids, type ModelShape, statesOf } from "./StepProgram.ts"
import * as TokenRing from "./TokenRing.ts"

/** Tokens of a round at most: the last one that is known, and the guesses behind it. */
export const mostRound = 8

/** Where draws leave tokens: one behind each token of a round. */
export const ring: TokenRing.TokenRing = { given: 0, each: mostRound }

/**
 * Ids of buffers. `tokens` and `position` are those that the next round feeds; `drawn` what was drawn behind them; `readAt` where the
 * block reads that; `upcoming` the positions of the round behind it, whose first token is `first`; `taken` how many guesses were right; `report`
 * what the host reads.
 */
export const roundIds = {
  tokens: ids.tokens,
  logits: ids.logits,
  drawn: ids.next,
  position: placeIds.position,
  readAt: placeIds.row,
  taken: placeIds.wanted,
  upcoming: placeIds.from,
  first: placeIds.among,
  report: placeIds.begin,
  cache: ids.firstCache,
  firstWeight: ids.firstCache + 1
} as const

/** Ids of the state's stand-in in programs of the block, which have no logits. */
const rowId = ids.logits

/** Words of the report: the tokens of a round, what was drawn behind each, and how many guesses were right. */
export const reportWords = 2 * mostRound + 1

/** What tells these programs apart. */
export type RoundShape = Pick<PredictionShape, "activations" | "cache" | "context" | "profile">

/** Pieces of a session's cache. */
export const piecesOf = (context: number): number => cacheRows(context) / piece

/** The buffers that programs of rounds share. */
const buffersOf = (arena: Arena) => {
  const made = (id: number, label: string, count: number, dtype: DType.DType) =>
    buffer(arena, id, { shape: [count], dtype, label })
  return {
    tokens: made(roundIds.tokens, "round_tokens", mostRound, DType.u32),
    drawn: TokenRing.bufferOf(arena, ring, roundIds.drawn),
    position: made(roundIds.position, "round_position", mostRound, DType.i32),
    readAt: made(roundIds.readAt, "round_read_at", mostRound, DType.i32),
    taken: made(roundIds.taken, "round_taken", 1, DType.i32),
    upcoming: made(roundIds.upcoming, "round_upcoming", mostRound, DType.i32),
    first: made(roundIds.first, "round_first", 1, DType.u32),
    report: made(roundIds.report, "round_report", reportWords, DType.u32)
  }
}

/** Where tokens stand in a session's cache, which is one conversation's: a token's row is its position. */
const placesOf = (arena: Arena, position: Tensor, { context }: RoundShape) => ({
  position,
  row: position,
  pieces: variable(arena, "pieces", 1, piecesOf(context))
})

const statesIn = (arena: Arena, { config }: Pick<ModelShape, "config">, shape: RoundShape): Tensor =>
  buffer(arena, ids.states, { ...statesOf(config, shape), label: "states" })

/** A token of the vocabulary, whatever was drawn: behind one that is none the text ends. */
const token = (drawn: Tensor, { config }: Pick<ModelShape, "config">): Tensor => drawn.minimum(config.vocabulary - 1)

/** Takes the tokens of a round, so many, and leaves the logits and the likeliest token behind each. */
export const verifyProgram = (model: ModelShape, shape: RoundShape, count: number): Program.TensorProgram => {
  const { activations, cache, context, profile } = shape
  const arena = new Arena()
  const { drawn, position, tokens } = buffersOf(arena)
  const { config } = model
  const { effects, logits } = model.forward({
    activations,
    profile,
    tokens: tokens.slice(0, 0, count),
    count: scalar(arena, count),
    startPos: scalar(arena, 0),
    caches: model.caches({ type: cache, context: cacheRows(context) }).map((storage, i) =>
      buffer(arena, ids.firstCache + i, { ...storage, label: `cache_${i}` })
    ),
    states: statesIn(arena, model, shape),
    buffers: weightBuffers(arena, model.weights, ids.firstCache + config.layers),
    ...hostInputs(arena, model, shape),
    places: placesOf(arena, position.slice(0, 0, count), shape),
    rows: "all"
  })
  const rows = buffer(arena, roundIds.logits, {
    shape: [mostRound, config.vocabulary],
    dtype: DType.f32,
    label: "logits"
  })
  const write = Program.assign(rows.slice(0, 0, count), logits)
  const found = likeliest(Program.after(rows, [write]).slice(0, 0, count))
  return Program.make([write, Program.assign(drawn.slice(0, 0, count), found.label("sample")), ...effects])
}

/** The rules of a round's draws, by the places of its tokens: of settings there is the rule, with the seed's key for its first word. */
export const rulesProgram = (): Program.TensorProgram => {
  const arena = new Arena()
  const { ruleWords } = SampleProgram
  const { position } = buffersOf(arena)
  const settings = buffer(arena, SampleProgram.ids.mask, { shape: [1, ruleWords], dtype: DType.u32, label: "settings" })
  const rules = buffer(arena, SampleProgram.ids.rule, {
    shape: [mostRound, ruleWords],
    dtype: DType.u32,
    label: "rules"
  })
  const place = position.add(1).cast(DType.u32).reshape([mostRound, 1])
  const own = SampleProgram.wordsAt(settings.slice(1, 0, 1), place)
  const rest = settings.slice(1, 2, ruleWords - 2).expand([mostRound, ruleWords - 2])
  return Program.make([Program.assign(rules, Nn.cat([...own, rest], -1))])
}

/**
 * How many guesses of a round of so many tokens are right, and where the tokens behind them stand. `right` says how many are taken for right,
 * `mostRound` that it is what they are.
 */
export const acceptProgram = (model: Pick<ModelShape, "config">, count: number): Program.TensorProgram => {
  const arena = new Arena()
  const { drawn, first, position, readAt, report, taken, tokens, upcoming } = buffersOf(arena)
  const guesses = count - 1
  const order = (n: number): Tensor => iota(arena, n).cast(DType.i32)
  const isWrong = drawn.slice(0, 0, guesses).ne(tokens.slice(0, 1, guesses))
  const found = isWrong.where(order(guesses), guesses).min({ axis: 0, keepDims: true })
  const right = variable(arena, "right", 0, mostRound).cast(DType.i32).reshape([1])
  const write = Program.assign(taken, right.lt(count).where(right, found))
  const known = Program.after(taken, [write])
  return Program.make([
    write,
    Program.assign(readAt, position.add(1)),
    Program.assign(upcoming, position.slice(0, 0, 1).add(known).add(1).expand([mostRound]).add(order(mostRound))),
    Program.assign(first, token(drawn.gather(known), model)),
    Program.assign(report, Nn.cat([tokens, drawn.slice(0, 0, mostRound), known.cast(DType.u32)], 0))
  ])
}

/** What programs of the block share. */
const blockOf = (arena: Arena, { block, model: { config } }: Predicting, { cache, context }: RoundShape) => ({
  row: buffer(arena, rowId, { shape: [1, config.embedding], dtype: DType.f32, label: "hidden" }),
  cache: buffer(arena, roundIds.cache, {
    ...block.cache({ type: cache, context: cacheRows(context) }),
    label: "cache_mtp"
  }),
  buffers: weightBuffers(arena, { all: block.weights }, roundIds.firstWeight),
  startPos: scalar(arena, 0)
})

/** Leaves a guess among the tokens of the next round, and what stands in for its state. */
const left = (
  { row, tokens }: { readonly row: Tensor; readonly tokens: Tensor },
  { effects, hidden, logits }: PredictionOutput,
  at: Tensor | number
): ReadonlyArray<Tensor> => [
  Program.assign(tokens.slice(0, at, 1), likeliest(logits).label("sample")),
  Program.assign(row, hidden),
  ...effects
]

/** The block takes what a round of so many tokens has drawn, and leaves the first guess behind what was right, and where the next round stands. */
export const readProgram = (predicting: Predicting, shape: RoundShape, count: number): Program.TensorProgram => {
  const { activations, profile } = shape
  const { block, model } = predicting
  const arena = new Arena()
  const { drawn, first, position, readAt, taken, tokens, upcoming } = buffersOf(arena)
  const { row, ...own } = blockOf(arena, predicting, shape)
  const at = readAt.slice(0, 0, count)
  const { embedding } = model.config
  // the state in front of a token: nothing is read in front of position 0
  const states = statesIn(arena, model, shape).gather(at.sub(1))
  const made = block.forward({
    activations,
    profile,
    ...own,
    tokens: token(drawn.slice(0, 0, count), model),
    count: scalar(arena, count),
    hidden: Halves.fromRows(states, embedding),
    ...hostInputs(arena, model, shape),
    places: placesOf(arena, at, shape),
    rows: taken
  })
  return Program.make([
    ...left({ row, tokens }, made, 1),
    Program.assign(tokens.slice(0, 0, 1), first),
    Program.assign(position, upcoming)
  ])
}

/** Takes guess number `guess` of the next round, counted from 1, and leaves the one behind it. */
export const guessProgram = (predicting: Predicting, shape: RoundShape): Program.TensorProgram => {
  const { activations, profile } = shape
  const { block, model } = predicting
  const arena = new Arena()
  const { tokens, upcoming } = buffersOf(arena)
  const { row, ...own } = blockOf(arena, predicting, shape)
  const guess = variable(arena, "guess", 1, mostRound - 2)
  const made = block.forward({
    activations,
    profile,
    ...own,
    tokens: tokens.slice(0, guess, 1),
    hidden: row,
    ...hostInputs(arena, model, shape),
    places: placesOf(arena, upcoming.slice(0, guess, 1), shape),
    rows: "last"
  })
  return Program.make(left({ row, tokens }, made, guess.add(1)))
}
