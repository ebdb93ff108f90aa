/**
 * Softmax and what it weighs, in chunks of positions by products of whole matrices: all scores are computed once and stored, then the largest one
 * of each chunk and the sum of exponentials below it, and what these weigh is one product for each chunk. Chunks are put together as pieces are
 * (`Pieces`). What all terms of a sum share, as one over the sum of the weights, comes last, so that weights are in (0, 1].
 */
import * as DType from "@tg/core-uop/DType"
import { elementwise, movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { substitute, type UOp } from "@tg/core-uop/UOp"
import { iota, scalar, Tensor } from "@tg/tensor/Tensor"
import { begunPieces, cutter, page, piecesOf, record, replaced } from "./Axis.ts"
import { type Cascade, cascadeAt, type Step } from "./Cascade.ts"
import { areProducts, ofSum, termsOf } from "./HalfProducts.ts"
import {
  combined,
  type Cuts,
  hoisted,
  inPiecesAt,
  ofAll,
  type Pieces,
  reduced,
  type ValueOf,
  type Values,
  within
} from "./Pieces.ts"
import { readBy } from "./Rounded.ts"

/** What such a cascade is made of. */
export interface Storable {
  /** The values along the axis that all reductions read, and the product with halves that they are operations on each element of. */
  readonly scores: UOp
  readonly sum: UOp
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

/** What a cascade is made of, if its scores and what it weighs are products with halves; none of another. */
export const productsAt = (cascade: Cascade): Storable | undefined => {
  if (cascade.root.op !== "ADD") return undefined
  const [scores, ...others] = computedIn(cascade)
  if (scores === undefined || others.length > 0) return undefined
  const sum = sumIn(scores)
  if (sum === undefined || ![sum.src[0]!, mixOf(cascade).terms].every(areProducts)) return undefined
  return { scores, sum, depth: Shape.maxElements(Shape.of(sum.src[0]!)) / Shape.maxElements(Shape.of(sum)) }
}

/** The same where both products have rows enough for tiles, and the axis is whole pages. */
export const storableAt = (cascade: Cascade): Storable | undefined => {
  if (piecesOf(cascade.size, page) === undefined) return undefined
  const products = productsAt(cascade)
  return products !== undefined && ofSum(products.sum) !== undefined &&
      termsOf(mixOf(cascade).terms, [cascade.root.axis]) !== undefined
    ? products
    : undefined
}

/** The weighed sum without what its terms share. */
const mixOf = (cascade: Cascade) => {
  const { axis, reduce } = cascade.root
  return hoisted(cascade, { axis, node: reduce.src[0]! })
}

/** An axis of pages as so many chunks of so many. */
interface Chunks {
  readonly pages: Shape.Dim
  readonly count: Shape.Dim
  readonly each: number
}

/** Values `[.., pages * page, ..]` as `[.., count, each * page, ..]`; behind the last page is that one again. */
const inPages = (x: Tensor, axis: number, { count, each, pages }: Chunks): Tensor => {
  const { arena } = x
  const paged = x.reshape(replaced(x.shape, axis, [pages, page]))
  const others = [...paged.shape.keys()].filter((i) => i !== axis)
  const number = iota(arena, count).mul(each).unsqueeze(1).add(iota(arena, each))
  const there = paged.permute([axis, ...others]).gather(number.minimum(scalar(arena, pages).sub(1)))
  const behindBoth = others.map((_, i) => i + 2)
  return there.permute([...behindBoth.slice(0, axis), 0, 1, ...behindBoth.slice(axis)])
    .reshape(replaced(x.shape, axis, [count, each * page]))
}

/** Pieces of so many positions, of whole pages: the last one may go on behind the axis, where it has the last page again. */
export const pagesIn = (size: Shape.Dim, piece: number): Cuts | undefined => {
  const pages = piecesOf(size, page)
  if (pages === undefined || piece % page !== 0) return undefined
  const each = piece / page
  const count = typeof pages === "number" ? Math.ceil(pages / each) : begunPieces(pages, each)
  return { count, isOpen: true, cut: cutter((node, axis) => inPages(new Tensor(node), axis, { pages, count, each })) }
}

/** A value that is stored, named after what it is. */
const kept = (x: Tensor, was: UOp): Tensor => {
  const since = was.arena.size
  const made = x.contiguous()
  was.arena.inherit(made.node, was, since)
  return made
}

/** What is found of each chunk of each row in front of the result, as one record: one launch. */
const keptSteps = (pieces: Pieces): ReadonlyMap<UOp, Tensor> => {
  const { steps } = pieces.cascade
  const raw = new Map<UOp, Tensor>()
  for (const step of steps) {
    const { axis, op, reduce } = step
    const terms = inPiecesAt(pieces, { axis, node: reduce.src[0]! }, (node) => raw.get(node)!)
    raw.set(reduce, reduced(within(pieces, step, terms), op, axis + 1))
  }
  const last = steps.at(-1)!.reduce
  const columns = [...raw.values()].map((x) => x.reshape([...raw.get(last)!.shape, 1]))
  const parts = record(columns, (joined) => kept(joined, last))
  return new Map(steps.map(({ reduce }, i) => [reduce, parts[i]!.reshape(raw.get(reduce)!.shape)]))
}

/** Pieces, of each of which a product has so many parts. */
interface Parted extends Pieces {
  readonly parts: number
}

/** The product of each chunk, against what is found of the chunk. */
const ofChunks = (pieces: Parted, { root, terms }: { readonly root: Step; readonly terms: UOp }, valueOf: ValueOf) => {
  const { parts: count } = pieces
  const { axis, op, reduce } = root
  const since = reduce.arena.size
  const [a, b] = terms.src.map((node) => {
    const value = inPiecesAt(pieces, { axis, node }, valueOf)
    // what has no weight may be anything that is finite: it is another page of the same context
    return pieces.cascade.depends(node) ? within(pieces, { axis, op }, value) : value
  })
  const cut = (x: Tensor): Tensor => x.reshape(replaced(x.shape, axis + 1, [count, Number(x.dim(axis + 1)) / count]))
  const made = cut(a!).mul(cut(b!)).sum(axis + 2)
  reduce.arena.inherit(made.node, reduce, since)
  const parts = kept(made, reduce)
  return parts.reshape(joinedAxes(parts, axis))
}

/** The shape with an axis and the next one as one. */
const joinedAxes = (x: Tensor, axis: number): Shape.Shape => {
  const both = scalar(x.arena, x.dim(axis)).mul(scalar(x.arena, x.dim(axis + 1))).node
  return [...x.shape.slice(0, axis), Shape.fromUOp(both), ...x.shape.slice(axis + 2)]
}

/** What is found of a chunk, for each of its parts. */
const ofParts = (x: Tensor, axis: number, count: number): Tensor => {
  const each = x.unsqueeze(axis + 1)
  const made = each.expand(replaced(each.shape, axis + 1, [count]))
  return made.reshape(joinedAxes(made, axis))
}

/** How the positions of a product are divided. */
export interface Parts {
  /** Positions of a product. */
  readonly chunk: number
  /** Products whose weights are below one maximum: what is found of their positions takes a workgroup, which is short of work where a product has enough of it. */
  readonly parts: number
}

/** A value equal to the root of a cascade, with its scores stored, and summed in parts of chunks. */
export const inChunks = (whole: Cascade, { chunk, parts }: Parts): UOp | undefined => {
  const { scores } = storableAt(whole) ?? {}
  const cuts = pagesIn(whole.size, parts * chunk)
  if (scores === undefined || cuts?.count === undefined) return undefined
  const stored = kept(new Tensor(scores), scores).node
  const cascade = cascadeAt(substitute(whole.root.reduce, new Map([[scores, stored]])))
  const mix = cascade && mixOf(cascade)
  if (cascade === undefined || mix === undefined) return undefined
  const pieces: Parted = { ...cuts, count: cuts.count, cascade, piece: parts * chunk, parts }
  const { root, steps } = cascade
  const found = keptSteps(pieces)
  const product = ofChunks(pieces, { root, terms: mix.terms }, (step) => found.get(step)!)
  const ofEverything = new Map<UOp, Tensor>()
  const values: Values = {
    ofPiece: (step) => found.get(step)!,
    ofAll: (step) => ofEverything.get(step)!
  }
  const valuesOfParts: Values = {
    ...values,
    ofPiece: (step) => step === root.reduce ? product : ofParts(found.get(step)!, root.axis, parts)
  }
  for (const step of [...steps.map((own) => ({ ...own, terms: own.reduce.src[0]! })), { ...root, terms: mix.terms }]) {
    const value = step.reduce === root.reduce
      ? combined({ ...pieces, count: product.dim(root.axis) }, step, valuesOfParts)
      : combined(pieces, step, values)
    if (value === undefined) return undefined
    // what the states of all chunks are moved by is found once, beside their sums
    ofEverything.set(step.reduce, step.op === "ADD" ? value : kept(value, step.reduce))
  }
  return mix.factors.reduce((x, { op, value }) => {
    const shared = new Tensor(ofAll(cascade, value.node, values.ofAll)).squeeze(root.axis)
    return op === "MUL" ? x.mul(shared) : x.div(shared)
  }, ofEverything.get(root.reduce)!).reshape(Shape.of(whole.root.reduce)).node
}
