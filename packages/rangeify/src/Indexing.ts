import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { Dim, Shape } from "@tg/core-uop/Shape"
import * as ShapeOf from "@tg/core-uop/Shape"
import { type Arena, transfer, type UOp } from "@tg/core-uop/UOp"

/** A dimension as an index expression of the kernel's arena. */
export const extent = (arena: Arena, dim: Dim): UOp =>
  typeof dim === "number" ? Expr.int(arena, dim) : transfer(dim, arena)

const isConst = (x: UOp, value: number): boolean => x.op === "CONST" && x.arg === value

/** `a + b` and `a * b` without the trivial cases, so that lowering does not build what the simplifier removes at once. */
export const plus = (a: UOp, b: UOp): UOp =>
  isConst(a, 0)
    ? b
    : isConst(b, 0)
    ? a
    : a.op === "CONST" && b.op === "CONST"
    ? Expr.int(a.arena, Number(a.arg) + Number(b.arg))
    : Expr.add(a, b)
const times = (a: UOp, n: number): UOp =>
  n === 1 || isConst(a, 0) ? a : a.op === "CONST" ? Expr.int(a.arena, Number(a.arg) * n) : Expr.mul(a, n)

/**
 * Where element `index` of a buffer of this shape lies. Strides come from the largest value of each dimension, so the
 * place of an element does not depend on the value of a symbolic dimension.
 */
export const flatten = (arena: Arena, shape: Shape, index: ReadonlyArray<UOp>): UOp => {
  let at = Expr.int(arena, 0)
  let stride = 1
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    at = plus(times(index[axis]!, stride), at)
    stride *= ShapeOf.maxOf(shape[axis]!)
  }
  return at
}

/** Element number of `index` in a contiguous run of dims; the first may be symbolic. */
const number = (arena: Arena, dims: ReadonlyArray<Dim>, index: ReadonlyArray<UOp>): UOp => {
  let at = Expr.int(arena, 0)
  for (let axis = 0; axis < dims.length; axis++) {
    const dim = dims[axis]!
    at = plus(
      axis === 0 ? at : typeof dim === "number" ? times(at, dim) : Expr.mul(at, extent(arena, dim)),
      index[axis]!
    )
  }
  return at
}

const split = (arena: Arena, dims: ReadonlyArray<Dim>, at: UOp): ReadonlyArray<UOp> => {
  const index: Array<UOp> = []
  let rest = at
  for (let axis = dims.length - 1; axis >= 0; axis--) {
    const dim = dims[axis]!
    if (axis === 0) index[0] = rest
    else if (dim === 1) index[axis] = Expr.int(arena, 0)
    else {
      const size = extent(arena, dim)
      index[axis] = Expr.floormod(rest, size)
      rest = Expr.floordiv(rest, size)
    }
  }
  return index
}

/**
 * The index into `from` of element `index` of its reshape to `to`. Leading and trailing axes that both shapes share
 * pass through; between them, the shortest groups of axes with equal products are flattened and split again.
 */
export const reshape = (arena: Arena, from: Shape, to: Shape, index: ReadonlyArray<UOp>): ReadonlyArray<UOp> => {
  const result: Array<UOp> = []
  let i = 0
  let j = 0
  while (i < from.length || j < to.length) {
    if (i < from.length && j < to.length && from[i] === to[j]) {
      result[i++] = index[j++]!
      continue
    }
    if (i < from.length && from[i] === 1) {
      result[i++] = Expr.int(arena, 0)
      continue
    }
    if (j < to.length && to[j] === 1) {
      j++
      continue
    }
    const group = matching(from, i, to, j)
    const at = number(arena, to.slice(j, group.j), index.slice(j, group.j))
    for (const x of split(arena, from.slice(i, group.i), at)) result.push(x)
    i = group.i
    j = group.j
  }
  return result
}

/** The shortest runs `from[i..)`, `to[j..)` with equal products; where a symbolic dim is met, all that is left. */
const matching = (from: Shape, i: number, to: Shape, j: number): { readonly i: number; readonly j: number } => {
  let [p, q, a, b] = [i, j, 1, 1]
  while (p < from.length || q < to.length) {
    const takeFrom = q === to.length || (p < from.length && a <= b)
    const dim = takeFrom ? from[p++]! : to[q++]!
    if (typeof dim !== "number") return { i: from.length, j: to.length }
    if (takeFrom) a *= dim
    else b *= dim
    if (a === b && p > i && q > j) return { i: p, j: q }
  }
  return { i: p, j: q }
}

/** The loops around a store. */
export const endAt = (store: UOp, loops: ReadonlyArray<UOp>): UOp =>
  store.arena.make("END", DType.none, [store, ...loops.filter((r) => r.op === "RANGE")])
