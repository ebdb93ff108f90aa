/**
 * The derivative of each operation, as rows of a table. A row is a vector-Jacobian product: from the gradient of a node's value to the
 * gradients of its sources.
 */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { Op, ReduceOp } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { argOf, reduceArg, type UOp } from "@tg/core-uop/UOp"
import { scatterAdd } from "@tg/tensor/Scatter"
import { full, iota, scalar, Tensor, zeros } from "@tg/tensor/Tensor"

/**
 * The gradients of a node's sources, by number, from that of its value; undefined where there is none. A gradient is a float tensor of
 * the shape of its value. Words whose bits are floats have gradients too: those of the floats.
 */
export type Rule = (node: UOp, gradient: Tensor) => ReadonlyArray<Tensor | undefined>

/** An operation's rule, or that it stops gradients (it is constant almost everywhere). */
export type Row = Rule | "stop"

/** Rows by operation. `new Map([...standard, [op, row]])` has one more, or another one. */
export type Rules = ReadonlyMap<Op, Row>

const source = (node: UOp, i: number): Tensor => new Tensor(node.src[i]!)

const sizes = (node: UOp): Shape.Shape => Shape.of(node.src[0]!)

/** The gradient of `x` where the larger (by `isOther`: the other) operand is chosen; of equal ones, half for each. */
const choice = (isOther: (a: Tensor, b: Tensor) => Tensor): Rule => (node, g) => {
  const [a, b] = [source(node, 0), source(node, 1)]
  const shared = a.eq(b).where(g.mul(0.5), 0)
  const other = isOther(a, b)
  const own = other.or(a.eq(b)).not()
  return [own.where(g, shared), other.where(g, shared)]
}

const elementwise: ReadonlyArray<readonly [Op, Row]> = [
  ["NEG", (_, g) => [g.neg()]],
  ["SQRT", (node, g) => [g.mul(0.5).div(new Tensor(node))]],
  ["EXP2", (node, g) => [g.mul(new Tensor(node)).mul(Math.LN2)]],
  ["LOG2", (node, g) => [g.div(source(node, 0)).mul(Math.LOG2E)]],
  ["SIN", (node, g) => [g.mul(source(node, 0).add(Math.PI / 2).sin())]],
  ["ADD", (_, g) => [g, g]],
  ["SUB", (_, g) => [g, g.neg()]],
  ["MUL", (node, g) => [g.mul(source(node, 1)), g.mul(source(node, 0))]],
  ["FDIV", (node, g) => {
    const own = g.div(source(node, 1))
    return [own, own.mul(new Tensor(node)).neg()]
  }],
  ["MAX", choice((a, b) => a.lt(b))],
  ["MIN", choice((a, b) => b.lt(a))],
  ["WHERE", (node, g) => {
    const condition = source(node, 0)
    return [undefined, condition.where(g, 0), condition.where(0, g)]
  }],
  ["MULACC", (node, g) => [g.mul(source(node, 1)), g.mul(source(node, 0)), g]],
  // the same words under another name
  ["BITCAST", (_, g) => [g]]
]

/** Operations on integers and booleans, and roundings: constant almost everywhere. */
const constant: ReadonlyArray<Op> = [
  "CAST", // there is one type of floats: a cast comes from integers, or goes to them
  "TRUNC",
  "HALF_TO_FLOAT",
  "FLOAT_TO_HALF",
  "FLOORDIV",
  "FLOORMOD",
  "AND",
  "OR",
  "XOR",
  "SHL",
  "SHR",
  "CMPLT",
  "CMPEQ",
  "CMPNE",
  "DOT4I8",
  "IOTA",
  "CONST",
  "VAR",
  "BUFFER",
  "PARAM"
]

/** Pads `g`, the gradient of a window of an axis, with zeros to the whole axis. */
const unwindow = (
  g: Tensor,
  axis: number,
  window: { readonly start: Shape.Dim; readonly size: Shape.Dim },
  whole: Shape.Dim
): Tensor => {
  const { size, start } = window
  if (start === 0 && size === whole) return g
  if (typeof start === "number" && typeof size === "number" && typeof whole === "number") {
    return g.pad(g.shape.map((_, i) => i === axis ? [start, whole - start - size] : [0, 0]))
  }
  const { arena } = g
  const at = iota(arena, whole).sub(scalar(arena, start))
  const count = scalar(arena, size)
  const rows = g.transpose(0, axis).gather(at.minimum(count.sub(1)).maximum(0)).transpose(0, axis)
  const inside = at.ge(0).and(at.lt(count)).reshape([whole, ...g.shape.slice(axis + 1).map(() => 1)])
  return inside.where(rows, 0)
}

/** The gradient of a SHRINK's source: zeros outside of the window. */
export const unshrink = (node: UOp, gradient: Tensor): Tensor =>
  sizes(node).reduce<Tensor>((g, whole, axis) => {
    const [start, size] = node.src.slice(1 + 2 * axis, 3 + 2 * axis).map(Shape.fromUOp)
    return unwindow(g, axis, { start: start!, size: size! }, whole)
  }, gradient)

