/**
 * Softmax and what it weighs by products of whole matrices: scores are computed once and stored, so is what they are weighed against, and the
 * weighed sum is one product for each chunk of positions. What all terms of the sum share, as one over the sum of the weights, comes behind
 * the sum of the chunks, so that weights are those of a piece's softmax: exponentials of what is left of the largest score.
 */
import * as DType from "@tg/core-uop/DType"
import { elementwise, movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { type Arena, substitute, type UOp } from "@tg/core-uop/UOp"
import { full, iota, scalar, Tensor } from "@tg/tensor/Tensor"
import { begunPieces, behind, piecesOf, replaced } from "./Axis.ts"
import type { Cascade } from "./Cascade.ts"
import { ofSum, termsOf } from "./HalfProducts.ts"
import { hoisted } from "./Pieces.ts"
import { readBy } from "./Rounded.ts"

/** Positions that are a page: there are whole pages of them, and a chunk has some. */
const page = 64

/** What two ways to compute a cascade differ by, if no operand is rounded: sums are taken in another order. */
export const bound = 2 ** -18

/** What such a cascade is made of. */
export interface Storable {
  /** The values along the axis that all reductions read, a product with halves and operations on each element of it. */
  readonly scores: UOp
  /** Terms of the product that is a score. */
  readonly depth: number
}

const isProduct = (node: UOp): boolean => node.op === "REDUCE" && DType.isFloat(node.dtype)

/** The largest values that are computed from sums, and from no reduction of the cascade. */
const computedIn = ({ depends, root, steps }: Cascade): ReadonlySet<UOp> => {
  const found = new Set<UOp>()
  const seen = new Set<UOp>()
  const visit = (node: UOp): void => {
    if (seen.has(node) || steps.some(({ reduce }) => reduce === node)) return
    seen.add(node)
    if (!depends(node)) {
      if ([...readBy(node)].some(isProduct)) found.add(node)
    } else if (elementwise.has(node.op)) node.src.forEach(visit)
    else visit(node.src[0]!)
  }
  for (const { reduce } of [...steps, root]) visit(reduce.src[0]!)
  return found
}

/** The sum that a value is computed from element by element, if it is one. */
const sumIn = (node: UOp): UOp | undefined => {
  if (node.op === "REDUCE") return node
  if (!elementwise.has(node.op) && !movement.has(node.op)) return undefined
  const found = new Set((elementwise.has(node.op) ? node.src : node.src.slice(0, 1)).flatMap((s) => sumIn(s) ?? []))
  return found.size === 1 ? [...found][0] : undefined
}

/** What a cascade is made of, if its scores and what it weighs may be products of halves; none of another. */
export const storableAt = (cascade: Cascade): Storable | undefined => {
  const { root, size } = cascade
  if (root.op !== "ADD" || piecesOf(size, page) === undefined) return undefined
  const [scores, ...others] = computedIn(cascade)
  if (scores === undefined || others.length > 0) return undefined
  const sum = sumIn(scores)
  if (sum === undefined || ofSum(sum) === undefined || mixOf(cascade) === undefined) return undefined
  return { scores, depth: Shape.maxElements(Shape.of(sum.src[0]!)) / Shape.maxElements(Shape.of(sum)) }
}

/** The weighed sum without what its terms share, if it is a product with halves. */
const mixOf = (cascade: Cascade) => {
  const { axis, reduce } = cascade.root
  const mix = hoisted(cascade, { axis, node: reduce.src[0]! })
  return termsOf(mix.terms, [axis]) && mix
}

/** An axis of pages as so many chunks of so many. */
interface Chunks {
  readonly pages: Shape.Dim
  readonly count: Shape.Dim
  readonly each: number
}

/** The number of each page of each chunk, `[count, each]`. */
const numbers = (arena: Arena, { count, each }: Chunks): Tensor =>
  iota(arena, count).mul(each).unsqueeze(1).add(iota(arena, each))

/** Values `[.., pages * page, ..]` as `[.., count, each, page, ..]`; behind the last page is that one again. */
const inPages = (x: Tensor, axis: number, chunks: Chunks): Tensor => {
  const { arena } = x
  const paged = x.reshape(replaced(x.shape, axis, [chunks.pages, page]))
  const others = [...paged.shape.keys()].filter((i) => i !== axis)
  const there = paged.permute([axis, ...others])
    .gather(numbers(arena, chunks).minimum(scalar(arena, chunks.pages).sub(1)))
  const behindBoth = others.map((_, i) => i + 2)
  return there.permute([...behindBoth.slice(0, axis), 0, 1, ...behindBoth.slice(axis)])
}

/** The same of all that a value is computed from, so that its loops are those of chunks. */
const computedInPages = (chunks: Chunks): (node: UOp, axis: number) => Tensor => {
  const sizes = [chunks.count, chunks.each, page]
  const known = new Map<string, Tensor>()
  const at = (node: UOp, axis: number): Tensor => {
    const name = `${node.id} ${axis}`
    const since = node.arena.size
    const made = known.get(name) ?? once(node, axis)
    node.arena.inherit(made.node, node, since)
    known.set(name, made)
    return made
  }
  const once = (node: UOp, axis: number): Tensor => {
    if (elementwise.has(node.op)) return new Tensor(node.with(node.src.map((source) => at(source, axis).node)))
    if (node.op === "CONST") {
      return full(node.arena, replaced(Shape.of(node), axis, sizes), node.arg as number | boolean, node.dtype)
    }
    const moved = behind(node, axis)
    if (moved === undefined) return inPages(new Tensor(node), axis, chunks)
    const shape = Shape.of(moved.source)
    return moved.again(
      shape[moved.axis] === Shape.of(node)[axis]
        ? at(moved.source, moved.axis)
        : new Tensor(moved.source).reshape(replaced(shape, moved.axis, [1, 1, 1])),
      sizes
    )
  }
  return at
}

/** A value equal to the root of a cascade, with its scores stored, and summed in chunks of so many positions. */
export const inChunks = (
  cascade: Cascade,
  { chunk, label }: { readonly chunk: number; readonly label?: string | undefined }
): UOp | undefined => {
  const { root, size, steps } = cascade
  const storable = storableAt(cascade)
  const mix = mixOf(cascade)
  const pages = piecesOf(size, page)
  if (storable === undefined || mix === undefined || pages === undefined) return undefined
  const now = new Map<UOp, UOp>()
  const own = (node: UOp): UOp => substitute(node, now)
  const keep = (node: UOp): void => {
    const { arena } = node
    const since = arena.size
    const made = new Tensor(own(node)).contiguous().node
    arena.inherit(made, node, since)
    now.set(node, made)
  }
  keep(storable.scores)
  for (const { reduce } of steps) keep(reduce)
  const { arena } = root.reduce
  const since = arena.size
  const each = chunk / page
  const count = typeof pages === "number" ? Math.ceil(pages / each) : begunPieces(pages, each)
  const chunks: Chunks = { pages, count, each }
  const cut = computedInPages(chunks)
  const [a, b] = own(mix.terms).src.map((node) => cut(node, root.axis))
  const rank = a!.rank - root.axis - 3
  const isThere = numbers(arena, chunks).lt(scalar(arena, pages))
    .reshape([count, each, ...Array.from({ length: rank + 1 }, () => 1)])
  // what has no weight may be any finite value of the cache
  const weighed = cascade.depends(mix.terms.src[0]!)
    ? isThere.where(a!, 0).mul(b!)
    : a!.mul(isThere.where(b!, 0))
  const parts = weighed.sum({ axis: [root.axis + 1, root.axis + 2] })
  arena.inherit(parts.node, root.reduce, since)
  const stored = label === undefined ? parts.contiguous() : parts.contiguous().label(label)
  return mix.factors.reduce((x, { op, value }) => {
    const shared = new Tensor(own(value.node)).squeeze(root.axis)
    return op === "MUL" ? x.mul(shared) : x.div(shared)
  }, stored.sum(root.axis)).reshape(Shape.of(root.reduce)).node
}
