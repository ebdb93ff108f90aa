/** Steps of several tokens: prompts, and all logits of a piece of text. */
import { ownOf } from "@tg/jit/Jit"
import * as Order from "@tg/model-parts/Order"
import { Effect } from "effect"
import { type Piece, sizeFor } from "./Prompts.ts"
import * as Rings from "./Rings.ts"
import type { Compiling, OfTokens, Variant } from "./SessionPrograms.ts"
import { invalid, read, reusable, type SessionState, type StepError } from "./SessionState.ts"
import { variablesOf } from "./StepProgram.ts"
import * as Tokens from "./Tokens.ts"
import { bytesOf } from "./Words.ts"

/** Puts a piece of the tokens behind those in front of it, with its logits or without. */
export const step = Effect.fnUntraced(function*(
  state: SessionState,
  tokens: ReadonlyArray<number>,
  { length, start }: Piece,
  program: Compiling<Variant>,
  leaves: "logits" | "nothing" = "logits"
) {
  const variant = yield* program
  const { order, prepared, size } = variant
  const replay = leaves === "logits" ? prepared : yield* variant.filling
  const whole = order === "tokens" ? size ?? length : Order.wholeTiles(length)
  // a tile or a step that is not full repeats the last token; nobody looks at what becomes of it
  const tokenIds = Array.from({ length: whole }, (_, i) => tokens[start + Math.min(i, length - 1)]!)
  // until the step has succeeded, only what stands before it is certain
  state.ahead = undefined
  if (state.held.length !== start) state.held = tokens.slice(0, start)
  state.forgotten = Rings.afterStep(state.ring, state.forgotten, { start, tokens: whole })
  yield* state.device.write(state.tokens, bytesOf(Uint32Array.from(tokenIds)))
  yield* state.inputs.reach(start + whole)
  yield* replay.run(ownOf(prepared, variablesOf(order, start, length)))
  state.held = tokens.slice(0, start + length)
  return variant
})

/** How a session processes so many tokens behind `start` others. */
export const prompt = (state: SessionState, { length, start }: Piece) => {
  const { programs, prompts, ring } = state
  const { batch, batchFrom, few } = prompts
  const isBatch = length >= batchFrom
  return {
    pieces: Rings.pieces(start, length, { chunk: isBatch ? batch : few, ring }),
    // pieces of a prompt that is no batch take one program: another one would have to be compiled too
    program: (start: number) => isBatch ? programs.batch : programs.few(length, start)
  }
}

/** Makes the session hold exactly these tokens; answers with the logits after the last. */
export const advance: (
  state: SessionState,
  tokens: ReadonlyArray<number>
) => Effect.Effect<Float32Array, StepError> = Effect.fnUntraced(function*(state, tokens) {
  const error = invalid(state, tokens)
  if (error !== undefined) return yield* error
  const start = reusable(state, tokens)
  const { pieces, program } = prompt(state, { start, length: tokens.length - start })
  let last: Variant | undefined
  for (const piece of pieces) {
    last = yield* step(state, tokens, piece, program(piece.start), piece === pieces.at(-1) ? "logits" : "nothing")
    // between steps signals and other fibers get their turn
    yield* Effect.yieldNow
  }
  return yield* read(state, last!.logits, { start: tokens.length - 1, rows: 1 })
})

/** Puts the tokens from `first` on behind those before it; answers with the logits after each. */
export const rowsFrom = Effect.fnUntraced(function*(
  state: SessionState,
  tokens: ReadonlyArray<number>,
  { chunk, first, program }: {
    readonly first: number
    readonly chunk: number
    readonly program: OfTokens
  }
) {
  const { vocabulary } = state.model.config
  const rows = new Float32Array((tokens.length - first) * vocabulary)
  for (const piece of Rings.pieces(first, tokens.length - first, { chunk, ring: state.ring })) {
    const { length, start } = piece
    const { logits } = yield* step(state, tokens, piece, program(length, start))
    yield* Effect.yieldNow
    rows.set(yield* read(state, logits, { start, rows: length }), (start - first) * vocabulary)
  }
  return rows
})

/** Appends up to `chunk` tokens; answers with the logits after each. */
export const append: (
  state: SessionState,
  tokens: ReadonlyArray<number>
) => Effect.Effect<Float32Array, StepError> = Effect.fnUntraced(function*(state, tokens) {
  const { batchFrom, chunk } = state.prompts
  const whole = [...state.held, ...tokens]
  const error = invalid(state, tokens) ?? invalid(state, whole)
  if (error !== undefined) return yield* error
  if (tokens.length > chunk) {
    return yield* new Tokens.InvalidTokens({
      message: `${tokens.length} tokens were appended at once; the session takes up to ${chunk}`
    })
  }
  const most = batchFrom <= chunk ? chunk : sizeFor(state.prompts, chunk) ?? chunk
  return yield* rowsFrom(state, whole, { first: state.held.length, chunk: most, program: state.programs.all })
})
