/**
 * The derivative of each operation, as rows of a table. A row turns the gradient of a node's value into the gradients of its
 * sources: the transpose of the operation's Jacobian, applied.
 */
import * as DType from "@tg/core-uop/DType"
import type { Op, ReduceOp } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { argOf, reduceArg, type UOp } from "@tg/core-uop/UOp"
import * as Program from "@tg/tensor/Program"
import { scatterAdd } from "@tg/tensor/Scatter"
import { full, iota, scalar, Tensor, zeros } from "@tg/tensor/Tensor"
import { fail } from "./GradError.ts"

/**
 * The gradients of a node's sources, by number, from that of its value; left out where there is none. Gradients are floats of
 * the shape of what they belong to. Words whose bits are floats have gradients too: those of the floats.
 */
export type Rule = (node: UOp, gradient: Tensor) => ReadonlyArray<Tensor | undefined>

/** What is known of an operation: its rule, or that nothing flows through it (it is constant almost everywhere). */
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

/** Integers and booleans, and what rounds: no small change of a float changes them. */
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

/** `g`, the gradient of a window of an axis, with zeros around it: along the whole axis. */
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

/** The gradient of what a window (a SHRINK) was taken from: zeros outside of it. */
export const unshrink = (node: UOp, gradient: Tensor): Tensor =>
  sizes(node).reduce<Tensor>((g, whole, axis) => {
    const [start, size] = node.src.slice(1 + 2 * axis, 3 + 2 * axis).map(Shape.fromUOp)
    return unwindow(g, axis, { start: start!, size: size! }, whole)
  }, gradient)

/** The order that undoes another one. */
const inverse = (order: ReadonlyArray<number>): ReadonlyArray<number> => order.map((_, axis) => order.indexOf(axis))

/** Rows of a table that `index` names get their gradients; a row that is named often gets the sum. */
const unlookup: Rule = (node, g) => {
  const [table, index] = [source(node, 0), source(node, 1)]
  const row = table.rank - 1
  const ones = (rank: number): ReadonlyArray<number> => Array.from({ length: rank }, () => 1)
  const rows = table.dim(0)
  const number = iota(table.arena, rows).cast(DType.i32).reshape([rows, ...ones(index.rank + row)])
  const named = index.cast(DType.i32).reshape([...index.shape, ...ones(row)]).eq(number)
  const picked = named.where(g, 0)
  return [index.rank === 0 ? picked : picked.sum({ axis: index.shape.map((_, axis) => axis + 1) })]
}

/**
 * A row for GATHER that adds gradients up where they belong (`Scatter.scatterAdd`, column by column), in place of comparing each row of the
 * table with each index. `storageFor` gives the memory for it: a buffer of floats in the table's shape that nothing else uses, or
 * `undefined` for a lookup that keeps the standard row. Sizes are numbers, and the lookup is in no call's body.
 */
export const scattered = (storageFor: (lookup: UOp) => Tensor | undefined): Rule => {
  const taken = new Map<UOp, UOp>()
  return (node, g) => {
    const storage = storageFor(node)
    if (storage === undefined) return unlookup(node, g)
    const table = sizes(node)
    const other = taken.get(storage.node)
    if ((other !== undefined && other !== node) || !Shape.equal(storage.shape, table) || storage.dtype !== DType.f32) {
      const found = `${DType.print(storage.dtype)} ${Shape.print(storage.shape)}${
        other === undefined ? "" : ", used before"
      }`
      return fail("scattered", `f32 ${Shape.print(table)} for this lookup alone`, found, "give each lookup a buffer")
    }
    taken.set(storage.node, node)
    const index = source(node, 1)
    const count = index.shape.reduce<number>((n, d) => n * Number(d), 1)
    const empty = Program.after(storage, [Program.assign(storage, zeros(storage.arena, table))])
    const effect = scatterAdd(empty, {
      index: index.cast(DType.i32).reshape([count]),
      value: g.reshape([count, ...table.slice(1)]),
      by: "columns"
    })
    return [Program.after(storage, [effect])]
  }
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
  ["CONTIGUOUS", (_, g) => [g]]
]

/** A value without some axes, along these axes again. */
const along = (x: Tensor, shape: Shape.Shape, axes: ReadonlyArray<number>): Tensor =>
  x.reshape(shape.map((d, i) => axes.includes(i) ? 1 : d)).expand(shape)

/** Elements that are the extreme share its gradient alike. */
const extreme: Rule = (node, g) => {
  const { axes } = reduceArg(node)
  const x = source(node, 0)
  const isExtreme = x.eq(along(new Tensor(node), x.shape, axes))
  const count = isExtreme.where(full(x.arena, x.shape, 1), 0).sum({ axis: axes, keepDims: true })
  return [isExtreme.where(along(g, x.shape, axes).div(count), 0)]
}

/** Of a product along one axis: for each factor the product of the others, so that zeros need no division. */
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

/** The rules of every operation of the tensor stage. Calls and storage are no rows: `Grad` goes through them. */
export const standard: Rules = new Map<Op, Row>([
  ...elementwise,
  ...movement,
  ["REDUCE", (node, g) => reductions[reduceArg(node).op](node, g)],
  ...constant.map((op) => [op, "stop"] as const)
])

/** No gradient, as a tensor: zeros. */
export const none = (node: UOp): Tensor => zeros(node.arena, Shape.of(node))
