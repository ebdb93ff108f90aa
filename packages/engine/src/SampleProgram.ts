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

/** The row in pieces, so that many threads work on it: [pieces, piece], with places behind the row if it does not divide. */
const shapeOf = (vocabulary: number): readonly [number, number] => {
  if (vocabulary <= 4096) return [1, vocabulary]
  const piece = Array.from({ length: 769 }, (_, i) => 1024 - i).find((n) => vocabulary % n === 0) ?? 1024
  return [Math.ceil(vocabulary / piece), piece]
}

/** Words of a mask's buffer. */
export const maskWords = (vocabulary: number): number => Math.ceil(vocabulary / 32)

/** Of each token whether the mask's buffer has it, `[vocabulary]`. */
const maskOf = (arena: Arena, vocabulary: number): Tensor => {
  const words = maskWords(vocabulary)
  const mask = buffer(arena, ids.mask, { shape: [words], dtype: DType.u32, label: "mask" })
  const bits = mask.reshape([words, 1]).shr(counting(arena, 32, 1, 0)).and(1).reshape([32 * words])
  return bits.slice(0, 0, vocabulary).ne(0)
}

/** The likeliest token of logits `[1, vocabulary]`, `Likeliest`, as a program of its own. */
export const greedy = (vocabulary: number, allowed: Allowed): Program.TensorProgram => {
  const arena = new Arena()
  const logits = buffer(arena, ids.logits, { shape: [1, vocabulary], dtype: DType.f32, label: "logits" })
  const token = buffer(arena, ids.token, { shape: [1], dtype: DType.u32, label: "next" })
  const mask = allowed === "masked" ? maskOf(arena, vocabulary) : undefined
  return Program.make([Program.assign(token, Likeliest.likeliest(logits, mask).label("sample"))])
}

/** The program of a vocabulary and its cuts. */
export const make = (vocabulary: number, cuts: Cuts, allowed: Allowed = "all"): Program.TensorProgram => {
  const arena = new Arena()
  const logits = buffer(arena, ids.logits, { shape: [1, vocabulary], dtype: DType.f32, label: "logits" })
  const token = buffer(arena, ids.token, { shape: [1], dtype: DType.u32, label: "next" })
  const rules = buffer(arena, ids.rule, { shape: [mostDraws, ruleWords], dtype: DType.u32, label: "rules" })
  const rule = rules.slice(0, variable(arena, "draw", 0, mostDraws - 1), 1)
  const table = buffer(arena, ids.table, { shape: [Tables.words], dtype: DType.u32, label: "tables" })
  const [a, b, drawScale, topK, topP, most] = Array.from(
    { length: ruleWords },
    (_, i) => rule.slice(1, i, 1)
  )

  const shape = shapeOf(vocabulary)
  const behind = shape[0] * shape[1] - vocabulary
  const inPieces = (x: Tensor): Tensor => x.reshape([vocabulary]).pad([[0, behind]]).reshape(shape)
  const { isInvalid, isNumber: hasNumber } = Likeliest.kinds(logits)
  const row = hasNumber.reshape([vocabulary])
  const isNumber = inPieces(allowed === "masked" ? row.and(maskOf(arena, vocabulary)) : row)
  const orLeast = isNumber.where(inPieces(logits), -Sampler.largestFloat)
  const value = inPieces(isInvalid).where(Sampler.largestFloat, orLeast)
  const top = value.max(-1).max().reshape([1, 1]).label("sample_top")
  const below = value.eq(top).where(0, top.sub(value))
  const scaled = (scale: Tensor | number, largest: number): Tensor => below.mul(scale).minimum(largest).cast(DType.u32)
  const all = isNumber.where(scaled(Sampler.scale, Sampler.farthest), Sampler.farthest + 1)
  const distance = cuts.topK || cuts.topP ? all.contiguous().label("sample_distance") : all

  const bounds = [most!]
  if (cuts.topK) bounds.push(reaching(distance, counts, [topK!, zero(topK!)]).label("sample_top_k"))
  if (cuts.topP) {
    const masses = massOf(table, distance)
    const within = bounds[1] ?? full(arena, [1, 1], Sampler.farthest, DType.u32)
    const enough = shareOf(masses(within.add(1).reshape([1])), topP!)
    bounds.push(reaching(distance, () => masses, enough).label("sample_top_p"))
  }
  const farthest = bounds.reduce((least, bound) => least.minimum(bound))

  const id = inPieces(iota(arena, vocabulary).cast(DType.u32))
  const time = scaled(drawScale!.bitcast(DType.f32), Sampler.farthestDraw).add(noise(table, id, [a!, b!]))
  const raced = distance.le(farthest).where(time.cast(DType.i32), never).contiguous().label("sample_race")
  const first = raced.min(-1).min().reshape([1, 1])
  const isFirst = raced.eq(first).and(raced.ne(never)).and(top.lt(Sampler.largestFloat))
  const winner = isFirst.where(id.cast(DType.i32), vocabulary).min(-1).min()
  return Program.make([Program.assign(token, winner.cast(DType.u32).reshape([1]).label("sample"))])
}

