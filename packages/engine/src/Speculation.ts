/**
 * Steps that verify drafts. A step of several tokens gives the logits behind each of them; as long as the tokens that are drawn
 * from them are those that were drafted, the next logits are there already. Whatever is proposed, every token is drawn
 * from the logits behind the text in front of it, with the random words of its place: the text is the one without drafts.
 */
import { Clock, Effect, Exit, Option, Result } from "effect"
import { masked } from "./Shaping.ts"
import type * as Drafter from "./Drafter.ts"
import { isSameSampling } from "./Ahead.ts"
import * as DraftLength from "./DraftLength.ts"
import * as Random from "./Random.ts"
import * as RoundLength from "./RoundLength.ts"
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
  | "context"
  | "vocabulary"
  | "sampler"
  | "advance"
  | "next"
  | "verify"
  | "verifyDrawn"
  | "predict"
  | "round"
  | "keep"
  | "prepareDrafts"
  | "reusable"
>

/** A session whose steps verify drafts. */
export interface Speculating extends Pick<Steps, "context" | "vocabulary" | "sampler" | "advance" | "next"> {
  readonly drafts: () => Drafts
  /** Makes the session hold nothing that was drafted and is not in the text. */
  readonly end: Effect.Effect<void>
}

/** Logits, a row behind `tokens` and each of the drafts, or the tokens that the device has drawn from them by these settings. */
type Results = { readonly rows: Float32Array } | {
  readonly ids: ReadonlyArray<number>
  readonly sampling: Sampler.Settings
}

/** A step that is done. */
interface Verified {
  readonly source: Drafter.Source
  readonly tokens: ReadonlyArray<number>
  readonly drafts: ReadonlyArray<number>
  readonly results: Results
}

/** What it has for a place in the text: logits, or the token. */
type Found = { readonly row: Float32Array } | { readonly id: number }

/** What a model drafts with on its device, and what it knows of it. */
export interface Speculation {
  readonly drafter: Drafter.Drafting
  readonly costs: DraftLength.Costs
}

/** Nothing is known of the device yet. */
export const make = (drafter: Drafter.Drafting): Speculation => ({ drafter, costs: DraftLength.costs() })

/** What is known of a text. */
export interface Text {
  /** Tokens that it may have, its prompt included. */
  readonly most: number
  /** What its tokens are drawn by; the likeliest ones, if it is not said. */
  readonly sampling?: Sampler.Settings | undefined
}

/** A generation's state. */
interface State {
  readonly steps: Steps
  readonly with: Speculation
  readonly text: Text
  readonly acceptances: ReadonlyMap<Drafter.Source, DraftLength.Acceptance>
  verified: Verified | undefined
  /** What was proposed behind so many tokens and not verified: whether it is right shows by itself. */
  proposed: { readonly source: Drafter.Source; readonly at: number; readonly id: number } | undefined
  /** What once took too long, or failed: it is not asked again. */
  readonly silent: Set<Drafter.Source>
  /** What was asked in this text before: the first time may take longer, for all of the prompt. */
  readonly asked: Set<Drafter.Source>
  /** Steps of one token behind one another: from the third on, their times are those of decoding. */
  singles: number
  counts: Drafts
}

/** What is here behind these tokens: the token that the settings draw, if there are any, or logits. */
const foundOf = (
  { steps, verified }: State,
  tokens: ReadonlyArray<number>,
  sampling: Sampler.Settings | undefined
): Found | undefined => {
  if (verified === undefined) return undefined
  const { drafts, results, tokens: before } = verified
  const row = tokens.length - before.length
  if (row < 0 || row > drafts.length || commonPrefix(before, tokens) < before.length) return undefined
  for (let i = 0; i < row; i++) if (tokens[before.length + i] !== drafts[i]) return undefined
  if ("rows" in results) return { row: results.rows.subarray(row * steps.vocabulary, (row + 1) * steps.vocabulary) }
  return sampling !== undefined && isSameSampling(sampling, results.sampling) ? { id: results.ids[row]! } : undefined
}

