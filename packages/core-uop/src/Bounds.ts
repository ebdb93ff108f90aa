import type { BoundedLattice } from "fp-ts/BoundedLattice"
import type { Eq } from "fp-ts/Eq"
import type { DType } from "./DType.ts"
import { argOf, type Range, unseen, type UOp, varArg } from "./UOp.ts"

/** The empty interval. */
export const empty: Range = { min: Infinity, max: -Infinity }
/** Every integer. */
export const all: Range = { min: -Infinity, max: Infinity }

const isEmpty = (r: Range): boolean => r.min > r.max
const normal = (min: number, max: number): Range => min > max ? empty : { min: min + 0, max: max + 0 }

/** Value ranges: `join` at a choice, `meet` at a guard; `zero` is the empty range, `one` is every integer. */
export const Lattice: BoundedLattice<Range> = {
  zero: empty,
  one: all,
  join: (a, b) => isEmpty(a) ? b : isEmpty(b) ? a : normal(Math.min(a.min, b.min), Math.max(a.max, b.max)),
  meet: (a, b) => normal(Math.max(a.min, b.min), Math.min(a.max, b.max))
}

export const EqRange: Eq<Range> = {
  equals: (a, b) => (isEmpty(a) && isEmpty(b)) || (a.min === b.min && a.max === b.max)
}

/** Every value a dtype can hold. */
export const ofDType = (dtype: DType): Range => {
  switch (dtype.scalar) {
    case "bool":
      return { min: 0, max: 1 }
    case "u32":
      return { min: 0, max: 2 ** 32 - 1 }
    case "i32":
    case "index":
      return { min: -(2 ** 31), max: 2 ** 31 - 1 }
    default:
      return all
  }
}

const point = (value: number): Range => ({ min: value, max: value })
const product = (a: number, b: number): number => a === 0 || b === 0 ? 0 : a * b

const corners = (a: Range, b: Range, f: (x: number, y: number) => number): Range => {
  const values = [f(a.min, b.min), f(a.min, b.max), f(a.max, b.min), f(a.max, b.max)]
  return { min: Math.min(...values) + 0, max: Math.max(...values) + 0 }
}

const modulo = (x: Range, m: Range): Range => {
  if (m.min === m.max && m.min > 0) {
    const c = m.min
    const block = Math.floor(x.min / c)
    if (Number.isFinite(x.min) && Number.isFinite(x.max) && block === Math.floor(x.max / c)) {
      return { min: x.min - block * c, max: x.max - block * c }
    }
    return { min: 0, max: x.min >= 0 ? Math.min(c - 1, x.max) : c - 1 }
  }
  if (m.min > 0) return { min: 0, max: x.min >= 0 ? Math.min(m.max - 1, x.max) : m.max - 1 }
  return all
}

/** The smallest 2^k - 1 that is at least `x`. */
const mask = (x: number): number => {
  let m = 0
  while (m < x) m = m * 2 + 1
  return m
}

const isTrue = (r: Range): boolean => r.min === 1
const isFalse = (r: Range): boolean => r.max === 0

/** Booleans as 0 and 1: AND is the minimum, OR the maximum. */
const ofTruth = (op: "AND" | "OR" | "XOR", x: Range, y: Range): Range => {
  if (op === "AND") return { min: Math.min(x.min, y.min), max: Math.min(x.max, y.max) }
  if (op === "OR") return { min: Math.max(x.min, y.min), max: Math.max(x.max, y.max) }
  const known = x.min === x.max && y.min === y.max
  return known ? point(x.min === y.min ? 0 : 1) : { min: 0, max: 1 }
}

/** Bitwise operations have bounds where operands are non-negative; AND is at most either non-negative operand. */
const ofBits = (op: "AND" | "OR" | "XOR", x: Range, y: Range): Range => {
  const both = x.min >= 0 && y.min >= 0
  if (op === "AND") {
    if (x.min < 0 && y.min < 0) return all
    return { min: 0, max: both ? Math.min(x.max, y.max) : y.min >= 0 ? y.max : x.max }
  }
  if (!both) return all
  return { min: op === "OR" ? Math.max(x.min, y.min) : 0, max: mask(Math.max(x.max, y.max)) }
}

