/**
 * Texts that a lookup finds again, and steps that make exactly these: on a session, whose model would say something else, or on a device that is only a
 * clock.
 */
import * as Drafter from "../../packages/engine/src/Drafter.ts"
import * as Random from "../../packages/engine/src/Random.ts"
import type { Session } from "../../packages/engine/src/Session.ts"
import * as Speculation from "../../packages/engine/src/Speculation.ts"
import { commonPrefix } from "../../packages/engine/src/Tokens.ts"
import { Duration, Effect } from "effect"
import { TestClock } from "effect/testing"

/** Ranks that tokens are drawn from at most: a text of a few hundred tokens knows no more. */
const mostRanks = 32_000
/** How often a token is what followed the one in front of it before. */
const habit = 0.5

/**
 * Tokens that recur like those of a language, behind others. Half of them follow Zipf's law, token i with a chance of 1 / (i + 2); the others are what stood behind
 * the same token at one of the places before. So a lookup has an idea at 0.29 of the places behind 400 tokens, and 0.31 of its first guesses are right; English prose
 * cut into words (this repository's pages, the GPL) has 0.16 to 0.30 and 0.19 to 0.35. Smaller vocabularies make more guesses and fewer right ones.
 */
export const written = (
  before: ReadonlyArray<number>,
  { count, seed, vocabulary }: { readonly count: number; readonly seed: number; readonly vocabulary: number }
): ReadonlyArray<number> => {
  let draws = 0
  const next = (): number => Random.words(seed, draws++)[0] / 2 ** 32
  const sums: Array<number> = []
  for (let i = 0, sum = 0; i < Math.min(mostRanks, vocabulary); i++) sums.push(sum += 1 / (i + 2))
  const drawn = (): number => {
    const at = next() * sums.at(-1)!
    return sums.findIndex((sum) => sum > at)
  }
  const text = [...before]
  while (text.length < before.length + count) {
    const behind = next() < habit ? text.flatMap((id, i) => i > 0 && text[i - 1] === text.at(-1) ? [id] : []) : []
    text.push(behind.length > 0 ? behind[Math.floor(next() * behind.length)]! : drawn())
  }
  return text.slice(before.length)
}

/** A prompt, and what is answered. */
export interface Case {
  readonly name: string
  readonly prompt: ReadonlyArray<number>
  readonly answer: ReadonlyArray<number>
}

/** Tokens of an instruction, in front of the text and behind it. */
const instruction = 8
/** Every so manieth token is another one where a text is edited; the one that is renamed stands about every so manieth place. */
const every = { edited: 20, renamed: 12 } as const

/** What may be answered to a prompt with this text; `other` is one of the same length that is written behind it. */
export const casesOf = (
  { other, text, vocabulary }: Record<"other" | "text", ReadonlyArray<number>> & { readonly vocabulary: number }
): ReadonlyArray<Case> => {
  const used = new Set([...text, ...other])
  const unused: Array<number> = []
  for (let id = vocabulary - 1; unused.length < 2 * instruction + 1; id--) if (!used.has(id)) unused.push(id)
  const [fresh, ...asked] = unused
  const prompt = [...asked.slice(0, instruction), ...text, ...asked.slice(instruction)]
  const counts = [...Map.groupBy(text, (id) => id)].map(([id, all]) => ({ id, count: all.length }))
  const off = (count: number): number => Math.abs(count - text.length / every.renamed)
  const name = counts.reduce((best, each) => off(each.count) < off(best.count) ? each : best).id
  const edited = (id: number, i: number): number =>
    i % every.edited !== every.edited / 2 ? id : other[i] === id ? fresh! : other[i]!
  return [
    { name: "repeat", prompt, answer: text },
    { name: "edit", prompt, answer: text.map(edited) },
    { name: "rename", prompt, answer: text.map((id) => id === name ? fresh! : id) },
    { name: "nothing", prompt, answer: other }
  ]
}

/** The same of tokens that recur like those of a language. */
export const madeCases = (vocabulary: number, { count = 400, seed = 1 } = {}): ReadonlyArray<Case> => {
  const text = written([], { count, seed, vocabulary })
  return casesOf({ text, other: written(text, { count, seed: seed + 1, vocabulary }), vocabulary })
}

/** A row of logits from which this token is drawn. */
const certain = 1e30

/**
 * A session whose texts are this one. Its steps compute what they always do, but as many tokens as the text has of its own: what it drew, so that steps
 * run ahead, and drafts. Which tokens are in the cache changes no time.
 */