/** Learns from what has become of the last drafts: the text went on with these tokens. */
const settle = (state: State, tokens: ReadonlyArray<number>): void => {
  const { proposed, verified } = state
  if (verified !== undefined) {
    const { drafts, tokens: before } = verified
    // the last token that was drawn may not be among them
    const right = commonPrefix(drafts, tokens.slice(before.length))
    DraftLength.accepted(state.acceptances.get(verified.source)!, {
      right,
      tried: Math.min(drafts.length, tokens.length - before.length)
    })
    state.counts = { ...state.counts, accepted: state.counts.accepted + right }
    DraftLength.lost(state.with.costs, { steps: 0, tokens: right + 1 })
    state.verified = undefined
  }
  if (proposed !== undefined && proposed.at < tokens.length) {
    DraftLength.accepted(state.acceptances.get(proposed.source)!, {
      right: tokens[proposed.at] === proposed.id ? 1 : 0,
      tried: 1
    })
  }
  state.proposed = undefined
}

/** Steps of one token behind drafts that are slower than others: the device has to begin again to run ahead. */
const slowSingles = 2
/** Steps of one token that a step of drafts or one behind them is taken to last at most: the rest is compiling, or reading a prompt. */
const believed = 4

/** A step of drafts, or one behind them, has taken so long, and made this many tokens as far as that is known. */
const spent = (costs: DraftLength.Costs, time: number, tokens: number): void => {
  if (costs.single === 0) return
  DraftLength.lost(costs, { steps: Math.min(time / costs.single, believed), tokens })
}

/** Milliseconds that guesses without a model may take: no step waits longer for them, and a text waits once. */
const mostMillis = 500

/** What a source proposes behind these tokens: none for good, if it takes too long or fails. */
const proposalOf = Effect.fnUntraced(function*(
  { asked, silent, steps, text, with: { costs } }: State,
  source: Drafter.Source,
  { most, tokens }: { readonly tokens: ReadonlyArray<number>; readonly most: number }
) {
  const asking = { sampling: text.sampling ?? Sampler.greedy, predict: steps.predict }
  const start = yield* Clock.currentTimeNanos
  const answer = source.propose(tokens, most, asking)
  // a timer for each token would take longer than most lookups: what is there already needs none
  const isWaitedFor: boolean = source.isComputed || Exit.isExit(answer)
  const answered = yield* Effect.result(
    isWaitedFor ? Effect.map(answer, Option.some) : Effect.timeoutOption(answer, mostMillis)
  )
  if (Result.isFailure(answered) || Option.isNone(answered.success)) {
    silent.add(source)
    const why = Result.isFailure(answered) ? `failed: ${answered.failure.message}` : `took longer than ${mostMillis} ms`
    yield* Effect.logWarning(`drafts (${source.name}) ${why}; this text goes on without`)
    return []
  }
  const given = answered.success.value.slice(0, most)
  const time = Number((yield* Clock.currentTimeNanos) - start)
  if (source.isComputed && asked.has(source)) {
    DraftLength.proposed(costs, source.name, { tokens: given.length, time })
    spent(costs, time, 0)
  }
  asked.add(source)
  const bad = given.findIndex((id) => !(Number.isInteger(id) && id >= 0 && id < steps.vocabulary))
  return bad < 0 ? given : given.slice(0, bad)
})

/** How it may be drafted: up to so many tokens, by the block in rounds or one after the other. */
interface Manner {
  readonly most: number
  readonly inRounds: boolean
}

/** Whether the last step verified drafts: a device that runs ahead has more of them under way. */
const isGoingOn = ({ counts, singles }: State): boolean => singles === 0 && counts.drafted > 0

