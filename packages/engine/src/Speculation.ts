/**
 * Steps that verify drafts. A step of several tokens gives the logits behind each of them; as long as the tokens that are drawn
 * from them are those that were drafted, the next logits are there already. Whatever is proposed, every token is drawn
 * from the logits behind the text in front of it, with the random words of its place: the text is the one without drafts.
 */
import { Clock, Effect, Option } from "effect"
import { masked } from "./Shaping.ts"
import type * as Drafter from "./Drafter.ts"
import * as DraftLength from "./DraftLength.ts"
import * as Random from "./Random.ts"
import * as Sampler from "./Sampler.ts"
import type { Session, StepError } from "./Session.ts"
import { commonPrefix } from "./Tokens.ts"

/** What became of the drafts of a generation. */
export interface Drafts {
  /** Steps that were run, those of the prompt counted as one. */
  readonly steps: number
  /** Tokens that were drafted and verified. */
  readonly drafted: number
  /** Those of them that were right. */
  readonly accepted: number
}

/** As much of a session as is stepped. */
export type Steps = Pick<
  Session,
  "context" | "vocabulary" | "sampler" | "advance" | "next" | "verify" | "keep" | "prepareDrafts" | "reusable"
>

/** A session whose steps verify drafts. */
export interface Speculating extends Pick<Steps, "context" | "vocabulary" | "sampler" | "advance" | "next"> {
  readonly drafts: () => Drafts
  /** Makes the session hold nothing that was drafted and is not in the text. */
  readonly end: Effect.Effect<void>
}

/** Logits that are here: behind `tokens` and the first so many drafts, a row each. */
interface Verified {
  readonly tokens: ReadonlyArray<number>
  readonly drafts: ReadonlyArray<number>
  readonly rows: Float32Array
}

/** What a model drafts with on its device, and what it knows of it. */
export interface Speculation {
  readonly drafter: Drafter.Drafting
  readonly costs: DraftLength.Costs
}

/** Nothing is known of the device yet. */
export const make = (drafter: Drafter.Drafting): Speculation => ({ drafter, costs: DraftLength.costs() })

/** A generation's state. */
interface State {
  readonly steps: Steps
  readonly with: Speculation
  /** Tokens of the text at most. */
  readonly most: number
  readonly acceptance: DraftLength.Acceptance
  verified: Verified | undefined
  /** What was proposed behind so many tokens and not verified: whether it is right shows by itself. */
  proposed: { readonly at: number; readonly id: number } | undefined
  /** Whether the drafter once took too long: it is not asked again. */
  isSilent: boolean
  /** Steps of one token behind one another: from the third on, their times are those of decoding. */
  singles: number
  counts: Drafts
}

/** The row behind these tokens, if it is here. */
const rowOf = ({ steps, verified }: State, tokens: ReadonlyArray<number>): Float32Array | undefined => {
  if (verified === undefined) return undefined
  const { drafts, rows, tokens: before } = verified
  const row = tokens.length - before.length
  if (row < 0 || row > drafts.length || commonPrefix(before, tokens) < before.length) return undefined
  for (let i = 0; i < row; i++) if (tokens[before.length + i] !== drafts[i]) return undefined
  return rows.subarray(row * steps.vocabulary, (row + 1) * steps.vocabulary)
}

/** Learns from what has become of the last drafts: the text went on with these tokens. */
const settle = (state: State, tokens: ReadonlyArray<number>): void => {
  const { proposed, verified } = state
  if (verified !== undefined) {
    const { drafts, tokens: before } = verified
    // the last token that was drawn may not be among them
    const right = commonPrefix(drafts, tokens.slice(before.length))
    DraftLength.accepted(state.acceptance, { right, tried: Math.min(drafts.length, tokens.length - before.length) })
    state.counts = { ...state.counts, accepted: state.counts.accepted + right }
    state.verified = undefined
  } else if (proposed !== undefined && proposed.at < tokens.length) {
    DraftLength.accepted(state.acceptance, { right: tokens[proposed.at] === proposed.id ? 1 : 0, tried: 1 })
  }
  state.proposed = undefined
}

/** Milliseconds that a drafter may take: no step waits longer for guesses, and a text waits once. */
const mostMillis = 500

