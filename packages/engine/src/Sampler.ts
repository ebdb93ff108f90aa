/**
 * Choosing the next token from a row of logits: pure functions of the row, the settings and two random words.
 *
 * The rule is made of operations that are exact on every device (one subtraction and one product of float32, integers,
 * comparisons), so that `SampleProgram`, which follows it on a GPU, takes the same token to the bit.
 *
 * - A token's *distance* is how much less likely than the likeliest it is: `(top - logit) log2(e)` in units of 2^-16,
 *   rounded down, at most 2^24 - 1 (256 powers of two). A logit of -Infinity is no candidate. Of a row with
 *   NaN, or a logit that is not below the largest float, nothing is drawn.
 * - The three cuts are bounds on the distance. `topK`: the k-th smallest distance. `topP`: the smallest one that leaves
 *   candidates (of those that `topK` leaves) with `topP` of their mass; a mass is `2^27 2^-distance`, rounded down.
 *   `minP`: `-log2(minP)`. A token as far away as the last one that a cut keeps is kept, too.
 * - The draw is a race: each candidate has a time, exponentially distributed with its weight as rate, and the first one
 *   wins, which is a draw in proportion to the weights. Only logarithms of times are compared:
 *   `(top - logit) log2(e) / temperature` plus the noise of the token, in units of 2^-16; of equal ones the lowest id.
 */
import { Context, Schema } from "effect"
import * as Random from "./Random.ts"
import * as Tables from "./SamplerTables.ts"

/**
 * How to choose. The candidates are cut by `topK`, then by `topP`, then by `minP`, by their probabilities as the model
 * gives them; the temperature then shapes the draw among what is left.
 */
export interface Settings {
  /** 0 takes the likeliest token; 1 draws as the model says; larger is wilder. */
  readonly temperature: number
  /** Keep this many of the likeliest (more if several are equal to the last of them); 0 keeps all. */
  readonly topK: number
  /** Keep the fewest likeliest that together have this probability; 1 keeps all. */
  readonly topP: number
  /** Keep those at least this likely relative to the likeliest; 0 keeps all. */
  readonly minP: number
  /** Equal seeds draw equal tokens. */
  readonly seed: number
}

/** The likeliest token, always. */
export const greedy: Settings = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 }

/** Whether the likeliest token is taken, without a draw. */
export const isGreedy = ({ temperature, topK }: Settings): boolean => temperature === 0 || topK === 1

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

/**
 * A row of logits that is no distribution: one of them is NaN or not below the largest float (`+Infinity` has no softmax, and
 * comes of sums that overflow), or none is above `-Infinity`, which is a token that never comes.
 */