/** A time that no candidate has. */
const never = 2 ** 31 - 1

const zero = (like: Tensor): Tensor => full(like.arena, like.shape, 0, like.dtype)

// ---- cuts

/** A sum of weights: 2^14 high + low. */
type Sum = readonly [high: Tensor, low: Tensor]

/** For exclusive bounds `[n]`, the weight of what lies below each: high and low part, `[n]`. */
type SumsBelow = (bounds: Tensor) => Sum

const isBelow = (distance: Tensor, bounds: Tensor): Tensor =>
  distance.unsqueeze(0).lt(bounds.reshape([bounds.dim(0), 1, 1]))

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
  const halves = mass.reshape([1, 1, ...mass.shape]).shr(counting(mass.arena, 2, 14, 3)).and(2 ** 14 - 1)
  return (bounds) => {
    const n = Number(bounds.dim(0))
    const sums = isBelow(distance, bounds).where(halves, 0).sum(-1).sum(-1)
    const half = (i: number): Tensor => sums.slice(0, i, 1).reshape([n])
    return [half(1).add(half(0).shr(14)), half(0).and(2 ** 14 - 1)]
  }
}

/**
 * `share 2^-16` of a mass, as a sum times 2^16 is compared with it: `2^30 high + low`. Its parts of 16 bits are multiplied
 * apart.
 */
const shareOf = ([high, low]: Sum, share: Tensor): Sum => {
  const [h, l, s] = [high, low, share].map((x) => x.reshape([1, 1])) as [Tensor, Tensor, Tensor]
  const middle = h.and(0xffff).mul(s)
  const rest = middle.and(0xffff).shl(14).add(l.mul(s))
  return [h.shr(16).mul(s).add(middle.shr(16)).add(rest.shr(30)), rest.and(2 ** 30 - 1)]
}

/** The smallest distance up to which there is enough, `[1, 1]`; the farthest if there never is. */
const reaching = (
  distance: Tensor,
  weigh: (distance: Tensor) => SumsBelow,
  [high, low]: Sum
): Tensor => {
  const sumsBelow = weigh(distance)
  const [h, l] = [high, low].map((x) => x.reshape([1])) as [Tensor, Tensor]
  let prefix = zero(h)
  for (const shift of [20, 16, 12, 8, 4, 0]) {
    const digits = prefix.shl(4)
    const bounds = digits.add(counting(h.arena, 15, 1, 0)).add(1).shl(shift)
    const [sumHigh, sumLow] = sumsBelow(bounds)
    const tooFew = sumHigh.lt(h).or(sumHigh.eq(h).and(sumLow.shl(16).lt(l)))
    prefix = digits.add(tooFew.cast(DType.u32).sum().reshape([1]))
  }
  // found once, not by every workgroup that races
  return prefix.contiguous().reshape([1, 1])
}

// ---- noise

const mix = (x: Tensor): Tensor => {
  const [first, second, third] = mixer.shifts
  const [f, g] = mixer.factors
  const folded = (h: Tensor, shift: number): Tensor => h.xor(h.shr(shift))
  return folded(folded(folded(x.add(mixer.add), first).mul(f), second).mul(g), third)
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
