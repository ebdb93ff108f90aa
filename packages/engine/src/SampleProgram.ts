/**
 * `Sampler.sample` as a tensor program: takes a row of logits from one buffer and leaves a token in another, without the
 * host. It follows the rule word by word, so both take the same token.
 *
 * A cut is found by its distance, 4 bits at a time from the top: each pass adds up the weights below 15 bounds. That is
 * six passes over the vocabulary for `topK`, and six for `topP`; programs without a cut have none. What the settings say
 * beyond that comes in a few words with each step, so one program serves all their values.
 */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { counting } from "@tg/gguf/LayoutPacking"
import * as Program from "@tg/tensor/Program"
import { buffer, full, iota, type Tensor, variable } from "@tg/tensor/Tensor"
import * as Likeliest from "./Likeliest.ts"
import { mixer, type Words } from "./Random.ts"
import * as Sampler from "./Sampler.ts"
import * as Tables from "./SamplerTables.ts"
import * as TokenRing from "./TokenRing.ts"

/** Buffers of the program. */
export const ids = { logits: 0, token: 1, rule: 2, table: 3, mask: 4 } as const

/** Which cuts a program makes. */
export interface Cuts {
  readonly topK: boolean
  readonly topP: boolean
}

/** Whether what may be drawn is a buffer of bits (`Constraint.mask`), or everything. */
export type Allowed = "masked" | "all"

/** The cuts that settings need. */
export const cutsOf = ({ topK, topP }: Sampler.Settings): Cuts => ({
  topK: topK > 0,
  topP: Math.round(topP * 2 ** 16) < 2 ** 16
})

/**
 * Largest vocabulary: sums of 14-bit halves of masses stay below 2^32. For a larger one the host reads the logits and
 * samples itself.
 */
export const mostTokens = 2 ** 18

/** Words of a rule. */
export const ruleWords = 6

/** Rules that the buffer has room for, of as many draws that are submitted together; the variable `draw` says which one it is. */
export const mostDraws = 16

/** The rule of a step: the settings, and the random words of the place of its token. */
export const ruleOf = (settings: Sampler.Settings, [a, b]: Words): Uint32Array => {
  const { drawScale, most, topK, topP } = Sampler.ruleOf(settings)
  const bits = new Uint32Array(Float32Array.of(drawScale).buffer)[0]!
  return Uint32Array.of(a, b, bits, topK, topP, most)
}

/**
 * The rule of a row among others, for a program of rows, which makes the cuts of all of them: what a row does not cut is said so that
 * it keeps all. A row without a draw takes its likeliest token.
 */
export const ruleAmong = (settings: Sampler.Settings, words: Words): Uint32Array => {
  const rule = ruleOf(settings, words)
  const { topK, topP } = cutsOf(settings)
  if (!topK) rule[3] = 2 ** 32 - 1
  if (!topP) rule[4] = 2 ** 16 + 1
  if (Sampler.isGreedy(settings)) rule[5] = takesLikeliest
  return rule
}

/** A bound on the distance that says: no draw. */
const takesLikeliest = 2 ** 32 - 1

/** The row in pieces, so that many threads work on it: [pieces, piece], with places behind the row if it does not divide. */
const shapeOf = (vocabulary: number): readonly [number, number] => {
  if (vocabulary <= 4096) return [1, vocabulary]
  const piece = Array.from({ length: 769 }, (_, i) => 1024 - i).find((n) => vocabulary % n === 0) ?? 1024
  return [Math.ceil(vocabulary / piece), piece]
}

/** Words of a mask's buffer. */
export const maskWords = (vocabulary: number): number => Math.ceil(vocabulary / 32)

/** Of each token whether the mask of its row has it, `[rows, vocabulary]`. */
const isIn = (masks: Tensor, vocabulary: number): Tensor => {
  const [rows, words] = masks.shape
  const bits = masks.unsqueeze(-1).shr(counting(masks.arena, 32, 1, 0)).and(1).reshape([rows!, 32 * Number(words)])
  return bits.slice(1, 0, vocabulary).ne(0)
}

