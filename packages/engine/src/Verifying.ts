/** Steps that verify drafts: the logits after each of them, or the tokens that the device draws from these. */
import { settled } from "@tg/jit/Jit"
import type { Span } from "@tg/runtime/Device"
import { Effect } from "effect"
import { mostStep } from "./DraftLength.ts"
import { sizeFor } from "./Prompts.ts"
import * as Rings from "./Rings.ts"
import * as Sampler from "./Sampler.ts"
import { drawsOnDevice, invalid, refuse, reusable, type SessionState, type StepError } from "./SessionState.ts"
import * as Steps from "./Steps.ts"
import { wordsOf } from "./Words.ts"

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
    const { pieces, program } = Steps.prompt(state, { start, length: first - start })
    for (const piece of pieces) {
      yield* Steps.step(state, tokens, piece, program(piece.start), "nothing")
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
  return yield* Steps.rowsFrom(state, whole, {
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
      const { draws } = yield* Steps.step(state, whole, piece, state.programs.drafts(length, start))
      const { draw, tokens: drawn } = yield* draws
      const work = yield* draw(Array.from({ length }, (_, i) => ({ sampling, position: start + i + 1 })), 0)
      const read: Span = { buffer: drawn, offset: 0, bytes: 4 * length }
      const [found] = yield* settled(state, [work, read])
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
