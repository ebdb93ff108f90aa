/**
 * `tg bench --draft .. --accept 0.8`: what drafts would gain if so many of them were right. They are made and verified as always, and
 * then taken for right or wrong by chance, so that it does not matter what the weights are.
 */
import * as Drafter from "@tg/engine/Drafter"
import { mostDrafts } from "@tg/engine/DraftLength"
import { guessSizes } from "@tg/engine/RoundLength"
import * as Sampler from "@tg/engine/Sampler"
import type { Session } from "@tg/engine/Session"
import { Duration, Effect, Option, Random, Result } from "effect"
import { UsageError } from "./Report.ts"
import { table } from "./Table.ts"

/** Drafts of a round that are measured; where the device goes through rounds by itself, those that texts have (`guessSizes`). */
const lengths = [1, 2, 3, 5, 7]
const isOfTexts = (drafts: number): boolean => guessSizes.some((guesses) => guesses === drafts)

/** What so many drafts a round gain. */
export interface Forced {
  readonly source: string
  readonly drafts: number
  /** Of all that were taken: each is right by chance if those before it are. */
  readonly tokensPerRound: number
  /** Whether the device goes from round to round by itself: drafts are then made while it verifies. */
  readonly isAhead: boolean
  /** Making drafts, and verifying them; where the device goes by itself, all of a round is the time of verifying. */
  readonly draftMs: number
  readonly verifyMs: number
  readonly tokensPerSecond: number
  /** Of what decoding without drafts does. */
  readonly gain: number
}

/** What is measured. */
export interface Job<E = never, R = never> {
  readonly accept: number
  /** Tokens to begin behind. */
  readonly tokens: ReadonlyArray<number>
  /** Tokens to write. */
  readonly count: number
  /** Tokens a second without drafts. */
  readonly plain: number
  /** Wakes the device, which idles at a fraction of its speed while programs are compiled. It may write behind the tokens. */
  readonly warm: Effect.Effect<void, E, R>
}

/** What is wrong with the flags. */
export const refusal = (accept: number, drafting: Drafter.Drafting | undefined): UsageError | undefined => {
  if (!(accept >= 0 && accept <= 1)) {
    return new UsageError({ message: `--accept ${accept} was asked; it is a part of all drafts, from 0 to 1` })
  }
  return drafting === undefined
    ? new UsageError({
      message: "--accept says how many drafts are right, and none are made; give --draft or --draft-model"
    })
    : undefined
}

/** What is asked of conversations in one step, if anything: they measure drafts of the prediction block. */
export const acceptTogether = (
  { accept: asked, draft }: {
    readonly accept: Option.Option<number>
    readonly draft: Option.Option<Drafter.Name>
  }
): Result.Result<number | undefined, UsageError> => {
  if (Option.isNone(asked)) return Result.succeed(undefined)
  const wrong = Option.contains(draft, "mtp")
    ? refusal(asked.value, Drafter.named("mtp"))
    : new UsageError({
      message: "--accept with --parallel measures drafts of the prediction block: give --draft mtp, or leave it out"
    })
  return wrong === undefined ? Result.succeed(asked.value) : Result.fail(wrong)
}

const round = (value: number): number => Number(value.toPrecision(4))

const millis = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.timed(work), ([time, value]) => ({ value, ms: Duration.toMillis(time) }))

/** How many drafts are right, one behind the other. */
export const rightOf = Effect.fnUntraced(function*(drafts: number, accept: number) {
  let right = 0
  while (right < drafts && (yield* Random.next) < accept) right++
  return right
})

/** The likeliest tokens behind these and each draft, drawn where a generation draws. */
export const verifiedOf = Effect.fnUntraced(function*(
  session: Pick<Session, "sampler" | "verify" | "verifyDrawn" | "vocabulary">,
  tokens: ReadonlyArray<number>,
  drafts: ReadonlyArray<number>
) {
  const ids = yield* session.verifyDrawn(tokens, drafts, Sampler.greedy)
  if (ids !== undefined) return ids
  const { sampler, vocabulary } = session
  const rows = yield* session.verify(tokens, drafts)
  return Array.from(
    { length: 1 + drafts.length },
    (_, row) => sampler.sample(rows.subarray(row * vocabulary, (row + 1) * vocabulary), Sampler.greedy, [0, 0])
  )
})

/** What is measured of a session. */
type Measured = Pick<
  Session,
  | "advance"
  | "context"
  | "keep"
  | "predict"
  | "prepareDrafts"
  | "round"
  | "sampler"
  | "verify"
  | "verifyDrawn"
  | "vocabulary"
>

