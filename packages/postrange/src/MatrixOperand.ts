/**
 * Operands of products by matrix units in workgroup memory: words of two halves, for each step of the reduction. Neighbouring halves of a word are neighbours in
 * memory, along the terms of the sum or along an operand's own iterations, as it has them.
 */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { side } from "@tg/core-uop/MatrixTile"
import { openRanges, rangeArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf, fixedSize } from "@tg/core-uop/View"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"

const sizeOf = (range: UOp): number => fixedSize(range)!
/** Iterations of all these loops together. */
export const sizesOf = (ranges: ReadonlyArray<UOp>): number => ranges.reduce((n, range) => n * sizeOf(range), 1)

/** Halves from one iteration of a loop to the next, in what an operand reads most of; far apart where that is not known. */
const distance = (operand: UOp, range: UOp): number => {
  if (!openRanges(operand).has(range)) return Infinity
  const loads = toposort(operand).filter(({ op }) => op === "LOAD")
    .toSorted((a, b) => openRanges(b).size - openRanges(a).size)
  const [most] = loads
  if (most === undefined) return Infinity
  const step = stepOf(accessOf(most).at, range)
  // a loop that is in no index tells the halves of a word apart
  return step === undefined ? Infinity : step === 0 ? 1 : 2 * Math.abs(step)
}

/** Rows, or columns, of whole fragments: by powers of two, so that subgroups can share them. What is behind the last one repeats it, and is not stored. */
const paddedSize = (size: number): number => side * 2 ** Math.max(0, Math.ceil(Math.log2(size / side)))

/** Loops of neighbours last. */
const inOrder = (ranges: ReadonlyArray<UOp>, operand: UOp): ReadonlyArray<UOp> =>
  ranges.toSorted((a, b) => distance(operand, b) - distance(operand, a) || rangeArg(a).id - rangeArg(b).id)

/** The value of each loop when all of them are one, the last of them fastest. */
export const digits = (ranges: ReadonlyArray<UOp>, at: UOp): ReadonlyArray<readonly [UOp, UOp]> => {
  let above = at
  return ranges.toReversed().map((range, i) => {
    const own = above
    const size = range.src[0]!
    above = Symbolic.simplify(Expr.alu("FLOORDIV", own, size))
    return [range, i === ranges.length - 1 ? own : Expr.alu("FLOORMOD", own, size)] as const
  })
}

/** Words of a vector, and those between the rows of a tile, so that rows do not share banks of workgroup memory. */
export const vector = 4

/** The word of two halves that are computed alike. */
const joined = (low: UOp, high: UOp): UOp => {
  // both of them lie in one word already
  const isLow = low.op === "AND" && low.src[1]!.op === "CONST" && low.src[1]!.arg === 65535
  const unmasked = high.op === "AND" && high.src[1]!.op === "CONST" && high.src[1]!.arg === 65535 ? high.src[0]! : high
  const isHigh = unmasked.op === "SHR" && unmasked.src[1]!.op === "CONST" && unmasked.src[1]!.arg === 16
  if (isLow && isHigh && unmasked.src[0] === low.src[0]) return low.src[0]!
  const own = isLow || low.op === "FLOAT_TO_HALF" ? low : Expr.and(low, 65535)
  return Expr.or(own, Expr.shl(high, 16))
}

/** One operand of the tile. */
export interface Operand {
  readonly value: UOp
  /** Its own loops and those of the reduction, neighbours last. */
  readonly own: ReadonlyArray<UOp>
  readonly terms: ReadonlyArray<UOp>
  /** Iterations of its own loops, and those of whole fragments. */
  readonly size: number
  readonly padded: number
  /** Whether neighbours in memory are terms of the sum. */
  readonly isAlongTerms: boolean
}

export const operandOf = (value: UOp, own: ReadonlyArray<UOp>, terms: ReadonlyArray<UOp>): Operand => {
  const nearest = (ranges: ReadonlyArray<UOp>): number => Math.min(...ranges.map((range) => distance(value, range)))
  const size = sizesOf(own)
  return {
    value,
    own: inOrder(own, value),
    terms: inOrder(terms, value),
    size,
    padded: paddedSize(size),
    isAlongTerms: nearest(terms) < nearest(own)
  }
}

/** Whether halves are made of floats. */
export const isRounded = ({ value }: Operand): boolean => value.op === "FLOAT_TO_HALF"

