/** Comparison of two runs of a kernel. */
import { reduceArg, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Bounds from "@tg/core-uop/Bounds"
import * as Loops from "@tg/postrange/Loops"
import { members } from "@tg/rangeify/Horizontal"
import { type Argument, argumentsOf } from "./Inputs.ts"

/** The tolerance of a comparison when sums are reassociated. */
export interface Tolerance {
  /** Of the largest result. */
  readonly relative: number
  /** Words hold two halves each, the last bit of which may differ. */
  readonly packsHalves: boolean
  /** Words are of quantised blocks: signed bytes and sums of them, each off by at most one for each rounded value, and scales. */
  readonly quantises: boolean
}

// Half a unit in the last place of a float.
const rounding = 2 ** -24
// An allowance for operations behind a sum: products, roots, exponentials.
const otherSteps = 64

/**
 * The tolerance of a kernel of one member. Each of n additions rounds a partial sum, and partial sums of terms of either sign stay about
 * as small as the largest result. Errors add up to at most n roundings on each side.
 */
export const toleranceOf = (kernel: UOp): Tolerance => {
  const iterations = (reduction: UOp): number =>
    Loops.loopsOf(reduction).reduce((n, loop) => n * Bounds.of(loop.node.src[0]!).max, 1)
  const sums = Loops.reductions(kernel).filter((reduction) => reduceArg(reduction).op === "ADD")
  const additions = sums.reduce((n, reduction) => n + iterations(reduction), 0)
  return {
    relative: 2 * rounding * (additions + otherSteps),
    packsHalves: toposort(kernel).some((n) => n.op === "FLOAT_TO_HALF"),
    quantises: toposort(kernel).some((n) => n.op === "BITCAST" && n.dtype.scalar === "u32")
  }
}

/** The tolerance of each output of a kernel, in the order of the slots: that of the member that writes it. */
export const tolerancesOf = (kernel: UOp): ReadonlyArray<Tolerance> =>
  members(kernel).flatMap(({ ast, slots }) => {
    const tolerance = toleranceOf(ast)
    return argumentsOf(ast).filter(({ role }) => role.kind === "output").map(({ slot }) => ({
      // a kernel of one member has its own slots
      slot: ast === kernel ? slot : slots[slot]!,
      tolerance
    }))
  }).toSorted((a, b) => a.slot - b.slot).map(({ tolerance }) => tolerance)

/** An output of a kernel. */
export interface Output {
  readonly scalar: Argument["scalar"]
  readonly words: Uint32Array<ArrayBuffer>
}

/** An order-preserving map of halves to integers: distances are in units of the last place. */
const ordered = (half: number): number => (half & 0x8000) === 0 ? half : -(half & 0x7fff)

const areNearHalves = (a: number, b: number): boolean =>
  Math.abs(ordered(a & 0xffff) - ordered(b & 0xffff)) <= 1 && Math.abs(ordered(a >>> 16) - ordered(b >>> 16)) <= 1

// Values of a block, each of which may be rounded the other way.
const blockValues = 32
const mantissa = 2 ** 23

const areNearBytes = (a: number, b: number): boolean =>
  [0, 8, 16, 24].every((shift) => Math.abs((a << (24 - shift) >> 24) - (b << (24 - shift) >> 24)) <= 1)

/** Words of a quantised block; a scale's last places are those that the tolerance allows for a float. */
const areNearQuants = (a: number, b: number, relative: number): boolean =>
  areNearBytes(a, b) || Math.abs((a | 0) - (b | 0)) <= Math.max(blockValues, relative * mantissa)

/** The first difference of `found` from `wanted` beyond the tolerance of each output, as text. */
export const difference = (
  wanted: ReadonlyArray<Output>,
  found: ReadonlyArray<Output>,
  tolerances: ReadonlyArray<Tolerance>
): string | undefined => {
  for (const [number, { scalar, words }] of wanted.entries()) {
    const { packsHalves, quantises, relative } = tolerances[number]!
    const other = found[number]!.words
    const [a, b] = [new Float32Array(words.buffer), new Float32Array(other.buffer)]
    const allowed = scalar === "f32" ? relative * largest(a) : 0
    for (let i = 0; i < words.length; i++) {
      if (words[i] === other[i]) continue
      const agree = scalar === "f32"
        ? a[i] === b[i] || Math.abs(a[i]! - b[i]!) <= allowed || (Number.isNaN(a[i]) && Number.isNaN(b[i]))
        : packsHalves && areNearHalves(words[i]!, other[i]!) ||
          quantises && areNearQuants(words[i]!, other[i]!, relative)
      if (agree) continue
      const [x, y] = scalar === "f32" ? [a[i], b[i]] : [words[i], other[i]]
      return `output ${number}[${i}] is ${y} instead of ${x}${scalar === "f32" ? `, ${allowed} apart at most` : ""}`
    }
  }
  return undefined
}

const largest = (values: Float32Array): number =>
  values.reduce((most, x) => Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most, 0)

/** Whether results are conclusive: more than half of the numbers are finite. */
export const isTelling = (outputs: ReadonlyArray<Output>): boolean =>
  outputs.every(({ scalar, words }) => {
    if (scalar !== "f32") return true
    const finite = new Float32Array(words.buffer).reduce((n, x) => n + (Number.isFinite(x) ? 1 : 0), 0)
    return 2 * finite > words.length
  })
