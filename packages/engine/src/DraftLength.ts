/** How many tokens to verify in a step: what was accepted before, and what steps of several tokens take. */

/** Tokens of a step at most. */
export const mostStep = 16
/** Drafts of a step at most: it computes the last known token beside them. */
export const mostDrafts = mostStep - 1

/** Times of steps, in any unit, by their numbers of tokens. Belongs to a model on a device. */
export interface Costs {
  /** Of those with one token, one after the other; 0 before the first. */
  single: number
  /** Those of several tokens, as multiples of that. */
  readonly several: Map<number, number>
  /** Of one proposed token, by what proposes it, as parts of that. */
  readonly guesses: Map<string, number>
  /** Those of rounds that run ahead, their guesses included, in the unit (`RoundLength`). */
  readonly rounds: Map<number, number>
  /** Steps of one token that drafts may lose before they have to pay for themselves (`lost`). */
  credit: number
}

/** Steps that drafts may lose at most: so many, and `earned` of each token; of what they have gained before, more. */
const mostCredit = 5
const mostGained = 15
const earned = 0.02

/** Nothing is known yet. */
export const costs = (): Costs => ({
  single: 0,
  several: new Map(),
  guesses: new Map(),
  rounds: new Map(),
  credit: mostCredit
})

/** Weight of the latest measurement. */
const latest = 0.25

/** What is known with a measurement more. */
export const mixed = (before: number, now: number): number => before + latest * (now - before)

/** Takes the time of a step. */
export const took = (costs: Costs, tokens: number, time: number): void => {
  if (!(time > 0)) return
  if (tokens === 1) costs.single = costs.single === 0 ? time : mixed(costs.single, time)
  else if (costs.single > 0) {
    const ratio = time / costs.single
    costs.several.set(tokens, mixed(costs.several.get(tokens) ?? ratio, ratio))
  }
}

/** Takes the time in which so many tokens were proposed. */
export const proposed = (
  { guesses, single }: Costs,
  name: string,
  { time, tokens }: { readonly tokens: number; readonly time: number }
): void => {
  if (!(time >= 0) || tokens < 1 || single === 0) return
  const part = time / tokens / single
  guesses.set(name, mixed(guesses.get(name) ?? part, part))
}

/** What a token more is taken to cost before any step of several was measured, as a part of a step: little, so that it is tried. */
const assumed = 0.15

/** Part of what is known that a refused draft takes away. */
export const forgetting = 0.01

/** What a step of several tokens costs, as a multiple of one with one token: between the measured ones in proportion. */
export const costOf = ({ several }: Costs, tokens: number): number => {
  const known = [[1, 1] as const, ...[...several].sort(([a], [b]) => a - b)]
  const above = known.findIndex(([n]) => n >= tokens)
  if (above === 0) return 1
  const [[n0, c0], [n1, c1]] = above > 0
    ? [known[above - 1]!, known[above]!]
    : known.length > 1
    ? [known.at(-2)!, known.at(-1)!]
    : [known[0]!, [2, 1 + assumed] as const]
  return Math.max(1, c0 + (c1 - c0) * (tokens - n0) / (n1 - n0))
}

/** A step that takes too long once may not be tried again: each draft that is refused for it brings it closer to what is assumed. */
export const fade = ({ guesses, several }: Costs): void => {
  for (const [n, ratio] of several) several.set(n, ratio + forgetting * (1 + assumed * (n - 1) - ratio))
  for (const [name, part] of guesses) guesses.set(name, part - forgetting * part)
}

/**
 * What drafts have cost: a step of theirs, or one behind them, that took so many steps of one token and made so many tokens. What they gain is
 * theirs, up to a limit. Nothing is charged or earned before it is known what a step takes.
 */
export const lost = (costs: Costs, { steps, tokens }: Record<"steps" | "tokens", number>): void => {
  if (costs.single === 0) return
  costs.credit = Math.min(mostGained, costs.credit - steps + tokens)
}