/** What a source is worth: how many tokens, how many times as fast the text is with them, and the steps that are lost if none is right. */
const worthOf = (state: State, source: Drafter.Source, { inRounds, most }: Manner) => {
  const { acceptances, with: { costs } } = state
  const acceptance = acceptances.get(source)!
  if (inRounds && source.isOwn === true) {
    const { guesses, speed } = RoundLength.best(acceptance, costs)
    const [gain, round] = [costs.single * speed, RoundLength.costOf(costs, guesses + 1) / costs.single]
    // rounds that end leave one behind that is lost, and so do rounds that begin in vain
    return { drafts: gain > (isGoingOn(state) ? 1 : DraftLength.margin) ? guesses : 0, gain, losing: 2 * round }
  }
  const found = DraftLength.paying(acceptance, costs, { most, name: source.name })
  return { ...found, losing: DraftLength.costOf(costs, found.drafts + 1) }
}

/** The sources that are asked. */
const heardOf = ({ silent, with: { drafter } }: State): ReadonlyArray<Drafter.Source> =>
  drafter.sources.filter((source) => !silent.has(source))

/** What a source is to those who judge its guesses. */
const kindOf = ({ isComputed, isOwn }: Drafter.Source) => isOwn === true ? "own" : isComputed ? "model" : "free"

/**
 * Whether drafts of a source may lose so many steps. One whose guesses cost nothing makes them where it was right before; where it was right all the time, whatever
 * was lost.
 */
const isAfforded = (state: State, source: Drafter.Source, losing: number): boolean => {
  const acceptance = state.acceptances.get(source)!
  const hasCredit = DraftLength.isAfforded(state.with.costs, losing, isGoingOn(state))
  return source.isComputed
    ? hasCredit
    : DraftLength.isTrusted(acceptance) && (hasCredit || DraftLength.isSure(acceptance))
}

/** A source worth asking, and for how many tokens. */
interface Candidate {
  readonly source: Drafter.Source
  readonly drafts: number
}

/** The sources worth asking, the best one first. */
const worthAsking = (state: State, manner: Manner): ReadonlyArray<Candidate> => {
  const { acceptances, with: { costs, drafter } } = state
  const heard = heardOf(state)
  if (drafter.policy === "likely") {
    return heard
      .map((source) => ({
        source,
        drafts: manner.inRounds && source.isOwn === true
          ? RoundLength.best(acceptances.get(source)!, costs).guesses
          : DraftLength.lengthOf(acceptances.get(source)!, costs, manner.most)
      }))
      // of a source that costs nothing it shows without drafts how good it is
      .filter(({ drafts, source }) =>
        source.isComputed || isAfforded(state, source, DraftLength.costOf(costs, drafts + 1))
      )
  }
  return heard
    .map((source) => ({ source, ...worthOf(state, source, manner) }))
    .filter(({ drafts, losing, source }) => drafts > 0 && isAfforded(state, source, losing))
    .sort((a, b) => b.gain - a.gain)
}

/** Sees what a source that costs nothing would have proposed where it makes no drafts, to know how good it is. */
const lookAt = Effect.fnUntraced(
  function*(state: State, tokens: ReadonlyArray<number>, candidates: ReadonlyArray<Candidate>) {
    const free = heardOf(state).find(({ isComputed }) => !isComputed)
    if (free === undefined || candidates.some(({ source }) => source === free)) return
    const [id] = yield* proposalOf(state, free, { tokens, most: 1 })
    if (id !== undefined) state.proposed = { source: free, at: tokens.length, id }
  }
)

/** Where no draft pays, what is known of drafts fades, so that they are tried again. */
const fade = (state: State): void => {
  const { acceptances, proposed, with: { costs } } = state
  const heard = heardOf(state)
  for (const source of heard) if (source.isOwn === true) DraftLength.forget(acceptances.get(source)!)
  if (proposed === undefined && !heard.some(({ isComputed }) => isComputed)) return
  DraftLength.fade(costs)
  RoundLength.fade(costs)
}

