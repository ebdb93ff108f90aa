import * as DType from "@tg/core-uop/DType"
import { comparison, type Op } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import type { Arena, UOp } from "@tg/core-uop/UOp"
import { fail } from "../TensorError.ts"

/** A dimension in canonical form: constants are numbers. */
export const dim = (d: Shape.Dim): Shape.Dim => typeof d === "number" ? d : Shape.fromUOp(d)

export const toNodes = (arena: Arena, dims: Shape.Shape): ReadonlyArray<UOp> => dims.map((d) => Shape.toUOp(arena, d))

/** The position of an axis that may be counted from the end. */
export const axisOf = (operation: string, axis: number, rank: number): number => {
  const at = axis < 0 ? axis + rank : axis
  if (!Number.isInteger(axis) || at < 0 || at >= rank) {
    return fail(operation, `axis ${axis}`, `a tensor of rank ${rank}`, `use ${-rank}..${rank - 1}`)
  }
  return at
}

/** A constant tensor. */
export const full = (arena: Arena, shape: Shape.Shape, value: number | boolean, dtype: DType.DType): UOp =>
  arena.make("CONST", dtype, toNodes(arena, shape), dtype.scalar === "bool" ? Boolean(value) : Number(value))

/** Reshapes of reshapes are one reshape. */
export const reshapeTo = (x: UOp, shape: Shape.Shape): UOp => {
  const from = x.op === "RESHAPE" ? x.src[0]! : x
  if (Shape.equal(Shape.of(from), shape)) return from
  if (Shape.equal(Shape.of(x), shape)) return x
  if (x.op === "CONST") return x.arena.make("CONST", x.dtype, toNodes(x.arena, shape), x.arg)
  return x.arena.make("RESHAPE", x.dtype, [from, ...toNodes(x.arena, shape)])
}

export const expandTo = (x: UOp, shape: Shape.Shape): UOp =>
  Shape.equal(Shape.of(x), shape)
    ? x
    : x.op === "CONST"
    ? x.arena.make("CONST", x.dtype, toNodes(x.arena, shape), x.arg)
    : x.arena.make("EXPAND", x.dtype, [x, ...toNodes(x.arena, shape)])

/** The shape that all of them broadcast to, aligned at the right. */
export const broadcastShape = (operation: string, ...shapes: ReadonlyArray<Shape.Shape>): Shape.Shape => {
  const rank = Math.max(...shapes.map((s) => s.length))
  return Array.from({ length: rank }, (_, axis): Shape.Dim => {
    let result: Shape.Dim = 1
    for (const shape of shapes) {
      const d = shape[axis - rank + shape.length] ?? 1
      if (d === 1 || d === result) continue
      if (result !== 1) {
        const all = shapes.map(Shape.print).join(" and ")
        return fail(operation, "shapes that broadcast", all, "reshape or expand one of them, or slice the longer")
      }
      result = d
    }
    return result
  })
}

/** Broadcasts `x` to `shape`, aligned at the right. */
export const broadcastTo = (operation: string, x: UOp, shape: Shape.Shape): UOp => {
  const from = Shape.of(x)
  if (Shape.equal(from, shape)) return x
  const missing = shape.length - from.length
  if (missing < 0 || from.some((d, axis) => d !== 1 && d !== shape[axis + missing])) {
    return fail(
      operation,
      `shape ${Shape.print(shape)}`,
      `shape ${Shape.print(from)}`,
      "only axes of size 1 can grow; reshape first"
    )
  }
  return expandTo(reshapeTo(x, [...Array.from({ length: missing }, () => 1), ...from]), shape)
}

const resultOf = (op: Op, last: DType.DType): DType.DType =>
  comparison.has(op)
    ? DType.bool
    : op === "HALF_TO_FLOAT"
    ? DType.f32
    : op === "FLOAT_TO_HALF"
    ? DType.u32
    : op === "DOT4I8"
    ? DType.i32
    : last

/** An elementwise operation over broadcast sources. */
export const elementwise = (op: Op, ...src: ReadonlyArray<UOp>): UOp => {
  const shape = broadcastShape(op, ...src.map(Shape.of))
  const operands = op === "WHERE" ? src.slice(1) : src
  const dtype = operands[0]!.dtype
  for (const other of operands) {
    if (other.dtype !== dtype) {
      return fail(op, "operands of one dtype", operands.map((s) => DType.print(s.dtype)).join(" and "), "cast one")
    }
  }
  const stretched = src.map((s) => broadcastTo(op, s, shape))
  return src[0]!.arena.make(op, resultOf(op, dtype), stretched)
}

/** The number of elements, split into its numeric factor and its symbolic ones. */
const factors = (shape: Shape.Shape): { readonly count: number; readonly symbols: ReadonlyArray<UOp> } => {
  let count = 1
  const symbols: Array<UOp> = []
  const visit = (d: Shape.Dim): void => {
    if (typeof d === "number") count *= d
    else if (d.op === "CONST") count *= Number(d.arg)
    else if (d.op === "MUL") d.src.forEach(visit)
    else symbols.push(d)
  }
  shape.forEach(visit)
  return { count, symbols }
}

const without = (from: ReadonlyArray<UOp>, remove: ReadonlyArray<UOp>): ReadonlyArray<UOp> | undefined => {
  const rest = [...from]
  for (const r of remove) {
    const at = rest.indexOf(r)
    if (at < 0) return undefined
    rest.splice(at, 1)
  }
  return rest
}

/** The shape of a reshape, with its -1 resolved. A symbolic axis can move, but not be split. */
export const reshapeShape = (x: UOp, shape: Shape.Shape): Shape.Shape => {
  const from = Shape.of(x)
  const wrong = (remedy: string): never =>
    fail("reshape", Shape.print(shape), `a tensor of shape ${Shape.print(from)}`, remedy)
  const holes = shape.filter((d) => d === -1).length
  const dims = shape.map(dim)
  const asked = factors(dims.filter((d) => d !== -1))
  const found = factors(from)
  const symbols = without(found.symbols, asked.symbols)
  if (holes > 1) return wrong("leave at most one size open")
  if (symbols === undefined) return wrong("keep each symbolic axis whole")
  if (holes === 0) {
    return symbols.length === 0 && asked.count === found.count ? dims : wrong("the number of elements must agree")
  }
  const rest = asked.count === 0 ? NaN : found.count / asked.count
  if (symbols.length > 1 || (symbols.length === 1 && rest !== 1)) {
    return wrong("a symbolic axis cannot merge with others; name it in the shape")
  }
  if (!Number.isInteger(rest)) return wrong("the sizes do not divide")
  if (symbols.length === 0) return dims.map((d) => d === -1 ? rest : d)
  return dims.map((d) => d === -1 ? symbols[0]! : d)
}