const transferFunction = (node: UOp, b: (i: number) => Range): Range => {
  switch (node.op) {
    case "CONST":
      return typeof node.arg === "number" && Number.isNaN(node.arg) ? all : point(Number(node.arg) + 0)
    case "VAR":
      return { min: varArg(node).min, max: varArg(node).max }
    case "RANGE":
    case "SPECIAL":
      return { min: 0, max: Math.max(0, b(0).max - 1) }
    case "IOTA":
      return { min: 0, max: Math.max(0, b(0).max - 1) }
    case "ADD":
      return { min: b(0).min + b(1).min, max: b(0).max + b(1).max }
    case "SUB":
      return { min: b(0).min - b(1).max, max: b(0).max - b(1).min }
    case "NEG":
      return { min: -b(0).max + 0, max: -b(0).min + 0 }
    case "MUL":
      return corners(b(0), b(1), product)
    case "FLOORDIV":
      return b(1).min > 0 || b(1).max < 0
        ? corners(b(0), b(1), (x, y) => Number.isFinite(y) ? Math.floor(x / y) : x < 0 !== y < 0 && x !== 0 ? -1 : 0)
        : all
    case "FLOORMOD":
      return modulo(b(0), b(1))
    case "MAX":
      return { min: Math.max(b(0).min, b(1).min), max: Math.max(b(0).max, b(1).max) }
    case "MIN":
      return { min: Math.min(b(0).min, b(1).min), max: Math.min(b(0).max, b(1).max) }
    case "AND":
    case "OR":
    case "XOR":
      return node.dtype.scalar === "bool" ? ofTruth(node.op, b(0), b(1)) : ofBits(node.op, b(0), b(1))
    case "SHL":
      return b(1).min === b(1).max && b(1).min >= 0 && b(1).min < 32
        ? { min: b(0).min * 2 ** b(1).min, max: b(0).max * 2 ** b(1).min }
        : all
    case "SHR":
      return b(1).min >= 0 && b(1).max < 32 && b(0).min >= 0
        ? { min: Math.floor(b(0).min / 2 ** b(1).max), max: Math.floor(b(0).max / 2 ** b(1).min) }
        : all
    case "CMPLT":
      return { min: b(0).max < b(1).min ? 1 : 0, max: b(0).min < b(1).max ? 1 : 0 }
    case "CMPEQ": {
      const equal = b(0).min === b(0).max && b(1).min === b(1).max && b(0).min === b(1).min
      return { min: equal ? 1 : 0, max: b(0).max < b(1).min || b(1).max < b(0).min ? 0 : 1 }
    }
    case "CMPNE": {
      const equal = b(0).min === b(0).max && b(1).min === b(1).max && b(0).min === b(1).min
      return { min: b(0).max < b(1).min || b(1).max < b(0).min ? 1 : 0, max: equal ? 0 : 1 }
    }
    case "DOT4I8":
      return { min: -4 * 128 * 127, max: 4 * 128 * 128 }
    case "WHERE":
      return isTrue(b(0)) ? b(1) : isFalse(b(0)) ? b(2) : Lattice.join(b(1), b(2))
    case "CAST":
      return node.src[0]!.dtype.scalar === "f32" || node.dtype.scalar === "bool" ? all : b(0)
    case "STACK":
      return node.src.slice(1).reduce((r, _, i) => Lattice.join(r, b(i + 1)), b(0))
    case "SUBGROUP_REDUCE":
      return argOf(node, "SUBGROUP_REDUCE").op === "ADD" ? all : b(0)
    case "LANE":
    case "RESHAPE":
    case "EXPAND":
    case "PERMUTE":
    case "SHRINK":
    case "FLIP":
    case "CONTIGUOUS":
      return b(0)
    case "PAD":
      return Lattice.join(b(0), point(0))
    case "GATHER":
      return b(0)
    default:
      return all
  }
}

const hasBounds = (node: UOp): boolean => node.cache.bounds !== undefined

/**
 * The values a node can take, by interval arithmetic. `i32` and `u32` wrap, so an interval that leaves the dtype widens to all of
 * it. `index` does not wrap: finite ends may lie beyond 32 bits (lowering checks them), infinite ones are cut to 32 bits. Floats
 * and effects are `all`.
 */
export const of = (root: UOp): Range => {
  if (root.cache.bounds !== undefined) return root.cache.bounds
  for (const node of unseen(root, hasBounds)) node.cache.bounds = derive(node)
  return root.cache.bounds!
}

const derive = (node: UOp): Range => {
  if (node.dtype.scalar === "f32" || node.dtype.scalar === "void") return all
  const floats = node.src.some((s) => s.dtype.scalar === "f32")
  const whole = ofDType(node.dtype)
  if (floats && node.op !== "CONST") return whole
  const r = transferFunction(node, (i) => node.src[i]!.cache.bounds!)
  if (r.min > r.max) return whole
  if (node.dtype.scalar === "index") {
    return r.min === -Infinity || r.max === Infinity ? Lattice.meet(r, whole) : r
  }
  return r.min >= whole.min && r.max <= whole.max ? r : whole
}

/** The one value a node can take, if its bounds leave only one. */
export const constantOf = (node: UOp): number | undefined => {
  const { max, min } = of(node)
  return min === max ? min : undefined
}