export class InvalidLogits extends Schema.TaggedError<InvalidLogits>()("InvalidLogits", {
  /** The token in front of the logits, counted from 0. */
  position: Schema.Finite,
  vocab: Schema.Finite,
  /** How many are NaN or too large; 0 where all are `-Infinity`. Not there where a device found them. */
  bad: Schema.optional(Schema.Finite)
}) {
  override get message(): string {
    const { bad, position, vocab } = this
    const found = bad === 0
      ? `none of the ${vocab} logits after token ${position} can be chosen, all are -Infinity`
      : `${bad ?? "some"} of the ${vocab} logits after token ${position} are NaN or infinite`
    return `${found}; the model file may be damaged: compare its checksum, or try another --device, ` +
      `--activations float or --kv f32`
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

/** A logit has to be below it: a sum that overflows is no number to compare. It is exact on every device. */
export const largestFloat = 3.4028234663852886e38

/** Where the first such number is. A loop: `findIndex` calls back 128,256 times a token, which took 5 ms. */
const firstBad = (rows: Float32Array): number | undefined => {
  const { length } = rows
  for (let i = 0; i < length; i++) if (!(rows[i]! < largestFloat)) return i
  return undefined
}

/** The error of the first row that has NaN, or a number that is not below `largestFloat`. Rows follow tokens from `position` on. */
export const invalidRow = (rows: Float32Array, vocab: number, position: number): InvalidLogits | undefined => {
  const first = firstBad(rows)
  if (first === undefined) return undefined
  const row = Math.floor(first / vocab)
  const bad = rows.subarray(row * vocab, (row + 1) * vocab).reduce((n, logit) => logit < largestFloat ? n : n + 1, 0)
  return new InvalidLogits({ position: position + row, vocab, bad })
}

/** A bound on the distance that all candidates keep. */
export const farthest = 2 ** 24 - 1

/** What a difference of logits is multiplied by to be a distance. */
export const scale = Math.fround(Tables.octave * Math.LOG2E)

/** The settings as a device takes them. */
export interface Rule {
  /** What a difference of logits is multiplied by in the race. */
  readonly drawScale: number
  /** Candidates to keep; 0 keeps all. */
  readonly topK: number
  /** Share of the mass to keep, in units of 2^-16; 2^16 keeps all. */
  readonly topP: number
  /** The largest distance that `minP` allows. */
  readonly most: number
}

/** Logarithms behind the race are at most this, so that noise can be added. */
export const farthestDraw = 2 ** 30

/** The rule of settings that draw. */
export const ruleOf = ({ minP, temperature, topK, topP }: Settings): Rule => ({
  // an infinity times a difference of zero would be no number; below 2^-100 all are alike
  drawScale: Math.fround(Math.min(Math.max(Tables.octave * Math.LOG2E / temperature, 2 ** -100), 2 ** 100)),
  topK,
  topP: Math.round(topP * 2 ** 16),
  most: Math.min(farthest, Math.floor(-Math.log2(minP) * Tables.octave))
})

const scaled = (difference: number, by: number, most: number): number =>
  Math.trunc(Math.min(Math.fround(difference * by), most))

/** The difference to the largest logit. */
const below = (top: number, logit: number): number => Math.fround(top - logit)

/** Distances; `farthest + 1` where there is no candidate. */
const distances = (logits: Float32Array, top: number): Int32Array => {
  const found = new Int32Array(logits.length)
  for (let id = 0; id < logits.length; id++) {
    found[id] = logits[id]! > -Infinity ? scaled(below(top, logits[id]!), scale, farthest) : farthest + 1
  }
  return found
}

const digitBits = 12
const digits = 2 ** digitBits

/** The smallest distance up to which the tokens have enough weight together; `farthest` if they never have. */
const reaching = (distance: Int32Array, most: number, enough: number, weightOf: (d: number) => number): number => {
  let prefix = 0
  let before = 0
  for (const shift of [digitBits, 0]) {
    const sums = new Float64Array(digits)
    for (const d of distance) {
      if (d <= most && d >>> shift >>> digitBits === prefix) sums[d >>> shift & digits - 1]! += weightOf(d)
    }
    let digit = 0
    while (digit < digits - 1 && before + sums[digit]! < enough) before += sums[digit++]!
    prefix = prefix * digits + digit
  }
  return prefix
}

/** The largest distance that all cuts keep. */
const bound = (distance: Int32Array, { most, topK, topP }: Rule): number => {
  const first = topK === 0 ? farthest : reaching(distance, farthest, topK, () => 1)
  if (topP === 2 ** 16) return Math.min(most, first)
  const table = Tables.shared()
  const massOf = (d: number): number => Tables.mass(table, d)
  let total = 0
  for (const d of distance) if (d <= first) total += massOf(d)
  // masses are integers, so the first sum that is not below the product is the first that is not below it rounded up
  const enough = Number((BigInt(total) * BigInt(topP) + 0xffffn) >> 16n)
  return Math.min(most, first, reaching(distance, first, enough, massOf))
}

/** The likeliest token of a row that is a distribution. */
const likeliest = (logits: Float32Array): number | undefined => {
  let best: number | undefined
  let bestLogit = -Infinity
  for (let id = 0; id < logits.length; id++) {
    const logit = logits[id]!
    if (!(logit < largestFloat)) return undefined
    if (logit > bestLogit) {
      best = id
      bestLogit = logit
    }
  }
  return best
}

/** The ids that a draw may give, in their order. Empty if the row is no distribution. */
export const candidates = (logits: Float32Array, settings: Settings): ReadonlyArray<number> => {
  const best = likeliest(logits)
  if (best === undefined) return []
  if (isGreedy(settings)) return [best]
  const rule = ruleOf(settings)
  const distance = distances(logits, logits[best]!)
  const most = bound(distance, rule)
  return [...distance.keys()].filter((id) => distance[id]! <= most)
}

/** Draws a token with the random words of its place (`Random.words`). `undefined` if the row is no distribution: `InvalidLogits`. */
export const sample = (logits: Float32Array, settings: Settings, words: Random.Words): number | undefined => {
  const best = likeliest(logits)
  if (best === undefined || isGreedy(settings)) return best
  const rule = ruleOf(settings)
  const top = logits[best]!
  const distance = distances(logits, top)
  const most = bound(distance, rule)
  const table = Tables.shared()
  let winner = best
  let first = Infinity
  for (let id = 0; id < logits.length; id++) {
    if (distance[id]! > most) continue
    const handicap = scaled(below(top, logits[id]!), rule.drawScale, farthestDraw)
    // noise is not negative: this one cannot win any more
    if (handicap >= first) continue
    const [high, low] = Random.ofToken(words, id)
    const time = handicap + Tables.noise(table, high, low)
    if (time < first) {
      first = time
      winner = id
    }
  }
  return winner
}

/** What draws tokens. */
export interface Drawing {
  /** The token drawn from a row of logits with the random words of its place; `undefined` if the row is no distribution. */
  readonly sample: (logits: Float32Array, settings: Settings, words: Random.Words) => number | undefined
  /** Whether `SampleProgram` takes the same tokens: then a device that can draws by itself, without the logits. */
  readonly isOnDevice: boolean
}

/** What generations draw with: the rule of this module, unless a Layer says otherwise. */
export const Sampler = Context.Reference<Drawing>("@tg/engine/Sampler", {
  defaultValue: () => ({ sample, isOnDevice: true })
})
