/** One axis of a tensor program, followed through what only moves values. */
import { elementwise } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { argOf, reduceArg, type UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import { full, iota, scalar, Tensor } from "@tg/tensor/Tensor"

export { page, piecesOf } from "./AxisPieces.ts"

/** The shape with other sizes in place of an axis. */
export const replaced = (shape: Shape.Shape, axis: number, sizes: Shape.Shape): Shape.Shape => [
  ...shape.slice(0, axis),
  ...sizes,
  ...shape.slice(axis + 1)
]

/** Pieces that an axis of symbolic size begins. */
export const begunPieces = (size: UOp, piece: number): Shape.Dim => new Tensor(size).add(piece - 1).floordiv(piece).node

/** Where an axis of the result of a reshape was before it; none where it was no axis. */
const beforeReshape = (node: UOp, axis: number): number | undefined => {
  const [from, to] = [Shape.of(node.src[0]!), Shape.of(node)]
  const lead = product(to.slice(0, axis))
  const at = from.findIndex((size, i) => size === to[axis] && sameProduct(product(from.slice(0, i)), lead))
  return at < 0 ? undefined : at
}

interface Product {
  readonly count: number
  readonly symbols: ReadonlyArray<UOp>
}

const product = (shape: Shape.Shape): Product => ({
  count: shape.reduce<number>((n, d) => typeof d === "number" ? n * d : n, 1),
  symbols: shape.filter((d) => typeof d !== "number").toSorted((a, b) => a.id - b.id)
})

const sameProduct = (a: Product, b: Product): boolean => a.count === b.count && Shape.equal(a.symbols, b.symbols)

/** The source of a movement, and where the axis is there. */
export interface Moved {
  readonly source: UOp
  readonly axis: number
  /** The same movement of another value, whose axis has become one of these sizes. */
  readonly again: (value: Tensor, sizes: Shape.Shape) => Tensor
}

/**
 * A movement (RESHAPE, PERMUTE, EXPAND) that leaves an axis whole, undone: its source, where the axis may have size 1. None for
 * anything else.
 */
export const behind = (node: UOp, axis: number): Moved | undefined => {
  const shape = Shape.of(node)
  const source = node.src[0]
  switch (node.op) {
    case "RESHAPE": {
      const at = beforeReshape(node, axis)
      if (at === undefined) return undefined
      return { source: source!, axis: at, again: (value, sizes) => value.reshape(replaced(shape, axis, sizes)) }
    }
    case "EXPAND":
      return { source: source!, axis, again: (value, sizes) => value.expand(replaced(shape, axis, sizes)) }
    case "PERMUTE": {
      const order = argOf(node, "PERMUTE")
      const at = order[axis]!
      return {
        source: source!,
        axis: at,
        again: (value, sizes) => {
          const more = sizes.length - 1
          const shifted = order.map((from) => from > at ? from + more : from)
          return value.permute(replaced(shifted, axis, sizes.map((_, i) => at + i)).map(Number))
        }
      }
    }
    default:
      return undefined
  }
}

/** The part of an axis that is there: from its beginning, as a context that is not full. */
const beginning = (node: UOp, axis: number): { readonly source: UOp; readonly capacity: number } | undefined => {
  if (node.op !== "SHRINK" || Shape.fromUOp(node.src[1 + 2 * axis]!) !== 0) return undefined
  const capacity = Shape.of(node.src[0]!)[axis]
  return typeof capacity === "number" ? { source: node.src[0]!, capacity } : undefined
}

/**
 * Whether values go on behind an axis of symbolic size, up to whole pieces: those that are read from the beginning of storage
 * with room for whole pieces, and what is computed from them. What stands there means nothing.
 */
export const goesOn = (node: UOp, axis: number, piece: number): boolean => {
  if (node.op === "CONST" || node.op === "IOTA") return true
  if (elementwise.has(node.op)) return node.src.every((source) => goesOn(source, axis, piece))
  if (node.op === "REDUCE") return goesOn(node.src[0]!, axisOfReduced(node, axis), piece)
  const part = beginning(node, axis)
  if (part !== undefined) return part.capacity % piece === 0
  const moved = behind(node, axis)
  return moved !== undefined &&
    (Shape.of(moved.source)[moved.axis] !== Shape.of(node)[axis] || goesOn(moved.source, moved.axis, piece))
}

/** Where an axis of a reduction's result is in what it reduces. */
const axisOfReduced = (node: UOp, axis: number): number =>
  [...Shape.of(node.src[0]!).keys()].filter((i) => !reduceArg(node).axes.includes(i))[axis]!

/** Cuts axes of values: `sizes` in place of one, which together are as many, or as many as whole pieces if the values go on. */
export type Cutter = (node: UOp, axis: number, sizes: Shape.Shape) => Tensor

/**
 * A cutter that cuts whatever the value is computed from, as far as it is known how, so that loops are cut and not only how
 * their results are seen; what nothing is known to be behind as it is told. What several values are computed from is cut once.
 */
export const cutter = (last: Cutter = end): Cutter => {
  const known = new Map<string, Tensor>()
  const cut: Cutter = (node, axis, sizes) => {
    const name = `${node.id} ${axis} ${sizes.map((d) => typeof d === "number" ? d : `#${d.id}`).join()}`
    const before = known.get(name)
    if (before !== undefined) return before
    const since = node.arena.size
    const made = cutOnce(node, axis, sizes, { cut, last })
    node.arena.inherit(made.node, node, since)
    known.set(name, made)
    return made
  }
  return cut
}

const cutOnce = (
  node: UOp,
  axis: number,
  sizes: Shape.Shape,
  { cut, last }: { readonly cut: Cutter; readonly last: Cutter }
): Tensor => {
  const size = Shape.of(node)[axis]
  if (node.op === "CONST") {
    return full(node.arena, replaced(Shape.of(node), axis, sizes), node.arg as number | boolean, node.dtype)
  }
  if (elementwise.has(node.op)) return new Tensor(node.with(node.src.map((source) => cut(source, axis, sizes).node)))
  if (node.op === "REDUCE") {
    const { axes, op } = reduceArg(node)
    const source = node.src[0]!
    const at = axisOfReduced(node, axis)
    const shifted = axes.map((i) => i > at ? i + sizes.length - 1 : i)
    return new Tensor(node.arena.make("REDUCE", node.dtype, [cut(source, at, sizes).node], { op, axes: shifted }))
  }
  const moved = behind(node, axis)
  if (moved === undefined) return last(node, axis, sizes)
  const shape = Shape.of(moved.source)
  return moved.again(
    shape[moved.axis] === size
      ? cut(moved.source, moved.axis, sizes)
      : new Tensor(moved.source).reshape(replaced(shape, moved.axis, sizes.map(() => 1))),
    sizes
  )
}

/** A value that nothing is known to be behind, seen under these sizes; if they are more than it has, it goes on. */
const end: Cutter = (node, axis, sizes) => {
  const shape = replaced(Shape.of(node), axis, sizes)
  const all = sizes.map((d) => scalar(node.arena, d)).reduce((n, d) => n.mul(d)).node
  if (sameProduct(product([Shape.of(node)[axis]!]), product(sizes)) || all === Shape.of(node)[axis]) {
    return new Tensor(node).reshape(shape)
  }
  if (node.op === "IOTA") return iota(node.arena, all).reshape(shape)
  const part = beginning(node, axis)
  if (part === undefined) return new Tensor(node).reshape(shape)
  const windows = Shape.of(node).map((size, i) =>
    i === axis ? { start: 0, size: all } : { start: Shape.fromUOp(node.src[1 + 2 * i]!), size }
  )
  return new Tensor(part.source).shrink(windows).reshape(shape)
}

/** Values side by side along the last axis, and back. */
export const record = (
  parts: ReadonlyArray<Tensor>,
  stored: (joined: Tensor) => Tensor
): ReadonlyArray<Tensor> => {
  const joined = stored(Nn.cat(parts, -1))
  let start = 0
  return parts.map((part) => {
    const width = Number(part.dim(-1))
    const own = joined.slice(-1, start, width)
    start += width
    return own
  })
}