/** Rounds of so many drafts each; none, if the source has no idea. */
const rounds = Effect.fnUntraced(function*<E, R>(
  session: Measured,
  source: Drafter.Source,
  { accept, count, drafts: wanted, tokens: before, warm }: Job<E, R> & { readonly drafts: number }
) {
  const tokens = [...before]
  const asking = { sampling: Sampler.greedy, predict: session.predict }
  const so = { rounds: 0, made: 0, draftMs: 0, verifyMs: 0 }
  yield* session.prepareDrafts(wanted + 1, Sampler.greedy)
  yield* warm
  // the first round reads all tokens
  for (let at = -1; so.made < count && tokens.length + wanted < session.context; at++) {
    const proposed = yield* millis(source.propose(tokens, wanted, asking))
    const drafts = proposed.value
    if (drafts.length === 0) return undefined
    const verified = yield* millis(verifiedOf(session, tokens, drafts))
    const right = yield* rightOf(drafts.length, accept)
    tokens.push(...drafts.slice(0, right), verified.value[right] ?? 0)
    if (at < 0) continue
    so.rounds++
    so.made += right + 1
    so.draftMs += proposed.ms
    so.verifyMs += verified.ms
  }
  return so
})

/** The same where the device goes through rounds by itself, so that nothing waits for guesses; none, where it does not. */
const ownRounds = Effect.fnUntraced(function*<E, R>(
  session: Measured,
  { accept, count, drafts: guesses, tokens: before, warm }: Job<E, R> & { readonly drafts: number }
) {
  const chances = yield* Effect.replicateEffect(rightOf(guesses, accept), count + 3)
  let submitted = 0
  const asked = { guesses, sampling: Sampler.greedy, right: () => chances[submitted++ % chances.length]! }
  let tokens = before
  const so = { rounds: 0, made: 0, draftMs: 0, verifyMs: 0 }
  yield* session.advance(before.length > 1 ? before.slice(0, -1) : before)
  // what is compiled is not measured, and not on a device that idled meanwhile; it writes behind the tokens, so rounds begin again
  if ((yield* session.round(before, asked)) === undefined) return undefined
  yield* warm
  yield* session.keep(before.length)
  submitted = 0
  // the first guesses are made before anything runs ahead
  for (let at = -2; so.made < count; at++) {
    const { ms, value } = yield* millis(session.round(tokens, asked))
    if (value === undefined) break
    tokens = [...tokens, ...value.ids.slice(0, value.right + 1)]
    if (at < 0) continue
    so.rounds++
    so.made += value.right + 1
    so.verifyMs += ms
  }
  return so.rounds === 0 ? undefined : so
})

/** Rounds of so many drafts of a source, and whether they ran ahead; nothing where there are none of this number. */
const measureOne = Effect.fnUntraced(function*<E, R>(
  session: Measured,
  source: Drafter.Source,
  job: Job<E, R> & { readonly drafts: number }
) {
  const here = source.isOwn === true && isOfTexts(job.drafts)
    ? yield* ownRounds(session, job).pipe(Random.withSeed("drafts"))
    : undefined
  return {
    so: here ?? (yield* rounds(session, source, job).pipe(Random.withSeed("drafts"))),
    isAhead: here !== undefined
  }
})

/** Measures each source of the drafting; the chances are the same each time. */
export const measure = Effect.fn("cli.bench.forced")(function*<E, R>(session: Measured, job: Job<E, R>) {
  const found: Array<Forced> = []
  const drafting = yield* Drafter.Drafter
  for (const source of drafting?.sources ?? []) {
    let runsAhead = false
    for (const drafts of lengths.filter((length) => length <= mostDrafts)) {
      // no text has rounds of another size that run ahead
      if (runsAhead && !isOfTexts(drafts)) continue
      const { isAhead, so } = yield* measureOne(session, source, { ...job, drafts })
      runsAhead ||= isAhead
      if (so === undefined || so.rounds === 0) continue
      const tokensPerSecond = 1000 * so.made / (so.draftMs + so.verifyMs)
      found.push({
        source: source.name,
        drafts,
        isAhead,
        tokensPerRound: round(so.made / so.rounds),
        draftMs: round(so.draftMs / so.rounds),
        verifyMs: round(so.verifyMs / so.rounds),
        tokensPerSecond: round(tokensPerSecond),
        gain: round(tokensPerSecond / job.plain)
      })
    }
  }
  return found
})

/** A table of it. */
export const asText = (found: ReadonlyArray<Forced>): string =>
  table([
    ["drafts of", "a round", "run ahead", "tokens a round", "draft ms", "verify ms", "tokens/s", "gain"],
    ...found.map((each) =>
      [
        each.source,
        each.drafts,
        each.isAhead ? "yes" : "no",
        each.tokensPerRound,
        each.draftMs,
        each.verifyMs,
        each.tokensPerSecond,
        each.gain
      ].map(String)
    )
  ]).join("\n")