export const forced = (session: Speculation.Steps, text: ReadonlyArray<number>): Speculation.Steps => {
  const own: Array<number> = []
  /** So many tokens of its own; behind those that it knows, what was accepted. */
  const real = (count: number): Array<number> => {
    own.length = Math.min(own.length, count)
    own.push(...text.slice(own.length, count))
    return own
  }
  const from = (first: number, count: number) => Array.from({ length: count }, (_, i) => text[first + i] ?? 0)
  return {
    ...session,
    reusable: (tokens) => session.reusable(real(tokens.length)),
    next: Effect.fnUntraced(function*(tokens, sampling) {
      const id = yield* session.next(real(tokens.length), sampling)
      own.push(id)
      return text[tokens.length] ?? 0
    }),
    verify: Effect.fnUntraced(function*(tokens, drafts) {
      const rows = yield* session.verify([...real(tokens.length)], drafts)
      for (const [i, id] of from(tokens.length, drafts.length + 1).entries()) {
        rows[i * session.vocabulary + id] = certain
      }
      return rows
    }),
    verifyDrawn: Effect.fnUntraced(function*(tokens, drafts, sampling) {
      const ids = yield* session.verifyDrawn([...real(tokens.length)], drafts, sampling)
      return ids && from(tokens.length, ids.length)
    })
  }
}

/** What a device takes that is only a clock. */
export interface Times {
  /** Milliseconds of steps by their tokens; another number takes the next larger program. */
  readonly costs: ReadonlyMap<number, number>
  /** Milliseconds more of a step that is waited for alone. */
  readonly wait: number
  /** Steps of one token under way at a time: those behind the one that is asked for are lost when drafts are verified. */
  readonly ahead: number
}

/** A session that only takes time (of the `TestClock`), and makes this text. */
export const simulated = (text: ReadonlyArray<number>, { ahead, costs, wait }: Times): Speculation.Steps => {
  const sizes = [...costs].sort(([a], [b]) => a - b)
  const costOf = (tokens: number): number => (sizes.find(([size]) => size >= tokens) ?? sizes.at(-1)!)[1]
  let held = 0
  let now = 0
  /** When the device has done all that was submitted, and the steps under way will have; nothing runs ahead without a list. */
  let free = 0
  let underWay: Array<number> | undefined
  const submit = (tokens: number): number => free = Math.max(free, now) + costOf(tokens)
  const until = (time: number) => {
    const millis = Math.max(0, time - now)
    now += millis
    return TestClock.adjust(Duration.millis(millis))
  }
  return {
    context: Infinity,
    vocabulary: Infinity,
    sampler: { isOnDevice: true, sample: () => 0 },
    advance: () => Effect.die("the host draws nothing"),
    verify: () => Effect.die("no logits are read"),
    predict: () => Effect.succeed([]),
    round: () => Effect.undefined,
    prepareDrafts: () => Effect.void,
    keep: () => Effect.void,
    reusable: (tokens) => Math.min(held, tokens.length - 1),
    next: Effect.fnUntraced(function*(tokens) {
      held = tokens.length
      if (underWay === undefined) {
        // behind a prompt, or drafts: the host reads what is drawn
        yield* until(submit(1) + wait)
        underWay = ahead > 1 ? [] : undefined
      } else {
        while (underWay.length < ahead) underWay.push(submit(1))
        yield* until(underWay.shift()!)
      }
      return text[tokens.length] ?? 0
    }),
    verifyDrawn: Effect.fnUntraced(function*(tokens, drafts) {
      const made = Array.from({ length: drafts.length + 1 }, (_, i) => text[tokens.length + i] ?? 0)
      underWay = undefined
      yield* until(submit(drafts.length + 1) + wait)
      held = tokens.length + commonPrefix(drafts, made)
      return made
    })
  }
}

/** How drafts are made: as many as are likely right, or as pay. */
export const ways: Readonly<Record<"lookup" | "auto", Drafter.Drafting>> = {
  lookup: Drafter.only(Drafter.lookup),
  auto: Drafter.only(Drafter.lookup, "paying")
}

/** What came of a text. */
export interface Run {
  readonly tokens: ReadonlyArray<number>
  readonly tokensPerSecond: number
  readonly drafts: Speculation.Drafts
}

/** Writes so many tokens; the first one comes with the prompt, and is not timed. */
export const run = Effect.fnUntraced(
  function*(steps: Pick<Session, "next">, prompt: ReadonlyArray<number>, count: number) {
    const tokens = [...prompt]
    const next = Effect.gen(function*() {
      tokens.push(yield* steps.next(tokens))
    })
    yield* next
    const [time] = yield* Effect.timed(Effect.replicateEffect(next, count - 1, { discard: true }))
    return { tokens, tokensPerSecond: (count - 1) / Duration.toSeconds(time) }
  }
)

/** The same of a case with drafts, as the first text that a device writes with them. */
export const drafted = Effect.fnUntraced(function*(
  steps: Speculation.Steps,
  { answer, prompt }: Case,
  drafter: Drafter.Drafting
) {
  const most = prompt.length + answer.length
  const drafting = Speculation.over(steps, Speculation.make(drafter), { most })
  const made = yield* run(drafting, prompt, answer.length)
  const drafts = drafting.drafts()
  yield* drafting.end
  const found: Run = { ...made, drafts }
  return found
})