/** Rows of halves of a staged tile: how many, and words from one to the next. */
export const strideOf = ({ isAlongTerms, padded, terms }: Operand): number =>
  (isAlongTerms ? sizesOf(terms) : padded) / 2 + vector
const rowsOf = ({ isAlongTerms, padded, terms }: Operand): number => isAlongTerms ? padded : sizesOf(terms)
/** Words of workgroup memory. */
export const wordsOf = (operand: Operand): number => strideOf(operand) * rowsOf(operand)

/** Iterations in a group of eight whose halves are four apart, as words of a vector: then floats are loaded as vectors before they are rounded. */
export const group = 2 * vector
export const spread = (at: UOp): UOp =>
  Expr.add(
    Expr.mul(Expr.floordiv(at, group), group),
    Expr.add(Expr.mul(Expr.floormod(at, 2), vector), Expr.floordiv(Expr.floormod(at, group), 2))
  )
export const usually = (at: UOp): UOp => at

/** In which order an operand has its own iterations. */
export const orderOf = (operand: Operand): (at: UOp) => UOp =>
  isRounded(operand) && !operand.isAlongTerms && operand.size % group === 0 ? spread : usually

/** An iteration of its own, or the last one. */
export const within = ({ padded, size }: Operand, at: UOp): UOp => padded === size ? at : Expr.min(at, size - 1)

/** Workgroup memory: its number, and words. */
export interface Memory {
  readonly id: number
  readonly length: number
}

/** The END that stages an operand, and the half at a place of it. */
export const stage = (
  operand: Operand,
  { fresh, instances, loops, memory: { id, length }, ofStep, orderOfTerms, terms, threads }: {
    readonly orderOfTerms: (at: UOp) => UOp
    /** The values of the reduction's other loops. */
    readonly ofStep: ReadonlyMap<UOp, UOp>
    readonly fresh: () => number
    readonly memory: Memory
    readonly instances: ReadonlyArray<UOp>
    readonly loops: ReadonlyArray<UOp>
    /** Of the reduction, in the order that both operands have. */
    readonly terms: ReadonlyArray<UOp>
    readonly threads: number
  }
) => {
  const { isAlongTerms, own, value } = operand
  const { arena } = value
  const [inner, outer] = isAlongTerms ? [terms, own] : [own, terms]
  const ofOwn = (at: UOp): UOp => within(operand, orderOf(operand)(at))
  const [ofInner, ofOuter] = isAlongTerms ? [orderOfTerms, ofOwn] : [ofOwn, orderOfTerms]
  const stride = strideOf(operand)
  const [across, down] = [stride - vector, rowsOf(operand)]
  const memory = arena.make("LOCAL", DType.u32, [...instances], { id, length })
  const vectors = across / vector * down
  const working = Math.min(threads, vectors)
  const turn = Expr.range(arena, vectors / working, fresh(), "LOOP")
  const thread = Expr.range(arena, working, fresh(), "LOCAL")
  const word = Expr.range(arena, vector, fresh(), "UPCAST")
  const at = Expr.add(Expr.mul(turn, working), thread)
  const row = Expr.floordiv(at, across / vector)
  const column = Expr.add(Expr.mul(Expr.floormod(at, across / vector), vector), word)
  const half = (i: number): UOp =>
    Symbolic.simplify(
      substitute(
        value,
        new Map([
          ...ofStep,
          ...digits(inner, Symbolic.simplify(ofInner(Expr.add(Expr.mul(column, 2), i)))),
          ...digits(outer, ofOuter(row))
        ])
      )
    )
  const target = Expr.element(memory, Symbolic.simplify(Expr.add(Expr.mul(row, stride), column)))
  const end = arena.make("END", DType.none, [
    Expr.store(target, joined(half(0), half(1))),
    ...loops,
    turn,
    thread,
    word
  ])
  const halfAt = (own: UOp, term: UOp): UOp => {
    const [row, at] = isAlongTerms ? [own, term] : [term, own]
    const word = Expr.load(Expr.element(memory, Expr.add(Expr.mul(row, stride), Expr.floordiv(at, 2))))
    const shift = Expr.mul(Expr.cast(Expr.floormod(at, 2), DType.u32), 16)
    return Expr.alu("HALF_TO_FLOAT", Expr.and(Expr.shr(word, shift), 65535))
  }
  return { end, halfAt }
}
