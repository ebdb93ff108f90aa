/** Tensor programs into the e-graph: sums, products and movements become contractions, all else stays what it is. */
import * as DType from "@tg/core-uop/DType"
import { movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { argOf, reduceArg, type UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import { Tensor } from "@tg/tensor/Tensor"
import type { Residency } from "./Analysis.ts"
import * as Contraction from "./Contraction.ts"
import type { ClassId, ENode } from "./ENode.ts"
import type { TensorGraph } from "./Facts.ts"

/** A contraction of nodes of the program. */
interface Flat {
  readonly contraction: Contraction.Contraction
  readonly operands: ReadonlyArray<UOp>
}

const isValue = (node: UOp): boolean => node.dtype !== DType.index

const isSum = (node: UOp): boolean => node.op === "REDUCE" && reduceArg(node).op === "ADD" && DType.isFloat(node.dtype)

/** What the movement of a float does, as a contraction of one operand; none for slices and padding. */
export const viewOf = (node: UOp): Contraction.Contraction | undefined => {
  const from = Shape.of(node.src[0]!)
  switch (node.op) {
    case "RESHAPE":
      return Contraction.reshape(from, Shape.of(node))
    case "PERMUTE":
      return Contraction.permute(from, argOf(node, "PERMUTE"))
    case "EXPAND":
      return Contraction.expand(from, Shape.of(node))
    default:
      return undefined
  }
}

/** Reads programs into a graph. */
export interface Reader {
  /** The number of a node of the program. */
  readonly read: (node: UOp) => ClassId
  /** The same into a copy of the graph, in which what was read has its numbers. */
  readonly into: (copy: TensorGraph) => Reader
}

/** A reader that is told where storage is: weights are unpacked by arithmetic that no rule needs to see. */
export const reader = (graph: TensorGraph, residency: (storage: UOp) => Residency): Reader => {
  const areWeights = memo<boolean>((node, of) =>
    node.op === "REDUCE" || node.op === "AFTER" || node.op === "GETTUPLE"
      ? false
      : node.op === "PARAM" || node.op === "BUFFER"
      ? residency(node) === "weight"
      : node.op === "CONST" || node.op === "IOTA" || node.src.length === 0 || node.src.every(of)
  )
  /** A weight as it is unpacked: one leaf. Constants alone are none. */
  const isWeight = (node: UOp): boolean => node.op !== "CONST" && !movement.has(node.op) && areWeights(node)

  /** None for a value that is no contraction of others. */
  const flat = memo<Flat | undefined>((node) => {
    if (!DType.isFloat(node.dtype) || isWeight(node)) return undefined
    if (node.op === "CONST") return constantOf(node)
    if (node.op === "MUL") return into(Contraction.product(Shape.of(node), 2), node.src)
    const view = viewOf(node)
    return view === undefined ? undefined : into(view, node.src.slice(0, 1))
  })

  const into = (outer: Contraction.Contraction, sources: ReadonlyArray<UOp>): Flat => {
    let all: Flat = { contraction: outer, operands: sources }
    for (const source of sources) {
      const inner = flat(source)
      // composed operands go to the end, so the next source is the first one
      const joined = inner === undefined ? undefined : Contraction.compose(all.contraction, 0, inner.contraction)
      all = inner === undefined || joined === undefined
        ? { contraction: last(all.contraction), operands: [...all.operands.slice(1), source] }
        : { contraction: joined, operands: [...all.operands.slice(1), ...inner.operands] }
    }
    return all
  }

  const nodeOf = (uop: UOp, read: Reader["read"]): ENode => {
    if (DType.isFloat(uop.dtype) && !isWeight(uop)) {
      const whole = isSum(uop)
        ? into(Contraction.sum(Shape.of(uop.src[0]!), reduceArg(uop).axes), [uop.src[0]!])
        : flat(uop)
      if (whole !== undefined && (whole.operands.length !== 1 || whole.operands[0] !== uop)) {
        const { contraction, operands } = whole
        const args = operands.map(read)
        return { kind: "contract", contraction, dtype: uop.dtype, args, origin: { uop, holes: operands } }
      }
      if (uop.op === "CONST") return { kind: "constant", value: Number(uop.arg), dtype: uop.dtype, args: [] }
      if (uop.op === "ADD" || uop.op === "FDIV") {
        return {
          kind: "pointwise",
          op: uop.op,
          args: [read(uop.src[0]!), read(uop.src[1]!)],
          origin: { uop, holes: uop.src }
        }
      }
      const parts = concatOf(uop)
      if (parts !== undefined) {
        return { kind: "concat", axis: parts.axis, args: parts.of.map(read), origin: { uop, holes: parts.of } }
      }
      const part = uop.op === "SHRINK" ? sliceOf(uop) : undefined
      if (part !== undefined) {
        return { kind: "slice", ...part, args: [read(uop.src[0]!)], origin: { uop, holes: [uop.src[0]!] } }
      }
    }
    const holes = isWeight(uop) ? [] : valuesOf(uop)
    return { kind: "other", args: holes.map(read), origin: { uop, holes } }
  }

  const readerOf = (own: TensorGraph, numbers: Map<UOp, ClassId>): Reader => {
    const read = (uop: UOp): ClassId => {
      const known = numbers.get(uop)
      if (known !== undefined) return known
      const id = own.add(nodeOf(uop, read))
      numbers.set(uop, id)
      return id
    }
    return { read, into: (copy) => readerOf(copy, new Map(numbers)) }
  }
  return readerOf(graph, new Map())
}

/** The sources that are values; bodies of calls are programs of their own. */
const valuesOf = (uop: UOp): ReadonlyArray<UOp> => (uop.op === "CALL" ? uop.src.slice(1) : uop.src).filter(isValue)

/** A number everywhere is a number, repeated. */
const constantOf = (node: UOp): Flat => {
  const shape = Shape.of(node)
  const number = node.arena.make("CONST", node.dtype, [], node.arg)
  return {
    contraction: Contraction.normalise({ sizes: shape, operands: [[]], output: shape.map((_, i) => [i]) }),
    operands: [number]
  }
}

/** The first operand as the last one. */
const last = (c: Contraction.Contraction): Contraction.Contraction =>
  Contraction.reorder(c, [...c.operands.keys()].slice(1).concat(0))

/** A window of a fixed place along one axis. */
const sliceOf = (node: UOp): { readonly axis: number; readonly start: number; readonly size: number } | undefined => {
  const from = Shape.of(node.src[0]!)
  const to = Shape.of(node)
  const axes = from.map((_, axis) => axis).filter((axis) =>
    from[axis] !== to[axis] || Shape.fromUOp(node.src[1 + 2 * axis]!) !== 0
  )
  const [axis] = axes
  if (axis === undefined || axes.length !== 1) return undefined
  const start = Shape.fromUOp(node.src[1 + 2 * axis]!)
  const size = to[axis]!
  return typeof start === "number" && typeof size === "number" && typeof from[axis] === "number"
    ? { axis, start, size }
    : undefined
}

/** What `Nn.cat` makes: the same node is made of the parts that its padding shows. */
const concatOf = (node: UOp): { readonly axis: number; readonly of: ReadonlyArray<UOp> } | undefined => {
  const padded: Array<UOp> = []
  let at = node
  for (; at.op === "WHERE"; at = at.src[2]!) padded.push(at.src[1]!)
  padded.push(at)
  if (padded.length < 2 || padded.some((part) => part.op !== "PAD")) return undefined
  const of = padded.map((part) => part.src[0]!)
  const axis = Shape.of(of[0]!).findIndex((size, i) => size !== Shape.of(node)[i])
  const tensors = of.map((part) => new Tensor(part))
  const sizes = tensors.map((part) => part.shape[axis])
  const isWhole = axis >= 0 && sizes.every((size) => typeof size === "number") &&
    sizes.reduce<number>((n, size) => n + Number(size), 0) === Shape.of(node)[axis]
  return isWhole && Nn.cat(tensors, axis).node === node ? { axis, of } : undefined
}

/** A function over a graph, asked once for each node. */
const memo = <A>(of: (node: UOp, again: (node: UOp) => A) => A): (node: UOp) => A => {
  const known = new Map<UOp, A>()
  const again = (node: UOp): A => {
    const before = known.get(node)
    if (before !== undefined) return before
    const value = of(node, again)
    known.set(node, value)
    return value
  }
  return again
}
