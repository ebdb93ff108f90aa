/**
 * Guesses of a model's prediction block. It reads a text behind the model, whose states it needs, and catches up when it is asked. From
 * the last token on it goes on with its own guesses, each behind the row that stands in for the state of the one before.
 */
import { ownOf, settled } from "@tg/jit/Jit"
import * as Order from "@tg/model-parts/Order"
import { Effect } from "effect"
import { mostDrafts } from "./DraftLength.ts"
import type { Prediction } from "./PredictionPrograms.ts"
import { sizeFor } from "./Prompts.ts"
import * as Rings from "./Rings.ts"
import { invalid, type SessionState, type StepError } from "./SessionState.ts"
import { variablesOf } from "./StepProgram.ts"
import { commonPrefix } from "./Tokens.ts"
import { bytesOf, wordsOf } from "./Words.ts"

/** Compiles what guesses need behind steps of up to so many tokens. */
export const prepare = Effect.fnUntraced(function*({ prediction, prompts }: SessionState, tokens: number) {
  if (prediction === undefined) return
  yield* prediction.guess
  const most = sizeFor(prompts, tokens) ?? 1
  const sizes = prompts.sizes.filter((size) => size <= most)
  yield* Effect.forEach(sizes.length === 0 ? [1] : sizes, prediction.read, { discard: true })
})

/** Takes tokens of the text that the block has not read, up to the last one, and makes the first guess. */
const read = Effect.fnUntraced(function*(
  state: SessionState,
  prediction: Prediction,
  tokens: ReadonlyArray<number>
) {
  const { batch, batchFrom, few } = state.prompts
  const first = Math.min(commonPrefix(prediction.held, tokens), tokens.length - 1)
  const count = tokens.length - first
  for (const { length, start } of Rings.pieces(first, count, { chunk: count >= batchFrom ? batch : few })) {
    // pieces of a long text take one program
    const { order, prepared, size } = yield* prediction.read(count)
    const whole = order === "tokens" ? size ?? length : Order.wholeTiles(length)
    const positions = Array.from({ length: whole }, (_, i) => start + i)
    const ids = positions.map((position) => tokens[Math.min(position, start + length - 1)]!)
    // until the step has succeeded, only what stands before it is certain
    prediction.held = tokens.slice(0, start)
    yield* state.device.write(state.tokens, bytesOf(Uint32Array.from(ids)))
    yield* state.inputs.reach(start + whole)
    yield* prepared.run(ownOf(prepared, variablesOf(order, start, length)))
    prediction.held = tokens.slice(0, start + length)
    yield* Effect.yieldNow
  }
})

/** Up to so many tokens behind these. */
export const predict: (
  state: SessionState,
  tokens: ReadonlyArray<number>,
  most: number
) => Effect.Effect<ReadonlyArray<number>, StepError> = Effect.fnUntraced(function*(state, tokens, most) {
  const { prediction } = state
  if (prediction === undefined) return []
  const error = invalid(state, tokens)
  if (error !== undefined) return yield* error
  const last = tokens.length - 1
  const count = Math.min(most, mostDrafts, state.context - last)
  if (count < 1 || commonPrefix(state.held, tokens) < last) return []
  yield* read(state, prediction, tokens)
  const guess = yield* prediction.guess
  yield* state.inputs.reach(last + count)
  for (let i = 0; i < count - 1; i++) {
    yield* guess.run(ownOf(guess, { startPos: last + 1 + i, guess: i }))
  }
  const [bytes] = yield* settled(state, [{ buffer: prediction.drafts, offset: 0, bytes: 4 * count }])
  return [...wordsOf(bytes!)]
})