/** Drafts worth verifying behind these tokens. */
const draftsFor = Effect.fnUntraced(function*(state: State, tokens: ReadonlyArray<number>) {
  const { acceptance, steps, with: { costs, drafter } } = state
  const most = Math.min(DraftLength.mostDrafts, state.most - tokens.length - 1, steps.context - tokens.length)
  // a prompt is not held up, nor a text that the session has to go back for
  if (state.isSilent || most < 1 || steps.reusable(tokens) !== tokens.length - 1) return []
  const answered = yield* Effect.timeoutOption(drafter.propose(tokens, most), mostMillis)
  if (Option.isNone(answered)) {
    state.isSilent = true
    yield* Effect.logWarning(`drafts took longer than ${mostMillis} ms; this text goes on without`)
    return []
  }
  const given = answered.value.slice(0, most)
  const bad = given.findIndex((id) => !(Number.isInteger(id) && id >= 0 && id < steps.vocabulary))
  const proposed = bad < 0 ? given : given.slice(0, bad)
  if (proposed.length === 0) return []
  const length = drafter.policy === "likely"
    ? DraftLength.likelyLength(acceptance, proposed.length)
    : DraftLength.payingLength(acceptance, costs, proposed.length)
  if (length === 0) {
    state.proposed = { at: tokens.length, id: proposed[0]! }
    DraftLength.fade(costs)
  }
  return proposed.slice(0, length)
})

/** Runs a step, and takes its time. */
const timed = Effect.fnUntraced(function*<A>(state: State, count: number, step: Effect.Effect<A, StepError>) {
  const start = yield* Clock.currentTimeNanos
  const made = yield* step
  const time = Number((yield* Clock.currentTimeNanos) - start)
  state.singles = count > 1 ? 0 : state.singles + 1
  if (count > 1 || state.singles > 2) DraftLength.took(state.with.costs, count, time)
  state.counts = { ...state.counts, steps: state.counts.steps + 1 }
  return made
})

/** The row behind these tokens, verified with what is drafted behind them; nothing where nothing is. */
const verifiedRow = Effect.fnUntraced(function*(state: State, tokens: ReadonlyArray<number>) {
  const found = rowOf(state, tokens)
  if (found !== undefined) return found
  settle(state, tokens)
  const drafts = yield* draftsFor(state, tokens)
  if (drafts.length === 0) return undefined
  yield* state.steps.prepareDrafts(drafts.length + 1)
  const rows = yield* timed(state, drafts.length + 1, state.steps.verify(tokens, drafts)).pipe(
    // a draft may be what the model cannot compute; the text itself is asked for without it
    Effect.catchTag("InvalidLogits", () => Effect.undefined)
  )
  if (rows === undefined) return undefined
  // a copy: who asks may go on writing into the same list
  state.verified = { tokens: [...tokens], drafts, rows }
  state.counts = { ...state.counts, drafted: state.counts.drafted + drafts.length }
  return rowOf(state, tokens)
})

/** The session with drafts, for a text of at most so many tokens. */
export const over = (steps: Steps, speculation: Speculation, most: number): Speculating => {
  const { context, sampler, vocabulary } = steps
  const state: State = {
    steps,
    with: speculation,
    most,
    acceptance: DraftLength.acceptance(),
    verified: undefined,
    proposed: undefined,
    isSilent: false,
    singles: 0,
    counts: { steps: 0, drafted: 0, accepted: 0 }
  }
  /** Tokens that are known to be the text's. */
  let text: ReadonlyArray<number> = []
  return {
    context,
    vocabulary,
    sampler,
    advance: Effect.fnUntraced(function*(tokens) {
      text = tokens
      return (yield* verifiedRow(state, tokens)) ?? (yield* timed(state, 1, steps.advance(tokens)))
    }),
    next: Effect.fnUntraced(function*(tokens, sampling = Sampler.greedy, mask) {
      text = tokens
      const row = yield* verifiedRow(state, tokens)
      if (row === undefined) return yield* timed(state, 1, steps.next(tokens, sampling, mask))
      const allowed = mask === undefined ? row : masked(row, mask)
      const id = sampler.sample(allowed, sampling, Random.words(sampling.seed, tokens.length))
      return id ?? (yield* new Sampler.InvalidLogits({ position: tokens.length - 1, vocab: vocabulary, bad: 0 }))
    }),
    drafts: () => {
      const { counts, verified } = state
      return verified === undefined
        ? counts
        : { ...counts, accepted: counts.accepted + commonPrefix(verified.drafts, text.slice(verified.tokens.length)) }
    },
    end: Effect.suspend(() => {
      const isDrafted = state.verified !== undefined
      settle(state, text)
      return isDrafted ? steps.keep(text.length) : Effect.void
    })
  }
}
