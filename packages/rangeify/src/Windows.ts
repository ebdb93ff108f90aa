/** Which parts of their buffers a kernel's accesses touch, and the windows in which those can be bound. */
import * as Bounds from "@tg/core-uop/Bounds"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { isLarge, lengthOf, type Sizes } from "./Bindings.ts"

export { type BindingLimits, isLarge, type Sizes, sizesOf, wordBytes } from "./Bindings.ts"

/** Words `lo` to `hi - 1` of a buffer. */
export interface Span {
  readonly lo: number
  readonly hi: number
}

/** An access to a parameter that is too large to be bound as a whole. */
export interface Access extends Span {
  /** The INDEX node. */
  readonly node: UOp
  readonly param: UOp
}

/** The words an INDEX node can reach where its gate is open. */
export const spanOf = (node: UOp): Span => {
  const [, at, gate] = node.src
  const { max, min } = gate === undefined ? Bounds.of(at!) : Symbolic.boundsUnder(gate, at!)
  const length = lengthOf(node.src[0]!)
  const lo = Math.min(Math.max(0, min), length - 1)
  return { lo, hi: Math.max(lo, Math.min(max, length - 1)) + 1 }
}

/** The accesses of a kernel to large parameters, and the parameters that are bound as a whole. */
export const accessesOf = (
  kernel: UOp,
  sizes: Sizes
): { readonly accesses: ReadonlyArray<Access>; readonly whole: ReadonlyArray<UOp> } => {
  const accesses: Array<Access> = []
  const whole: Array<UOp> = []
  for (const node of toposort(kernel)) {
    if (node.op === "PARAM" && !isLarge(node, sizes)) whole.push(node)
    if (node.op === "INDEX" && node.src[0]!.op === "PARAM" && isLarge(node.src[0]!, sizes)) {
      accesses.push({ node, param: node.src[0]!, ...spanOf(node) })
    }
  }
  return { accesses, whole }
}

const alignDown = (at: number, to: number): number => at - at % to

/** The window that starts as early as one for `lo` may, if everything up to `hi` fits it. */
export const windowFor = ({ hi, lo }: Span, { alignment, binding, segment }: Sizes): Span | undefined => {
  const start = alignDown(lo, alignment)
  const sameSegment = segment === Infinity || Math.floor(start / segment) === Math.floor((hi - 1) / segment)
  return hi - start <= binding && sameSegment ? { lo: start, hi } : undefined
}

/** Windows that cover a span, one behind the other. */
export const cover = ({ hi, lo }: Span, sizes: Sizes): ReadonlyArray<Span> => {
  const { alignment, binding, segment } = sizes
  const windows: Array<Span> = []
  for (let at = alignDown(lo, alignment); at < hi;) {
    const inSegment = segment === Infinity ? Infinity : alignDown(at, segment) + segment
    const end = Math.min(hi, at + alignDown(binding, alignment), inSegment)
    windows.push({ lo: at, hi: end })
    at = end
  }
  return windows
}

/** Packs spans into windows greedily, from the left; each span lies in one of them. */
export const pack = (spans: ReadonlyArray<Span>, sizes: Sizes): ReadonlyArray<Span> => {
  const windows: Array<Span> = []
  for (const span of spans.toSorted((a, b) => a.lo - b.lo || b.hi - a.hi)) {
    const last = windows.at(-1)
    const joined = last === undefined
      ? undefined
      : windowFor({ lo: last.lo, hi: Math.max(last.hi, span.hi) }, sizes)
    if (joined !== undefined) windows[windows.length - 1] = joined
    else windows.push(windowFor(span, sizes)!)
  }
  return windows
}