/** Drafts that there is room for behind these tokens. */
const mostBehind = ({ steps, text }: State, tokens: ReadonlyArray<number>): number =>
  Math.min(DraftLength.mostDrafts, text.most - tokens.length - 1, steps.context - tokens.length)

/** Runs a step, and takes its time. */
const timed = Effect.fnUntraced(function*<A>(state: State, count: number, step: Effect.Effect<A, StepError>) {
  const { with: { costs } } = state
  const start = yield* Clock.currentTimeNanos
  const made = yield* step
  const time = Number((yield* Clock.currentTimeNanos) - start)
  // behind steps of one token that run ahead, drafts wait for those under way: a loss, but not what their step takes
  const isAlone = state.singles < slowSingles
  state.singles = count > 1 ? 0 : state.singles + 1
  const isSlow = state.singles <= slowSingles
  if (count > 1 ? isAlone : !isSlow) DraftLength.took(costs, count, time)
  if (count > 1 || isSlow && state.counts.drafted > 0) spent(costs, time, count > 1 ? 0 : 1)
  else DraftLength.saved(costs)
  state.counts = { ...state.counts, steps: state.counts.steps + 1 }
  return made
})

/** A step of these tokens and drafts: what the settings draw, where there are any and the device draws; logits elsewhere. */
const resultsOf = Effect.fnUntraced(function*(
  { steps }: State,
  { drafts, sampling, tokens }: Pick<Verified, "tokens" | "drafts"> & {
    readonly sampling: Sampler.Settings | undefined
  }
): Effect.fn.Return<Results, StepError> {
  const ids = sampling === undefined ? undefined : yield* steps.verifyDrawn(tokens, drafts, sampling)
  return ids === undefined ? { rows: yield* steps.verify(tokens, drafts) } : { ids, sampling: sampling! }
})

/** Whether so many drafts were made and verified by the device, in a round that may have been under way already. */
const rounded = Effect.fnUntraced(function*(
  state: State,
  tokens: ReadonlyArray<number>,
  { drafts: guesses, sampling, source }: Candidate & { readonly sampling: Sampler.Settings }
) {
  const { asked, steps, with: { costs } } = state
  const start = yield* Clock.currentTimeNanos
  // at the end of a text some are not needed: a smaller round would have to be compiled
  const round = yield* steps.round(tokens, { guesses, sampling }).pipe(
    // what the model cannot compute is asked for without drafts
    Effect.catchTag("InvalidLogits", () => Effect.undefined)
  )
  if (round === undefined) return false
  const { drafts, ids } = round
  const time = Number((yield* Clock.currentTimeNanos) - start)
  // the first one behind steps of one token reads what they have written; of a text, all of it
  if (state.singles === 0 && asked.has(source)) RoundLength.took(costs, ids.length, time)
  spent(costs, time, 0)
  asked.add(source)
  state.singles = 0
  state.verified = { source, tokens: [...tokens], drafts, results: { ids, sampling } }
  const { counts } = state
  state.counts = { ...counts, steps: counts.steps + 1, drafted: counts.drafted + drafts.length }
  return true
})

/** Drafts worth verifying behind these tokens, if there are any; or `verified` where a round has done so. */
const draftsFor = Effect.fnUntraced(function*(
  state: State,
  tokens: ReadonlyArray<number>,
  sampling: Sampler.Settings | undefined
) {
  const { steps } = state
  const most = mostBehind(state, tokens)
  // a prompt is not held up, nor a text that the session has to go back for
  if (most < 1 || steps.reusable(tokens) !== tokens.length - 1) return undefined
  const candidates = worthAsking(state, { most, inRounds: sampling !== undefined })
  yield* lookAt(state, tokens, candidates)
  for (const candidate of candidates) {
    const { source } = candidate
    const isInRounds = source.isOwn === true && sampling !== undefined
    if (isInRounds && (yield* rounded(state, tokens, { ...candidate, sampling }))) return "verified"
    // where there are no rounds, steps one after the other may be worth it
    const wanted = isInRounds
      ? worthAsking(state, { most, inRounds: false }).find((each) => each.source === source)?.drafts ?? 0
      : candidate.drafts
    const drafts = wanted === 0 ? [] : yield* proposalOf(state, source, { tokens, most: wanted })
    if (drafts.length > 0) return { source, drafts }
  }
  if (candidates.length === 0) fade(state)
  return undefined
})

