import type { DType } from "./DType.ts"
import { type Data, exactMulacc, type Monoid, monoid, scalar, type ScalarFunction } from "./EvaluateOps.ts"
import type { Op, ReduceOp } from "./Op.ts"

/** An operand of a three-level loop: element (o, m, i) is at `data[o * outer + m * middle + i * inner]`. */
export interface Operand {
  readonly data: Data
  readonly outer: number
  readonly middle: number
  readonly inner: number
}

/** Trip counts of a three-level loop. */
export interface Extent {
  readonly outer: number
  readonly middle: number
  readonly inner: number
}

type ZipLoop = (
  out: Data,
  extent: Extent,
  a: Operand,
  b: Operand | undefined,
  c: Operand | undefined
) => void

const loops = new Map<string, unknown>()

/**
 * A loop compiled on its own for each key. The engine's type feedback belongs to a function's source text: one shared
 * loop would see every array type and every operation, and run ten times slower. `source` is JavaScript with the one
 * free name `f`. Where code generation is forbidden the shared `fallback` does the same.
 */
const specialised = <A>(key: string, source: string, f: unknown, fallback: (f: never) => A): A => {
  const found = loops.get(key)
  if (found !== undefined) return found as A
  const made = ((): A => {
    try {
      return new Function("f", `/* ${key} */ "use strict"; return ${source}`)(f)
    } catch {
      return fallback(f as never)
    }
  })()
  loops.set(key, made)
  return made
}

const zipSource = (count: number): string => {
  const names = ["a", "b", "c"].slice(0, count)
  const each = (line: (name: string) => string): string => names.map(line).join("; ")
  return `(out, { outer, middle, inner }, a_, b_, c_) => {
    ${each((n) => `const ${n} = ${n}_.data, ${n}o = ${n}_.outer, ${n}m = ${n}_.middle, ${n}i = ${n}_.inner`)}
    let p = 0
    for (let o = 0; o < outer; o++) {
      for (let m = 0; m < middle; m++) {
        ${each((n) => `let ${n}p = o * ${n}o + m * ${n}m`)}
        for (let i = 0; i < inner; i++) {
          out[p++] = f(${names.map((n) => `${n}[${n}p]`).join()})
          ${each((n) => `${n}p += ${n}i`)}
        }
      }
    }
  }`
}

const zipFallback = (f: ScalarFunction): ZipLoop => (out, { inner, middle, outer }, a, b, c) => {
  let p = 0
  for (let o = 0; o < outer; o++) {
    for (let m = 0; m < middle; m++) {
      for (let i = 0; i < inner; i++) {
        const at = (x: Operand | undefined): number =>
          x === undefined ? 0 : x.data[o * x.outer + m * x.middle + i * x.inner]!
        out[p++] = f(at(a), at(b), at(c))
      }
    }
  }
}

const kind = (x: Operand | undefined): string => x === undefined ? "" : x.data.constructor.name

/** Fills dense `out` with the operation on the operands; `from` is the dtype of the last one. */
export const zip = (
  op: Op,
  from: DType,
  to: DType,
  out: Data,
  extent: Extent,
  operands: ReadonlyArray<Operand>
): void => {
  const [a, b, c] = operands
  const exact = op === "MULACC" && out instanceof Float64Array && to.scalar === "f32"
  const kinds = `${out.constructor.name} ${kind(a)} ${kind(b)} ${kind(c)}`
  const key = `${exact ? "EXACT_" : ""}${op} ${from.scalar} ${to.scalar} ${kinds}`
  const found = loops.get(key) as ZipLoop | undefined
  const loop = found ??
    specialised<ZipLoop>(key, zipSource(operands.length), exact ? exactMulacc : scalar(op, from, to), zipFallback)
  loop(out, extent, a!, b, c)
}

/** Row-major strides. */
export const stridesOf = (shape: ReadonlyArray<number>): ReadonlyArray<number> => {
  const strides = shape.map(() => 1)
  let n = 1
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = n
    n *= shape[axis]!
  }
  return strides
}

export const product = (shape: ReadonlyArray<number>): number => shape.reduce((n, d) => n * d, 1)

/** An operand that is as dense as the result. */
export const dense = (data: Data): Operand => ({ data, outer: 0, middle: 0, inner: 1 })

/** Where the elements of a strided box lie, in row-major order of `shape`. */
export interface Box {
  readonly shape: ReadonlyArray<number>
  readonly strides: ReadonlyArray<number>
  readonly offset: number
}

type RowCopy = (out: Data, at: number, from: Data, p: number, stride: number, n: number) => void
const rowSource = `(out, at, from, p, stride, n) => {
  for (let i = 0; i < n; i++) { out[at + i] = from[p]; p += stride }
}`
const rowFallback = (_: undefined): RowCopy => (out, at, from, p, stride, n) => {
  for (let i = 0; i < n; i++) out[at + i] = from[p + i * stride]!
}

/** Copies a strided box of `from` into dense `out`. */
export const copyOut = (out: Data, from: Data, box: Box): void => {
  if (product(box.shape) === 0) return
  const rank = box.shape.length
  if (rank === 0) {
    out[0] = from[box.offset]!
    return
  }
  const key = `row ${out.constructor.name} ${from.constructor.name}`
  const row = loops.get(key) as RowCopy | undefined ?? specialised<RowCopy>(key, rowSource, undefined, rowFallback)
  const n = box.shape[rank - 1]!
  const stride = box.strides[rank - 1]!
  const counter = box.shape.map(() => 0)
  let p = box.offset
  for (let at = 0;; at += n) {
    row(out, at, from, p, stride, n)
    let axis = rank - 2
    for (; axis >= 0; axis--) {
      p += box.strides[axis]!
      if (++counter[axis]! < box.shape[axis]!) break
      p -= box.strides[axis]! * box.shape[axis]!
      counter[axis] = 0
    }
    if (axis < 0) return
  }
}

type ReduceLoop = (out: Data, from: Data, outer: number, count: number, inner: number, identity: number) => void
const reduceSource = `(out, from, outer, count, inner, identity) => {
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      let sum = identity
      let p = o * count * inner + i
      for (let k = 0; k < count; k++) { sum = f(sum, from[p]); p += inner }
      out[o * inner + i] = sum
    }
  }
}`
const reduceFallback = (f: Monoid["combine"]): ReduceLoop => (out, from, outer, count, inner, identity) => {
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      let sum = identity
      for (let k = 0; k < count; k++) sum = f(sum, from[(o * count + k) * inner + i]!)
      out[o * inner + i] = sum
    }
  }
}

/** `out[o, i]` combines `from[o, k, i]` over k, in order. Floats are rounded once, at the end. */
export const reduce = (
  op: ReduceOp,
  dtype: DType,
  out: Data,
  from: Data,
  extent: { readonly outer: number; readonly count: number; readonly inner: number }
): void => {
  const key = `reduce ${op} ${dtype.scalar} ${from.constructor.name}`
  const { combine, identity } = monoid(op, dtype)
  const loop = specialised<ReduceLoop>(key, reduceSource, combine, reduceFallback)
  loop(out, from, extent.outer, extent.count, extent.inner, identity)
}
