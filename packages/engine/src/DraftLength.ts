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

/**
 * What a step of several tokens costs, as a multiple of one with one token: between the measured ones in proportion. Larger ones are taken to cost half as much a token as
 * those were found to, so that they are tried: several numbers of tokens may have one program.
 */
export const costOf = ({ several }: Costs, tokens: number): number => {
  const known = [[1, 1] as const, ...[...several].sort(([a], [b]) => a - b)]
  const above = known.findIndex(([n]) => n >= tokens)
  if (above === 0) return 1
  const [n1, c1] = known.at(above)!
  const [n0, c0] = known.at(above > 0 ? above - 1 : -2) ?? [0, 1]
  const found = (c1 - c0) / (n1 - n0)
  const each = above > 0 ? found : Math.max(assumed, found / 2)
  return Math.max(1, c1 + each * (tokens - n1))
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

/** How likely a draft is right where nothing is known of a text; and one that costs nothing to look at, of which a first right one says more. */
const usual = 0.7
const unseen = 0.5

/**
 * Of a model's own block, which guesses about as well everywhere in a text, many count, and so does what is assumed at first; other sources are right
 * in some places only. What costs nothing shows without drafts how good it is.
 */
const kinds = {
  own: { rate: usual, weight: 1 / 8, least: 1 / 16 },
  model: { rate: usual, weight: latest, least: latest },
  free: { rate: unseen, weight: latest, least: latest }
} as const

/** What guesses of a kind of source are taken for at first. */
export const acceptance = (kind: keyof typeof kinds = "model"): Acceptance => ({ ...kinds[kind] })

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

/** A guess that costs nothing becomes a draft from here on: behind one that was right, or two that make up for a wrong one. */
const trusted = 0.6

/** Whether guesses are right often enough to be drafts. */
export const isTrusted = ({ rate }: Acceptance): boolean => rate >= trusted

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

/** What drafts of a source are weighed by: how many there may be, and steps of one token that each takes to guess. */
interface Weighing {
  readonly most: number
  readonly guess?: number
}

/** Drafts of up to `most` with which most tokens come for the time, if these are more than `least` times as many as without. */
const fastestAbove = (least: number, { rate }: Acceptance, costs: Costs, { guess = 0, most }: Weighing): Paying => {
  let best: Paying = { drafts: 0, gain: 1 }
  let bestGain = least
  let tokens = 1
  for (let drafts = 1, chance = rate; drafts <= most; drafts++, chance *= rate) {
    tokens += chance
    const gain = tokens / (costOf(costs, drafts + 1) + guess * drafts)
    if (gain <= bestGain) continue
    bestGain = gain
    best = { drafts, gain }
  }
  return best
}

/** Drafts to verify of up to `most` where they need not pay: so many that all of them are likely right, and no more than make most tokens for the time, where that is known. */
export const lengthOf = (acceptance: Acceptance, costs: Costs, most: number): number => {
  const likely = likelyLength(acceptance, most)
  return costs.several.size === 0 ? likely : fastestAbove(0, acceptance, costs, { most: likely }).drafts
}

/**
 * Drafts to verify of up to `most`, so that most tokens come for the time; none if that is without, or where nobody knows yet what is.
 * `name` says what proposes them.
 */
export const paying = (
  acceptance: Acceptance,
  costs: Costs,
  { most, name }: { readonly most: number; readonly name?: string | undefined }
): Paying => {
  if (costs.single === 0) return { drafts: 0, gain: 1 }
  const guess = name === undefined ? 0 : costs.guesses.get(name) ?? 0
  return fastestAbove(margin, acceptance, costs, { guess, most })
}
