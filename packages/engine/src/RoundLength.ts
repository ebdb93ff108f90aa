/** How many guesses a round has (`Rounds`): of few sizes the one that makes most tokens for its time. */
import { type Acceptance, type Costs, forgetting, mixed } from "./DraftLength.ts"

/**
 * Guesses of rounds that have programs: with the token in front of them 2, 3, 4 or 8 tokens. Only a model whose prediction block is in force
 * has them, so nobody else compiles a program of three tokens. Each is compiled when it is first chosen.
 */
export const guessSizes = [1, 2, 3, 7] as const

/** Guesses of rounds while little is known: where four of five are right, an H200 gains most with so many (`docs/drafts.md`). */
export const firstGuesses = 2

/** Tokens of rounds of each size together. */
export const tokensOfSizes = guessSizes.reduce((sum, guesses) => sum + guesses + 1, 0)

/** What a guess more is taken to cost where no more is known, as a part of a step of one token: about what it costs an H200. */
const assumed = 0.4
const assumedOf = (tokens: number): number => 1 + assumed * (tokens - 1)

/** A time is believed up to so many times what is known: a program may have been compiled meanwhile. */
const believed = 2

/** Takes the time of a round of so many tokens, which ran ahead. What is quicker than known is likelier to be true. */
export const took = ({ rounds }: Costs, tokens: number, time: number): void => {
  if (!(time > 0)) return
  const before = rounds.get(tokens) ?? time
  rounds.set(tokens, time < before ? (time + before) / 2 : mixed(before, Math.min(time, believed * before)))
}

/**
 * What a round of so many tokens takes, in the unit of `took`: between and beyond known ones in proportion, where a step of one is known
 * too; as assumed where none is.
 */
export const costOf = ({ rounds, single }: Costs, tokens: number): number => {
  const known = [...single > 0 ? [[1, single] as const] : [], ...rounds].sort(([a], [b]) => a - b)
  const next = known.findIndex(([n]) => n >= tokens)
  const at = next < 0 ? known.length - 1 : next
  const [high, low] = [known[at], known[at - 1]]
  if (high === undefined) return assumedOf(tokens)
  const [n1, c1] = high
  if (n1 === tokens) return c1
  if (low === undefined) return c1 * assumedOf(tokens) / assumedOf(n1)
  const [n0, c0] = low
  return Math.max(c0, c0 + (c1 - c0) * (tokens - n0) / (n1 - n0))
}

/** A size that is not known has to look so much better than those that are: its programs have to be compiled. */
const untried = 0.9

/** Guesses of a round, and the tokens that it makes in a unit of time. */
export interface Best {
  readonly guesses: number
  readonly speed: number
}

/** Tokens of a round of so many guesses. */
const tokensOf = ({ rate }: Acceptance, guesses: number): number => {
  let tokens = 1
  for (let i = 0, chance = rate; i < guesses; i++, chance *= rate) tokens += chance
  return tokens
}

/** The guesses of the round that makes most tokens for its time. */
export const best = (acceptance: Acceptance, costs: Costs): Best => {
  const isKnown = (guesses: number): boolean =>
    costs.rounds.size === 0 ? guesses === firstGuesses : costs.rounds.has(guesses + 1)
  const found = guessSizes.map((guesses) => {
    const speed = tokensOf(acceptance, guesses) / costOf(costs, guesses + 1)
    return { guesses, speed, worth: isKnown(guesses) ? speed : untried * speed }
  })
  const { guesses, speed } = found.reduce((best, each) => each.worth > best.worth ? each : best)
  return { guesses, speed }
}

/** Rounds that take too long once may not be tried again: each token without them brings them closer to what is assumed. */
export const fade = ({ rounds, single }: Costs): void => {
  if (single === 0) return
  for (const [n, time] of rounds) rounds.set(n, time + forgetting * (single * assumedOf(n) - time))
}
