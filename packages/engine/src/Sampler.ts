/** Choosing the next token from a row of logits: pure functions of the row, the settings and a generator state. */
import { Schema } from "effect"
import * as Random from "./Random.ts"

/**
 * How to choose. The candidates are cut by `topK`, then by `topP`, then by `minP`, by their probabilities as the model
 * gives them; the temperature then shapes the draw among what is left.
 */
export interface Settings {
  /** 0 takes the likeliest token; 1 draws as the model says; larger is wilder. */
  readonly temperature: number
  /** Keep this many of the likeliest; 0 keeps all. */
  readonly topK: number
  /** Keep the fewest likeliest that together have this probability; 1 keeps all. */
  readonly topP: number
  /** Keep those at least this likely relative to the likeliest; 0 keeps all. */
  readonly minP: number
  /** Where the generator starts. */
  readonly seed: number
}

/** The likeliest token, always. */
export const greedy: Settings = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 }

/** A setting that makes no sense. */
export class InvalidSampling extends Schema.TaggedError<InvalidSampling>()("InvalidSampling", {
  setting: Schema.String,
  // @effect-diagnostics-next-line schemaNumber:off
  value: Schema.Number,
  expected: Schema.String
}) {
  override get message(): string {
    return `${this.setting} ${this.value} was asked; it has to be ${this.expected}`
  }
}

/** A row of logits without a single number to choose. */
export class InvalidLogits extends Schema.TaggedError<InvalidLogits>()("InvalidLogits", {
  position: Schema.Finite,
  vocab: Schema.Finite
}) {
  override get message(): string {
    return `none of the ${this.vocab} logits after token ${this.position} is a number; the model file may be damaged: ` +
      `compare its checksum, or run with another --device`
  }
}

/** The first setting that makes no sense, if any. */
export const validate = (settings: Settings): InvalidSampling | undefined => {
  const check = (setting: keyof Settings, isValid: boolean, expected: string): InvalidSampling | undefined =>
    isValid ? undefined : new InvalidSampling({ setting, value: settings[setting], expected })
  const { minP, seed, temperature, topK, topP } = settings
  return check("temperature", temperature >= 0 && temperature < Infinity, "a number from 0 up") ??
    check("topK", Number.isInteger(topK) && topK >= 0, "an integer from 0 up (0 keeps all)") ??
    check("topP", topP > 0 && topP <= 1, "above 0 and at most 1 (1 keeps all)") ??
    check("minP", minP >= 0 && minP <= 1, "from 0 to 1 (0 keeps all)") ??
    check("seed", Number.isSafeInteger(seed), "an integer of at most 53 bits")
}

/** The token with the largest logit; of equal ones the lowest id. NaN is never chosen. */
export const argmax = (logits: Float32Array): number | undefined => {
  let best: number | undefined
  let bestLogit = -Infinity
  for (let id = 0; id < logits.length; id++) {
    if (logits[id]! > bestLogit) {
      best = id
      bestLogit = logits[id]!
    }
  }
  return best
}

/** A token that may be chosen, and its probability among the candidates. */
export interface Candidate {
  readonly id: number
  readonly probability: number
}

/**
 * What a draw may give, with probabilities that sum to 1: likeliest first (of equal ones the lowest id) where `topK` or
 * `topP` cuts, else in the order of ids, which spares sorting a vocabulary. Empty if no logit is a number.
 */
export const candidates = (logits: Float32Array, settings: Settings): ReadonlyArray<Candidate> => {
  const { minP, temperature, topK, topP } = settings
  const best = argmax(logits)
  if (best === undefined) return []
  if (temperature === 0) return [{ id: best, probability: 1 }]
  const top = logits[best]!
  // an infinite logit takes everything: the difference of two infinities is no number
  const distance = (id: number): number => logits[id] === top ? 0 : logits[id]! - top
  const all = topK > 0 || topP < 1 ? likeliest(logits, topK === 0 ? logits.length : topK) : numbers(logits)
  const least = Math.log(minP)
  const kept = (topP < 1 ? all.slice(0, countOfMass(all.map((id) => Math.exp(distance(id))), topP)) : all)
    .filter((id) => distance(id) >= least)
  const weights = kept.map((id) => Math.exp(distance(id) / temperature))
  const total = weights.reduce((sum, weight) => sum + weight, 0)
  return weights.map((weight, i) => ({ id: kept[i]!, probability: weight / total }))
}

/** How many of the first masses make up this share of all. */
const countOfMass = (masses: ReadonlyArray<number>, share: number): number => {
  const enough = share * masses.reduce((sum, mass) => sum + mass, 0)
  let sum = 0
  const last = masses.findIndex((mass) => (sum += mass) >= enough)
  return last === -1 ? masses.length : last + 1
}

/** Draws a token: its id, and the generator after it. `undefined` if no logit is a number. */
export const sample = (
  logits: Float32Array,
  settings: Settings,
  random: Random.Random
): readonly [id: number, random: Random.Random] | undefined => {
  if (settings.temperature === 0) {
    const id = argmax(logits)
    return id === undefined ? undefined : [id, random]
  }
  const choices = candidates(logits, settings)
  const last = choices[choices.length - 1]
  if (last === undefined) return undefined
  const [at, after] = Random.next(random)
  let sum = 0
  for (const { id, probability } of choices) {
    sum += probability
    if (at < sum) return [id, after]
  }
  // rounding may leave the sum just below 1
  return [last.id, after]
}

// Up to here, keeping a sorted list costs less than sorting all of a vocabulary.
const shortList = 256

/** Ids of the `count` largest logits in descending order, of equal ones the lowest id first; NaN and -Infinity left out. */
const likeliest = (logits: Float32Array, count: number): ReadonlyArray<number> => {
  if (count > shortList) {
    return numbers(logits)
      .sort((a, b) => logits[a] === logits[b] ? a - b : logits[a]! > logits[b]! ? -1 : 1)
      .slice(0, count)
  }
  const ids: Array<number> = []
  for (let id = 0; id < logits.length; id++) {
    const logit = logits[id]!
    if (!(logit > -Infinity) || (ids.length === count && logits[ids[count - 1]!]! >= logit)) continue
    let at = ids.length === count ? count - 1 : ids.length
    while (at > 0 && logits[ids[at - 1]!]! < logit) {
      ids[at] = ids[at - 1]!
      at--
    }
    ids[at] = id
  }
  return ids
}

const numbers = (logits: Float32Array): Array<number> => {
  const ids: Array<number> = []
  for (let id = 0; id < logits.length; id++) if (logits[id]! > -Infinity) ids.push(id)
  return ids
}