/** Rows of a step: one, or a number from 1 on that each step says. */
interface Rows {
  readonly arena: Arena
  readonly most: number
  /** The first rows of a buffer that has `most`. */
  readonly of: (x: Tensor) => Tensor
  /** A rule for each row, `[rows, ruleWords]`. */
  readonly rules: () => Tensor
  /** Where the token of each row goes. */
  readonly token: () => Tensor
}

const rulesIn = (arena: Arena, count: number): Tensor =>
  buffer(arena, ids.rule, { shape: [count, ruleWords], dtype: DType.u32, label: "rules" })

const oneRow = (): Rows => {
  const arena = new Arena()
  const rules = (): Tensor => rulesIn(arena, mostDraws).slice(0, variable(arena, "draw", 0, mostDraws - 1), 1)
  const token = (): Tensor => buffer(arena, ids.token, { shape: [1], dtype: DType.u32, label: "next" })
  return { arena, most: 1, of: (x) => x, rules, token }
}

const upTo = (most: number, ring: TokenRing.TokenRing): Rows => {
  const arena = new Arena()
  const count = variable(arena, "R", 1, most)
  const of = (x: Tensor): Tensor => x.slice(0, 0, count)
  const token = (): Tensor => TokenRing.drawnIn(TokenRing.bufferOf(arena, ring, ids.token), ring, count)
  return { arena, most, of, rules: () => of(rulesIn(arena, most)), token }
}

/** The buffers of a program. */
const buffersOf = ({ arena, most, of, rules, token }: Rows, vocabulary: number) => {
  const made = (id: number, label: string, columns: ReadonlyArray<number>, dtype: DType.DType = DType.u32) =>
    of(buffer(arena, id, { shape: [most, ...columns], dtype, label }))
  return {
    logits: () => made(ids.logits, "logits", [vocabulary], DType.f32),
    token,
    rules,
    mask: () => isIn(made(ids.mask, "mask", [maskWords(vocabulary)]), vocabulary),
    table: () => buffer(arena, ids.table, { shape: [Tables.words], dtype: DType.u32, label: "tables" })
  }
}

/** The likeliest token of logits `[1, vocabulary]`, `Likeliest`, as a program of its own. */
export const greedy = (vocabulary: number, allowed: Allowed): Program.TensorProgram => {
  const { logits, mask, token } = buffersOf(oneRow(), vocabulary)
  const drawn = Likeliest.likeliest(logits(), allowed === "masked" ? mask() : undefined)
  return Program.make([Program.assign(token(), drawn.label("sample"))])
}

/** The program of a vocabulary and its cuts. */
export const make = (vocabulary: number, cuts: Cuts, allowed: Allowed = "all"): Program.TensorProgram =>
  draws(oneRow(), vocabulary, { cuts, allowed, isAmong: false })

/**
 * The same of up to `most` rows, each by a rule of its own (`ruleAmong`), with a mask of its own, into a ring of tokens; the variable R says
 * how many.
 */
export const ofRows = (
  vocabulary: number,
  { most, ring }: { readonly most: number; readonly ring: TokenRing.TokenRing },
  { allowed, cuts }: { readonly cuts: Cuts; readonly allowed: Allowed }
): Program.TensorProgram => draws(upTo(most, ring), vocabulary, { cuts, allowed, isAmong: true })

