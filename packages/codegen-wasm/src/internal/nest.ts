import * as Bounds from "@tg/core-uop/Bounds"
import * as Expr from "@tg/core-uop/Expr"
import type { Op } from "@tg/core-uop/Op"
import { openRanges, rangeArg, type UOp } from "@tg/core-uop/UOp"

/** A number, or an index expression over VARs. */
export type Count = UOp | number

/** The loops of a kernel that threads may divide among themselves, as if they were one, and what that is worth. */
export interface Nest {
  /** Outermost first; none if the kernel has to run whole. */
  readonly ranges: ReadonlyArray<UOp>
  /** Iterations of all of them together; 1 without a nest. */
  readonly iterations: Count
  /** Instructions that run again for each part of the nest. */
  readonly perPart: Count
  /** Instructions of one iteration. */
  readonly perIteration: Count
}

/** Straight code ends here: a value from behind does not come before. */
export const endsStraightCode: ReadonlySet<Op> = new Set<Op>(["RANGE", "END", "IF", "ENDIF", "STORE", "BARRIER"])

/** The body of a loop, or of the kernel. */
export interface Block {
  readonly range: UOp | undefined
  readonly items: Array<UOp | Block>
}

export const blockOf = (linear: UOp): Block => {
  const root: Block = { range: undefined, items: [] }
  const open = [root]
  for (const node of linear.src) {
    if (node.op === "RANGE") {
      const body: Block = { range: node, items: [] }
      open.at(-1)!.items.push(body)
      open.push(body)
    } else if (node.op === "END") open.pop()
    else open.at(-1)!.items.push(node)
  }
  return root
}

// Iterations that a loop is taken to have where only the loops around it decide.
const unknownIterations = 256

const add = (a: Count, b: Count): Count =>
  typeof a === "number" ? typeof b === "number" ? a + b : a === 0 ? b : Expr.add(b, a) : Expr.add(a, b)
const multiply = (a: Count, b: Count): Count =>
  typeof a === "number" ? typeof b === "number" ? a * b : a === 1 ? b : Expr.mul(b, a) : Expr.mul(a, b)

const sizeOf = (range: UOp): Count => {
  const size = range.src[0]!
  if (size.op === "CONST") return Number(size.arg)
  return openRanges(size).size === 0 ? size : Math.min(Bounds.of(size).max, unknownIterations)
}

// What costs nothing: names, literals, and addresses that become immediates.
const free: ReadonlySet<string> = new Set(["CONST", "PARAM", "VAR", "INDEX", "END", "ENDIF"])

/** The instructions of a body, those of its loops as often as they run. */
export const costOf = (items: ReadonlyArray<UOp | Block>): Count =>
  items.reduce<Count>(
    (sum, item) =>
      "items" in item
        ? add(sum, multiply(sizeOf(item.range!), costOf(item.items)))
        : free.has(item.op)
        ? sum
        : add(sum, 1),
    0
  )

/** A cost as one number, to compare: loops of unknown length are of medium length. */
export const typical = (cost: Count): number => {
  if (typeof cost === "number") return cost
  const [a, b] = cost.src
  switch (cost.op) {
    case "CONST":
      return Number(cost.arg)
    case "ADD":
      return typical(a!) + typical(b!)
    case "MUL":
      return typical(a!) * typical(b!)
    default:
      return Math.min(Bounds.of(cost).max, unknownIterations)
  }
}

const isShareable = (item: UOp | Block): item is Block => "items" in item && rangeArg(item.range!).axis === "GLOBAL"

const stores = (item: UOp | Block): boolean => "items" in item ? item.items.some(stores) : item.op === "STORE"

/** A loop is worth adding to the nest if what stands beside it costs this little of it. */
const besides = 1 / 8

/**
 * The nest of a linear kernel. All its stores are inside; what else stands around the loops is computed by every
 * thread.
 */
export const nestOf = (linear: UOp): Nest => {
  const root = blockOf(linear)
  const isKnown = (size: UOp): boolean => size.op === "CONST" || size.op === "VAR" || root.items.includes(size)
  const ranges: Array<UOp> = []
  let iterations: Count = 1
  let perPart: Count = 0
  let body = root
  for (;;) {
    const storing = body.items.filter(stores)
    const [inner] = storing
    if (storing.length !== 1 || !isShareable(inner!) || !isKnown(inner.range!.src[0]!)) break
    const others = costOf(body.items.filter((item) => item !== inner))
    const own = multiply(sizeOf(inner.range!), costOf(inner.items))
    if (body !== root && typical(others) > besides * typical(own)) break
    perPart = add(perPart, others)
    iterations = multiply(iterations, sizeOf(inner.range!))
    ranges.push(inner.range!)
    body = inner
  }
  return { ranges, iterations, perPart, perIteration: costOf(body.items) }
}