/** The inverse permutation. */
const inverse = (order: ReadonlyArray<number>): ReadonlyArray<number> => order.map((_, axis) => order.indexOf(axis))

/** The gradient of a GATHER's table: rows of it are added where they were read. */
const unlookup: Rule = (node, g) => {
  const [table, index] = [source(node, 0), source(node, 1)]
  const count = index.shape.reduce<Shape.Dim>((n, d) =>
    typeof n === "number" && typeof d === "number"
      ? n * d
      : Expr.mul(Shape.toUOp(table.arena, n), Shape.toUOp(table.arena, d)), 1)
  const number = (index.dtype === DType.u32 ? index : index.cast(DType.i32)).reshape([count])
  const value = g.reshape([count, ...table.shape.slice(1)])
  return [scatterAdd(zeros(table.arena, table.shape), { index: number, value })]
}

/** The gradients of what rows are added to, and of the rows: each read where it was added, 0 where there is no such row. */
const unscatter: Rule = (node, g) => {
  const [initial, index, value] = [source(node, 0), source(node, 1), source(node, 2)]
  const rows = scalar(g.arena, initial.dim(0))
  const number = (index.dtype === DType.u32 ? index.bitcast(DType.i32) : index).cast(DType.index)
  const exists = number.ge(0).and(number.lt(rows))
  const read = g.gather(exists.where(number, 0))
  return [g, undefined, exists.reshape([index.dim(0), ...value.shape.slice(1).map(() => 1)]).where(read, 0)]
}

const movement: ReadonlyArray<readonly [Op, Row]> = [
  ["RESHAPE", (node, g) => [g.reshape(sizes(node))]],
  ["EXPAND", (node, g) => {
    const from = sizes(node)
    const axis = [...from.keys()].filter((i) => from[i] !== g.shape[i])
    return [axis.length === 0 ? g : g.sum({ axis, keepDims: true })]
  }],
  ["PERMUTE", (node, g) => [g.permute(inverse(argOf(node, "PERMUTE")))]],
  ["PAD", (node, g) => {
    const windows = sizes(node).map((size, axis) => ({ start: Shape.fromUOp(node.src[1 + 2 * axis]!), size }))
    return [g.shrink(windows)]
  }],
  ["SHRINK", (node, g) => [unshrink(node, g)]],
  ["FLIP", (node, g) => [g.flip(...argOf(node, "FLIP"))]],
  ["GATHER", unlookup],
  ["SCATTER_ADD", unscatter],
  ["CONTIGUOUS", (_, g) => [g]]
]

/** Broadcasts a reduced value along the axes of the reduction. */
const along = (x: Tensor, shape: Shape.Shape, axes: ReadonlyArray<number>): Tensor =>
  x.reshape(shape.map((d, i) => axes.includes(i) ? 1 : d)).expand(shape)

/** Equal extremes get equal parts of the gradient. */
const extreme: Rule = (node, g) => {
  const { axes } = reduceArg(node)
  const x = source(node, 0)
  const isExtreme = x.eq(along(new Tensor(node), x.shape, axes))
  const count = isExtreme.where(full(x.arena, x.shape, 1), 0).sum({ axis: axes, keepDims: true })
  return [isExtreme.where(along(g, x.shape, axes).div(count), 0)]
}

/** The gradient of a product along one axis: for each factor the product of the others, without division, so zeros are exact. */
const factorsOf = (x: Tensor, axis: number, g: Tensor): Tensor => {
  const n = x.dim(axis)
  const behind = x.shape.slice(axis + 1)
  const number = iota(x.arena, n)
  const own = number.unsqueeze(1).eq(number).reshape([n, n, ...behind.map(() => 1)])
  const others = own.where(1, x.unsqueeze(axis)).prod(axis + 1)
  return others.mul(along(g, x.shape, [axis]))
}

const product: Rule = (node, gradient) => {
  const x = source(node, 0)
  const { axes } = reduceArg(node)
  // one axis after the other, the last first
  const steps: Array<{ readonly x: Tensor; readonly axis: number }> = []
  let value = x
  for (const axis of axes.toReversed()) {
    steps.push({ x: value, axis })
    value = value.prod(axis)
  }
  return [steps.reduceRight((g, step) => factorsOf(step.x, step.axis, g), gradient)]
}

const reductions: Readonly<Record<ReduceOp, Rule>> = {
  ADD: (node, g) => [along(g, sizes(node), reduceArg(node).axes)],
  MUL: product,
  MAX: extreme,
  MIN: extreme
}

/** The rules of every operation of the tensor stage. Calls and storage have no rows: the sweep handles them. */
export const standard: Rules = new Map<Op, Row>([
  ...elementwise,
  ...movement,
  ["REDUCE", (node, g) => reductions[reduceArg(node).op](node, g)],
  ...constant.map((op) => [op, "stop"] as const)
])

/** The zero gradient of a node. */
export const none = (node: UOp): Tensor => zeros(node.arena, Shape.of(node))