/** What is found behind these tokens, with a step that verifies what is drafted behind them; nothing where nothing is. */
const verified = Effect.fnUntraced(function*(
  state: State,
  tokens: ReadonlyArray<number>,
  sampling: Sampler.Settings | undefined
) {
  const found = foundOf(state, tokens, sampling)
  if (found !== undefined) return found
  settle(state, tokens)
  const proposal = yield* draftsFor(state, tokens, sampling)
  if (proposal === undefined) return undefined
  if (proposal === "verified") return foundOf(state, tokens, sampling)
  const { drafts, source } = proposal
  yield* state.steps.prepareDrafts(drafts.length + 1, sampling)
  const results = yield* timed(state, drafts.length + 1, resultsOf(state, { tokens, drafts, sampling })).pipe(
    // a draft may be what the model cannot compute; the text itself is asked for without it
    Effect.catchTag("InvalidLogits", () => Effect.undefined)
  )
  if (results === undefined) return undefined
  // a copy: who asks may go on writing into the same list
  state.verified = { source, tokens: [...tokens], drafts, results }
  state.counts = { ...state.counts, drafted: state.counts.drafted + drafts.length }
  return foundOf(state, tokens, sampling)
})

/** The session with drafts, for a text. */
export const over = (steps: Steps, speculation: Speculation, text: Text): Speculating => {
  const { context, sampler, vocabulary } = steps
  const state: State = {
    steps,
    with: speculation,
    text,
    acceptances: new Map(
      speculation.drafter.sources.map((source) => [source, DraftLength.acceptance(kindOf(source))])
    ),
    verified: undefined,
    proposed: undefined,
    silent: new Set(),
    asked: new Set(),
    singles: 0,
    counts: { steps: 0, drafted: 0, accepted: 0 }
  }
  /** Tokens that are known to be the text's. */
  let known: ReadonlyArray<number> = []
  /** What was drawn behind them, as far as it was drawn here: of the last token nobody says that it is the text's. */
  let drawn: ReadonlyArray<number> = []
  return {
    context,
    vocabulary,
    sampler,
    advance: Effect.fnUntraced(function*(tokens) {
      known = tokens
      drawn = []
      const found = yield* verified(state, tokens, undefined)
      return found !== undefined && "row" in found ? found.row : yield* timed(state, 1, steps.advance(tokens))
    }),
    next: Effect.fnUntraced(function*(tokens, sampling = Sampler.greedy, mask) {
      known = tokens
      drawn = []
      // a mask is known for one place at a time
      const found = yield* verified(state, tokens, mask === undefined ? sampling : undefined)
      if (found === undefined) return yield* timed(state, 1, steps.next(tokens, sampling, mask))
      if ("id" in found) {
        drawn = [found.id]
        return found.id
      }
      const allowed = mask === undefined ? found.row : masked(found.row, mask)
      const id = sampler.sample(allowed, sampling, Random.words(sampling.seed, tokens.length))
      if (id === undefined) {
        return yield* new Sampler.InvalidLogits({ position: tokens.length - 1, vocab: vocabulary, bad: 0 })
      }
      drawn = [id]
      return id
    }),
    drafts: () => {
      const { counts, verified } = state
      if (verified === undefined) return counts
      const behind = [...known, ...drawn].slice(verified.tokens.length)
      return { ...counts, accepted: counts.accepted + commonPrefix(verified.drafts, behind) }
    },
    end: Effect.suspend(() => {
      const isDrafted = state.verified !== undefined
      settle(state, known)
      return isDrafted ? steps.keep(known.length) : Effect.void
    })
  }
}
