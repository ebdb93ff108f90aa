/**
 * A text whose tokens a device draws one behind the other: steps are submitted before the tokens of those in front of them have come back,
 * and before anyone has asked for them. Who asks for something else leaves the course; what is drawn on it then is dropped.
 */
import { isSameSampling } from "./Ahead.ts"
import type { RowDraw } from "./DrawRows.ts"
import type * as Sampler from "./Sampler.ts"
import { type Drawn, mostAhead } from "./TokenRing.ts"
import { commonPrefix } from "./Tokens.ts"

/** A text on its way. */
export interface Course {
  readonly sampling: Sampler.Settings
  /** Tokens of the text that nobody has drawn. */
  readonly given: number
  /** The tokens that are known. */
  readonly text: Array<number>
  /** Those behind them that steps under way draw, in order. */
  readonly pending: Array<Drawn>
  /** Tokens of the text that was asked for last. */
  asked: number
}

/** The token that a course feeds next: where it stands, and which it is, or which of a step under way. */
export interface Next {
  readonly position: number
  readonly token: number
  readonly from: Drawn | undefined
}

/**
 * Tokens behind a text that are computed before more is asked for: those of all steps under way, that which has just come back, and one more,
 * so that nobody misses a step who takes as long as a step to ask again.
 */
const mostDrawn = mostAhead + 2

/** A course that begins with a text behind which a step draws. */
export const begin = (sampling: Sampler.Settings, text: ReadonlyArray<number>): Course => ({
  sampling,
  given: text.length,
  text: [...text],
  pending: [],
  asked: text.length
})

/** Whether what is asked for goes on with the course: behind some of its tokens, or behind all. */
export const continues = (
  { given, sampling, text }: Course,
  tokens: ReadonlyArray<number>,
  draw: Pick<RowDraw, "mask" | "sampling">
): boolean =>
  draw.mask === undefined && isSameSampling(sampling, draw.sampling) && tokens.length >= given &&
  commonPrefix(text, tokens) === tokens.length

/** What it feeds next, in a context of so many tokens; nothing, where it is far enough ahead. */
export const nextOf = ({ asked, pending, text }: Course, context: number): Next | undefined => {
  const drawn = text.length + pending.length
  return drawn > context || drawn - asked >= mostDrawn
    ? undefined
    : { position: drawn - 1, token: pending.length > 0 ? 0 : text.at(-1)!, from: pending.at(-1) }
}

/** The draw of the token behind so many. */
export const drawAt = ({ sampling }: Course, position: number): RowDraw => ({ sampling, position })
