/** Indirect accesses, whose index is loaded or a variable: a select among windows, or one launch for each window. */
import { accessOf, endOf, fixedSize } from "@tg/core-uop/View"
import * as Bounds from "@tg/core-uop/Bounds"
import * as Expr from "@tg/core-uop/Expr"
import { openRanges, rangeArg, rebuild, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { atFirst, fits, type Kernel, largest, outputsOf } from "./FitLoops.ts"
import { type Access, cover, type Sizes, type Span } from "./Windows.ts"

/** An access at `stride * index + rest`, where the index is read from memory, or a variable. */
interface Indexed {
  readonly index: UOp
  /** The values with which it stays inside of the buffer. */
  readonly values: Span
}

const isDecidedElsewhere = (node: UOp): boolean => toposort(node).some((n) => n.op === "LOAD" || n.op === "VAR")

/** The loaded or variable index of an access; of several, the one with the largest stride. */
const indexedBy = ({ node, param }: Access): Indexed | undefined => {
  const [, at, gate] = node.src
  const { coefficients, terms } = Symbolic.sum(at!)
  const found = terms.map((index, i) => ({ index, stride: coefficients[i]! }))
    .filter(({ index, stride }) => stride > 0 && isDecidedElsewhere(index))
    .sort((a, b) => b.stride - a.stride)[0]
  if (found === undefined) return undefined
  const { index, stride } = found
  const rest = Bounds.of(Symbolic.simplify(Expr.sub(at!, Expr.mul(index, stride))))
  const { max, min } = gate === undefined ? Bounds.of(index) : Symbolic.boundsUnder(gate, index)
  const last = Math.floor((fixedSize(param)! - 1 - Math.max(0, rest.min)) / stride)
  const values = { lo: Math.max(0, min), hi: Math.min(last, max) + 1 }
  return values.lo < values.hi ? { index, values } : undefined
}

const both = (a: UOp | undefined, b: UOp): UOp => a === undefined ? b : Expr.and(a, b)

const inside = (x: UOp, { hi, lo }: Span): UOp => Expr.and(Expr.not(Expr.lt(x, lo)), Expr.lt(x, hi))

/** The same access, where the condition holds too. */
const gated = (element: UOp, condition: UOp): UOp => {
  const [param, at, gate] = element.src
  return Expr.element(param!, at!, both(gate, condition))
}

/** The kernel with other nodes; what is under a replaced node is replaced first, and `now` tells by what. */
const rebuilt = (ast: UOp, change: (node: UOp, original: UOp, now: (node: UOp) => UOp) => UOp): UOp =>
  Symbolic.simplify(rebuild(ast, (original, src, now) => change(original.with(src), original, now)))

/** The INDEX nodes that a kernel stores to: one, or those of results that are stored together. */
export const targetsOf = (ast: UOp): ReadonlyArray<UOp> =>
  endOf(ast.src[0]!).stores.map((store) => accessOf(store).element)

/** A kernel that stores only into a span of one of its targets. */
export const storedIn = ({ args, ast }: Kernel, target: UOp, span: Span): Kernel => ({
  ast: rebuilt(ast, (node, original) => original === target ? gated(node, inside(node.src[1]!, span)) : node),
  args
})

/** How many values of the index, from `lo` on, keep each of the accesses within one window; 0 if none. */
const perWindow = ({ index, values }: Indexed, nodes: ReadonlyArray<UOp>, sizes: Sizes): number =>
  largest(values.hi - values.lo, (n) => {
    const condition = inside(index, { lo: values.lo, hi: values.lo + n })
    return nodes.every((node) => fits(Symbolic.simplify(gated(node, condition)), sizes))
  })

/** Splits a span greedily, each piece as long as possible; `undefined` if a piece would be empty. */
const greedily = ({ hi, lo }: Span, lengthFrom: (lo: number) => number): ReadonlyArray<Span> | undefined => {
  const pieces: Array<Span> = []
  for (let at = lo; at < hi;) {
    const length = lengthFrom(at)
    if (length === 0) return undefined
    pieces.push({ lo: at, hi: Math.min(hi, at + length) })
    at += length
  }
  return pieces
}

/** Whether an index is invariant in the loops of reductions. */
const isOfOutputs = (index: UOp): boolean => [...openRanges(index)].every((range) => rangeArg(range).axis === "GLOBAL")

/**
 * The kernel once for each range of an index, each of which stores only the outputs whose index lies there. `undefined` if
 * no index of these accesses decides for whole outputs.
 */
export const passes = (
  { args, ast }: Kernel,
  wide: ReadonlyArray<Access>,
  sizes: Sizes
): ReadonlyArray<Kernel> | undefined => {
  const first = wide.map(indexedBy).find((found) => found !== undefined && isOfOutputs(found.index))
  if (first === undefined) return undefined
  const { index, values } = first
  const concerned = wide.filter((access) => indexedBy(access)?.index === index).map((access) => access.node)
  // output loops that the index does not depend on may be strip-mined later
  const standing = outputsOf(ast).filter((range) => !openRanges(index).has(range))
  const still = concerned.map((node) => atFirst(node, standing))
  const spans = greedily(values, (lo) => {
    const rest = { index, values: { lo, hi: values.hi } }
    return perWindow(rest, concerned, sizes) || perWindow(rest, still, sizes)
  })
  if (spans === undefined || spans.length < 2) return undefined
  const targets = targetsOf(ast)
  return spans.map((span) => {
    const condition = inside(index, span)
    return {
      ast: rebuilt(
        ast,
        (node, original) => targets.includes(original) || concerned.includes(original) ? gated(node, condition) : node
      ),
      args
    }
  })
}

/** The kernel with each wide load as a choice among loads that are narrow. */
export const select = ({ args, ast }: Kernel, wide: ReadonlyArray<Access>, sizes: Sizes): Kernel => {
  const parts = new Map(wide.map((access) => [access.node, partsOf(access, sizes)]))
  return {
    ast: rebuilt(ast, (node, original, now) => {
      const own = original.op === "LOAD" ? parts.get(original.src[0]!) : undefined
      if (own === undefined) return node
      const [element] = node.src
      const loads = own.map(({ by, span }) => Expr.load(gated(element!, inside(now(by), span))))
      return loads.slice(0, -1)
        .reduceRight(
          (rest, load, i) => Expr.where(Expr.lt(now(own[i]!.by), own[i]!.span.hi), load, rest),
          loads.at(-1)!
        )
    }),
    args
  }
}

/** A part of what an access can reach: where the value `by` lies in the span. The last part is what is left over. */
interface Part {
  readonly by: UOp
  readonly span: Span
}

const partsOf = (access: Access, sizes: Sizes): ReadonlyArray<Part> => {
  const { node } = access
  const indexed = indexedBy(access)
  // a condition on the index alone is the same for all of a row
  const spans = indexed === undefined ? undefined : greedily(
    indexed.values,
    (lo) => perWindow({ index: indexed.index, values: { lo, hi: indexed.values.hi } }, [node], sizes)
  )
  return spans === undefined
    ? cover(access, sizes).map((span) => ({ by: node.src[1]!, span }))
    : spans.map((span) => ({ by: indexed!.index, span }))
}
