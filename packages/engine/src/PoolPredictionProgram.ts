/** The programs of a prediction block over a pool of pages: tokens of any conversations in a step, one guess for each conversation. */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { piece } from "@tg/model-parts/Attention"
import { weightBuffers } from "@tg/model-parts/Decoder"
import * as Halves from "@tg/model-parts/Halves"
import type { PredictionOutput } from "@tg/model-parts/Prediction"
import * as Program from "@tg/tensor/Program"
import { buffer, scalar, type Tensor, variable } from "@tg/tensor/Tensor"
import { likeliest } from "./Likeliest.ts"
import { pagesFor } from "./Pages.ts"
import { placeIds, type PoolShape, statesIn } from "./PoolProgram.ts"
import { draftRoom, type Predicting, predictionIds } from "./PredictionProgram.ts"
import { hostInputs, ids } from "./StepProgram.ts"

/** Ids of buffers beside those of `PredictionProgram`: where the states in front of tokens lie. */
export const beforeId = placeIds.from

/** What tells these programs apart. */
export interface PoolPredictionShape
  extends Pick<PoolShape, "activations" | "cache" | "context" | "pieces" | "profile">
{
  /** Tokens of steps of all these programs at most, which buffers have room for. */
  readonly most: number
  /** Tokens and guesses of every step, if it takes no other number. */
  readonly size: number | undefined
}

/** The buffers that both programs have. */
const storageOf = (arena: Arena, { block, model }: Predicting, shape: PoolPredictionShape) => {
  const { cache, context, most, pieces: total, size } = shape
  const { config } = model
  const columns = pagesFor(context)
  const numbers = (id: number, label: string, rows: ReadonlyArray<number>, dtype: DType.DType = DType.i32) =>
    buffer(arena, id, { shape: rows, dtype, label })
  const pieces = numbers(placeIds.pieces, "pieces", [most, columns])
  return {
    numbers,
    columns,
    rows: size ?? variable(arena, "R", 1, most),
    drafts: numbers(predictionIds.drafts, "drafts", [draftRoom, most], DType.u32),
    hidden: buffer(arena, predictionIds.row, { shape: [most, config.embedding], dtype: DType.f32, label: "hidden" }),
    pieces: (count: Tensor | number) => pieces.slice(0, 0, count).slice(1, 0, variable(arena, "pieces", 1, columns)),
    input: {
      activations: shape.activations,
      profile: shape.profile,
      cache: buffer(arena, predictionIds.cache, {
        ...block.cache({ type: cache, context: piece * total }),
        label: "cache_mtp"
      }),
      buffers: weightBuffers(arena, { all: block.weights }, predictionIds.firstWeight),
      startPos: scalar(arena, 0),
      ...hostInputs(arena, model, { context })
    }
  }
}

/** Leaves guess number `at` of each conversation, and what stands in for the states. */
const left = (
  { drafts, hidden, rows }: Pick<ReturnType<typeof storageOf>, "drafts" | "hidden" | "rows">,
  made: PredictionOutput,
  at: Tensor | number
): Program.TensorProgram => {
  const places = drafts.slice(0, at, 1).slice(1, 0, rows)
  const found = likeliest(made.logits).label("sample")
  return Program.make([
    Program.assign(places, found.reshape([1, found.dim(0)])),
    Program.assign(hidden.slice(0, 0, rows), made.hidden),
    ...made.effects
  ])
}

/** Takes tokens behind states of the model, and leaves the first guess behind those that are wanted. Variables: T tokens, R guesses, `pieces`. */
export const readProgram = (predicting: Predicting, shape: PoolPredictionShape): Program.TensorProgram => {
  const arena = new Arena()
  const { block, model } = predicting
  const { most, size } = shape
  const { input, numbers, pieces, rows, ...own } = storageOf(arena, predicting, shape)
  const count = size ?? variable(arena, "T", 1, most)
  const ofTokens = (id: number, label: string, dtype?: DType.DType): Tensor =>
    numbers(id, label, [most], dtype).slice(0, 0, count)
  const position = ofTokens(placeIds.position, "position")
  const states = statesIn(arena, model, shape).gather(ofTokens(beforeId, "before"))
  const made = block.forward({
    ...input,
    tokens: ofTokens(ids.tokens, "tokens", DType.u32),
    // nothing is in front of position 0
    hidden: position.gt(0).reshape([position.dim(0), 1]).where(Halves.fromRows(states, model.config.embedding), 0),
    places: { position, row: ofTokens(placeIds.row, "row"), pieces: pieces(count) },
    rows: numbers(placeIds.wanted, "wanted", [most]).slice(0, 0, rows)
  })
  return left({ ...own, rows }, made, 0)
}

/** Takes guess number `guess` of each conversation, and leaves the next one. Variables: R conversations, `guess`, `pieces`. */
export const guessProgram = (predicting: Predicting, shape: PoolPredictionShape): Program.TensorProgram => {
  const arena = new Arena()
  const { block } = predicting
  const { drafts, hidden, input, numbers, pieces, rows } = storageOf(arena, predicting, shape)
  const guess = variable(arena, "guess", 0, draftRoom - 2)
  const ofGuess = (x: Tensor): Tensor => {
    const own = x.slice(0, guess, 1).slice(1, 0, rows)
    return own.reshape([own.dim(1)])
  }
  const at = (id: number, label: string): Tensor => ofGuess(numbers(id, label, [draftRoom, shape.most]))
  const made = block.forward({
    ...input,
    tokens: ofGuess(drafts),
    hidden: hidden.slice(0, 0, rows),
    places: {
      position: at(placeIds.among, "guess_position"),
      row: at(placeIds.begin, "guess_row"),
      pieces: pieces(rows)
    },
    rows: "all"
  })
  return left({ drafts, hidden, rows }, made, guess.add(1))
}