const draws = (
  rows: Rows,
  vocabulary: number,
  { allowed, cuts, isAmong }: { readonly cuts: Cuts; readonly allowed: Allowed; readonly isAmong: boolean }
): Program.TensorProgram => {
  const { arena } = rows
  const { logits: given, mask, rules: ruleRows, table: tables, token } = buffersOf(rows, vocabulary)
  const logits = given()
  const rule = ruleRows()
  const table = tables()
  const count = logits.dim(0)
  const [a, b, drawScale, topK, topP, most] = Array.from(
    { length: ruleWords },
    (_, i) => rule.slice(1, i, 1).reshape([count, 1, 1])
  )

  const shape = shapeOf(vocabulary)
  const behind = shape[0] * shape[1] - vocabulary
  const inPieces = (x: Tensor): Tensor => x.pad([[0, 0], [0, behind]]).reshape([x.dim(0), ...shape])
  const { isInvalid, isNumber: hasNumber } = Likeliest.kinds(logits)
  const isNumber = inPieces(allowed === "masked" ? hasNumber.and(mask()) : hasNumber)
  const orLeast = isNumber.where(inPieces(logits), -Sampler.largestFloat)
  const value = inPieces(isInvalid).where(Sampler.largestFloat, orLeast)
  const top = value.max(-1).max(-1).reshape([count, 1, 1]).label("sample_top")
  const isTop = value.eq(top)
  const below = isTop.where(0, top.sub(value))
  const scaled = (scale: Tensor | number, largest: number): Tensor => below.mul(scale).minimum(largest).cast(DType.u32)
  const all = isNumber.where(scaled(Sampler.scale, Sampler.farthest), Sampler.farthest + 1)
  const distance = cuts.topK || cuts.topP ? all.contiguous().label("sample_distance") : all

  const bounds = [isAmong ? most!.minimum(Sampler.farthest) : most!]
  if (cuts.topK) bounds.push(reaching(distance, counts, [topK!, zero(topK!)]).label("sample_top_k"))
  if (cuts.topP) {
    const masses = massOf(table, distance)
    const within = bounds[1] ?? full(arena, [count, 1, 1], Sampler.farthest, DType.u32)
    const enough = shareOf(masses(within.add(1).reshape([count, 1])), topP!)
    bounds.push(reaching(distance, () => masses, enough).label("sample_top_p"))
  }
  const farthest = bounds.reduce((least, bound) => least.minimum(bound))

  const id = inPieces(iota(arena, vocabulary).cast(DType.u32).unsqueeze(0))
  const time = scaled(drawScale!.bitcast(DType.f32), Sampler.farthestDraw).add(noise(table, id, [a!, b!]))
  const drawn = distance.le(farthest).where(time.cast(DType.i32), never)
  const times = isAmong
    ? most!.eq(takesLikeliest).where(isNumber.and(isTop).not().cast(DType.i32).mul(never), drawn)
    : drawn
  const raced = times.contiguous().label("sample_race")
  const first = raced.min(-1).min(-1).reshape([count, 1, 1])
  const isFirst = raced.eq(first).and(raced.ne(never)).and(top.lt(Sampler.largestFloat))
  const winner = isFirst.where(id.cast(DType.i32), vocabulary).min(-1).min(-1)
  return Program.make([Program.assign(token(), winner.cast(DType.u32).label("sample"))])
}

/** A time that no candidate has. */
const never = 2 ** 31 - 1

const zero = (like: Tensor): Tensor => full(like.arena, like.shape, 0, like.dtype)

// ---- cuts

/** A sum of weights of each row: 2^14 high + low. */
type Sum = readonly [high: Tensor, low: Tensor]

/** For exclusive bounds `[rows, n]`, the weight of what lies below each: high and low part, `[rows, n]`. */
type SumsBelow = (bounds: Tensor) => Sum

/** `[rows, n, pieces, piece]`. */
const isBelow = (distance: Tensor, bounds: Tensor): Tensor =>
  distance.unsqueeze(1).lt(bounds.reshape([bounds.dim(0), bounds.dim(1), 1, 1]))

/** The number of tokens. It has no low part. */
const counts = (distance: Tensor): SumsBelow => (bounds) => {
  const count = isBelow(distance, bounds).cast(DType.u32).sum(-1).sum(-1)
  return [count, zero(count)]
}