/** A token came without drafts. */
export const saved = (costs: Costs): void => {
  costs.credit = Math.max(costs.credit, Math.min(mostCredit, costs.credit + earned))
}

/**
 * Whether drafts may be tried that lose so many steps if all of them are wrong; where they go on, any credit will do. So a text in which nothing is
 * right takes little longer than without them, however often they are tried.
 */
export const isAfforded = ({ credit }: Costs, losing: number, isGoingOn: boolean): boolean =>
  isGoingOn ? credit > 0 : credit >= Math.min(losing, mostCredit)

/** How likely a token of a draft is right if those before it are. */
export interface Acceptance {
  rate: number
  /** Weight of the latest one. */
  weight: number
  /** What that falls to while there are more of them. */
  readonly least: number
}

/**
 * Of a model's own block, which guesses about as well everywhere in a text, many count, and so does what is assumed at first; other sources are right
 * in some places only.
 */
const weights = { steady: { weight: 1 / 8, least: 1 / 16 }, other: { weight: latest, least: latest } } as const

/** How likely a draft is right where nothing is known of a text. */
const usual = 0.7

/** A draft is tried with this. */
export const acceptance = (isSteady = false): Acceptance => ({
  rate: usual,
  ...isSteady ? weights.steady : weights.other
})

/** Where none are made, nothing shows how good drafts would be: each token without them brings that closer to what is usual, so that they are tried again. */
export const forget = (acceptance: Acceptance): void => {
  acceptance.rate += forgetting * Math.max(0, usual - acceptance.rate)
}

/** Takes what became of a draft. */
export const accepted = (acceptance: Acceptance, { right, tried }: Record<"right" | "tried", number>): void => {
  const one = (isRight: boolean): void => {
    const { least, rate, weight } = acceptance
    acceptance.rate = rate + weight * ((isRight ? 1 : 0) - rate)
    acceptance.weight = Math.max(least, weight / (1 + weight))
  }
  for (let i = 0; i < right; i++) one(true)
  if (right < tried) one(false)
}

/** As likely right is a draft where a text says again what was said: of some eight guesses in a row none was wrong. */
const sure = 0.9

/** Whether drafts are right nearly everywhere where they were made last. */
export const isSure = ({ rate }: Acceptance): boolean => rate >= sure

/** A draft that is likelier wrong than this is not worth its last token. */
const likely = 0.4

/** Drafts to verify of up to `most`, so that all of them together are still likely right; one at least. */
export const likelyLength = ({ rate }: Acceptance, most: number): number =>
  Math.min(most, rate >= 1 ? most : Math.max(1, Math.floor(Math.log(likely) / Math.log(Math.max(rate, 1e-3)))))

/** A gain below this is not worth it: costs are only known so well. */
export const margin = 1.05

/** How many drafts pay, and how many times as fast a text is with them. */
export interface Paying {
  readonly drafts: number
  readonly gain: number
}

/**
 * Drafts to verify of up to `most`, so that most tokens come for the time; none if that is without, or where nobody knows yet what is.
 * `name` says what proposes them.
 */
export const paying = (
  { rate }: Acceptance,
  costs: Costs,
  { most, name }: { readonly most: number; readonly name?: string | undefined }
): Paying => {
  const guess = name === undefined ? 0 : costs.guesses.get(name) ?? 0
  let best = 0
  let bestGain = margin
  if (costs.single === 0) return { drafts: 0, gain: 1 }
  let tokens = 1
  for (let drafts = 1, chance = rate; drafts <= most; drafts++, chance *= rate) {
    tokens += chance
    const gain = tokens / (costOf(costs, drafts + 1) + guess * drafts)
    if (gain > bestGain) [best, bestGain] = [drafts, gain]
  }
  return best === 0 ? { drafts: 0, gain: 1 } : { drafts: best, gain: bestGain }
}
