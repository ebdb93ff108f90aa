/** Steps of several tokens: prompts, and all logits of a piece of text. */
import { ownOf } from "@tg/jit/Jit"
import * as Order from "@tg/model-parts/Order"
import { type Span, together } from "@tg/runtime/Device"
import { Effect } from "effect"
import { mostStep } from "./DraftLength.ts"
import { type Piece, sizeFor } from "./Prompts.ts"
import * as Rings from "./Rings.ts"
import type { Compiling, OfTokens, Variant } from "./SessionPrograms.ts"
import * as Sampler from "./Sampler.ts"
import {
  drawsOnDevice,
  invalid,
  read,
  refuse,
  reusable,
  type SessionState,
  settling,
  type StepError
} from "./SessionState.ts"
import { variablesOf } from "./StepProgram.ts"
import * as Tokens from "./Tokens.ts"
import { bytesOf, wordsOf } from "./Words.ts"

/** Puts a piece of the tokens behind those in front of it, with its logits or without. */
const step = Effect.fnUntraced(function*(
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
const rowsFrom = Effect.fnUntraced(function*(
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

/** Makes the session hold all tokens but the last, unless it is known that these and the drafts are no text. */
const reach = Effect.fnUntraced(function*(
  state: SessionState,
  tokens: ReadonlyArray<number>,
  drafts: ReadonlyArray<number>
): Effect.fn.Return<void, StepError> {
  const error = invalid(state, tokens) ?? invalid(state, [...tokens, ...drafts])
  if (error !== undefined) return yield* error
  const first = tokens.length - 1
  const start = reusable(state, tokens)
  if (start < first) {
    const { pieces, program } = prompt(state, { start, length: first - start })
    for (const piece of pieces) {
      yield* step(state, tokens, piece, program(piece.start), "nothing")
      yield* Effect.yieldNow
    }
  }
})

/** Tokens of a step that verifies drafts, at most. */
const draftChunk = ({ prompts }: SessionState): number => sizeFor(prompts, mostStep) ?? mostStep

/** Makes the session hold these tokens and drafts behind them; answers with the logits after the last token and each draft. */
export const verify: (
  state: SessionState,
  tokens: ReadonlyArray<number>,
  drafts: ReadonlyArray<number>
) => Effect.Effect<Float32Array, StepError> = Effect.fnUntraced(function*(state, tokens, drafts) {
  yield* reach(state, tokens, drafts)
  const whole = [...tokens, ...drafts]
  return yield* rowsFrom(state, whole, {
    first: tokens.length - 1,
    chunk: draftChunk(state),
    program: state.programs.drafts
  })
})

/** The same, answering with the tokens that the device draws from those logits: four bytes for each instead of a vocabulary. */
export const verifyDrawn: (
  state: SessionState,
  tokens: ReadonlyArray<number>,
  drafts: ReadonlyArray<number>,
  sampling: Sampler.Settings
) => Effect.Effect<ReadonlyArray<number> | undefined, StepError> = Effect.fnUntraced(
  function*(state, tokens, drafts, sampling) {
    if (!drawsOnDevice(state, sampling)) return undefined
    const { vocabulary } = state.model.config
    yield* reach(state, tokens, drafts)
    const chunk = draftChunk(state)
    const whole = [...tokens, ...drafts]
    const ids: Array<number> = []
    for (const piece of Rings.pieces(tokens.length - 1, 1 + drafts.length, { chunk, ring: state.ring })) {
      const { length, start } = piece
      const { draws } = yield* step(state, whole, piece, state.programs.drafts(length, start))
      const { draw, tokens: drawn } = yield* draws
      const work = yield* draw(Array.from({ length }, (_, i) => ({ sampling, position: start + i + 1 })), 0)
      const read: Span = { buffer: drawn, offset: 0, bytes: 4 * length }
      const [found] = yield* settling(state, together(state.device, [work, read]))
      ids.push(...wordsOf(found!))
    }
    const bad = ids.findIndex((id) => id >= vocabulary)
    if (bad < 0) return ids
    return yield* refuse(state, new Sampler.InvalidLogits({ position: tokens.length - 1 + bad, vocab: vocabulary }))
  }
)

/** Compiles what `verify` runs for so many tokens, and what draws by these settings. */
export const prepareDrafts = Effect.fnUntraced(function*(
  state: SessionState,
  tokens: number,
  sampling: Sampler.Settings | undefined
) {
  const { draws } = yield* state.programs.drafts(tokens, state.held.length)
  if (sampling === undefined || !drawsOnDevice(state, sampling)) return
  yield* (yield* draws).draw([{ sampling, position: 0 }], 0)
})