/** The mass of tokens, whose halves are added up apart: a sum of all would not fit a word. */
const massOf = (table: Tensor, distance: Tensor): SumsBelow => {
  const power = (at: number, index: Tensor): Tensor => table.gather(index.add(Tables.powersAt + at))
  const fraction = distance.and(0xffff)
  const product = power(0, fraction.shr(8)).mul(power(256, fraction.and(255)))
  const isCandidate = distance.le(Sampler.farthest)
  const mass = isCandidate.where(product.shr(distance.shr(16).add(4).minimum(31)), 0).contiguous().label("sample_mass")
  const halves = mass.unsqueeze(1).unsqueeze(1).shr(counting(mass.arena, 2, 14, 3)).and(2 ** 14 - 1)
  return (bounds) => {
    const sums = isBelow(distance, bounds).unsqueeze(1).where(halves, 0).sum(-1).sum(-1)
    const half = (i: number): Tensor => sums.slice(1, i, 1).reshape(bounds.shape)
    return [half(1).add(half(0).shr(14)), half(0).and(2 ** 14 - 1)]
  }
}

/**
 * `share 2^-16` of a mass, as a sum times 2^16 is compared with it: `2^30 high + low`. Its parts of 16 bits are multiplied
 * apart.
 */
const shareOf = ([high, low]: Sum, share: Tensor): Sum => {
  const [h, l, s] = [high, low, share].map((x) => x.reshape([x.dim(0), 1])) as [Tensor, Tensor, Tensor]
  const middle = h.and(0xffff).mul(s)
  const rest = middle.and(0xffff).shl(14).add(l.mul(s))
  return [h.shr(16).mul(s).add(middle.shr(16)).add(rest.shr(30)), rest.and(2 ** 30 - 1)]
}

/** The smallest distance up to which each row has enough, `[rows, 1, 1]`; the farthest if there never is. */
const reaching = (
  distance: Tensor,
  weigh: (distance: Tensor) => SumsBelow,
  [high, low]: Sum
): Tensor => {
  const sumsBelow = weigh(distance)
  const rows = distance.dim(0)
  const [h, l] = [high, low].map((x) => x.reshape([rows, 1])) as [Tensor, Tensor]
  let prefix = zero(h)
  for (const shift of [20, 16, 12, 8, 4, 0]) {
    const digits = prefix.shl(4)
    const bounds = digits.add(counting(h.arena, 15, 1, 0)).add(1).shl(shift)
    const [sumHigh, sumLow] = sumsBelow(bounds)
    const tooFew = sumHigh.lt(h).or(sumHigh.eq(h).and(sumLow.shl(16).lt(l)))
    prefix = digits.add(tooFew.cast(DType.u32).sum(-1).reshape([rows, 1]))
  }
  // found once, not by every workgroup that races
  return prefix.contiguous().reshape([rows, 1, 1])
}

// ---- noise

const mix = (x: Tensor): Tensor => {
  const [first, second, third] = mixer.shifts
  const [f, g] = mixer.factors
  const folded = (h: Tensor, shift: number): Tensor => h.xor(h.shr(shift))
  return folded(folded(folded(x.add(mixer.add), first).mul(f), second).mul(g), third)
}

/** `Random.words` of places, `u32`, by the key of a seed. */
export const wordsAt = (key: Tensor, place: Tensor): readonly [Tensor, Tensor] => {
  const word = (at: Tensor): Tensor => mix(mix(at).xor(key))
  return [word(place.mul(2)), word(place.mul(2).add(1))]
}

/** `SamplerTables.noise` of each id. */
const noise = (table: Tensor, id: Tensor, [a, b]: readonly [Tensor, Tensor]): Tensor => {
  const own = mix(id.add(a))
  const [high, low] = [mix(own.xor(b)), mix(own.add(b))]
  // leading zeros, half of the word at a time
  let rest = high
  let zeros = zero(high)
  for (const k of [16, 8, 4, 2, 1]) {
    const isSmall = rest.lt(2 ** (32 - k))
    zeros = zeros.add(isSmall.cast(DType.u32).mul(k))
    rest = isSmall.where(rest.shl(k), rest)
  }
  const row = zeros.minimum(Tables.noiseRows - 1)
  const cell = row.shl(Tables.mantissaBits).add(low.shr(32 - Tables.mantissaBits))
  return table.gather(cell).sub(zeros.sub(row).mul(Tables.octave))
}
