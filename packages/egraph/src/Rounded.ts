/** Products of bytes that a program states: what they round, and the same products of other values. */
import * as DType from "@tg/core-uop/DType"
import { elementwise, movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { reduceArg, substitute, type UOp } from "@tg/core-uop/UOp"
import * as Int8 from "@tg/tensor/Int8"
import { Tensor } from "@tg/tensor/Tensor"
import * as Contraction from "./Contraction.ts"
import { viewOf } from "./Read.ts"

/** A product of bytes whose rounded operand is stored. */
export interface Rounded extends Pick<Int8.Product, "rows" | "floats"> {
  /** What is rounded to bytes, in blocks along its last axis. */
  readonly value: Tensor
  /** Its records, before anything stores or moves them. */
  readonly made: UOp
  /** For each axis of the value the axis of the product that runs over it; none for the last, for those of size 1, and for those cut otherwise. */
  readonly axes: ReadonlyArray<number | undefined>
  /** The product with another value in its place, and other rows if they are given. */
  readonly of: (other: Tensor, rows?: Int8.Rows) => Tensor
}

const isSame = (a: ReadonlyArray<Contraction.Index>, b: ReadonlyArray<Contraction.Index>): boolean =>
  a.length === b.length && a.every((i, k) => i === b[k])

/** What was rounded, and which axis of its records runs over each of its axes, through what stores and moves records. */
const sourceOf = (records: Tensor): Pick<Rounded, "value" | "made" | "axes"> | undefined => {
  let view = Contraction.identity(records.shape)
  for (let at = records.node;; at = at.src[0]!) {
    const value = Int8.sourceOf(new Tensor(at))
    if (value !== undefined) {
      const [own, whole] = [view.operands[0]!, view.output.slice(0, -2)]
      const axisOf = (axis: ReadonlyArray<Contraction.Index>): number | undefined => {
        const found = axis.length === 0 ? -1 : whole.findIndex((other) => isSame(axis, other))
        return found < 0 ? undefined : found
      }
      return { value, made: at, axes: [...own.slice(0, -2).map(axisOf), undefined] }
    }
    if (at.op === "CONTIGUOUS") continue
    const moved = movement.has(at.op) ? viewOf(at) : undefined
    const joined = moved === undefined ? undefined : Contraction.compose(view, 0, moved)
    if (joined === undefined) return undefined
    view = joined
  }
}

/** What a node rounds, if it is a product of bytes. What each workgroup rounds for itself is none: it would wait for what scales it. */
export const roundedIn = (node: UOp): Rounded | undefined => {
  const product = Int8.productOf(new Tensor(node))
  if (product === undefined || "quants" in product.x) return undefined
  const { floats, rows, x: records } = product
  const source = sourceOf(records)
  if (source === undefined) return undefined
  const { axes, made, value } = source
  // the axes of the records and those of the rows end with the blocks of a row
  const missing = Math.max(0, rows.words.rank - Int8.rowRank + 2 - records.rank)
  return {
    value,
    made,
    rows,
    floats,
    axes: axes.map((axis) => axis === undefined ? undefined : axis + missing),
    of: (other, ofOther = rows) => {
      const { arena } = node
      const since = arena.size
      // the value itself may be no node of its records: of a view of a view one is left
      const now = Int8.quantise(other)
      arena.inherit(now.node, made, since)
      const y = Int8.contract(new Tensor(substitute(records.node, new Map([[made, now.node]]))), ofOther)
      arena.inherit(y.node, node, since)
      return y
    }
  }
}

/** A value as each workgroup rounds it for itself, named after what was there. */
export const inPlace = (value: Tensor, was: UOp, since: number): Int8.Blocks => {
  const { quants, scale, sums } = Int8.blocks(value)
  const named = (made: Tensor): Tensor => {
    made.arena.inherit(made.node, was, since)
    return made
  }
  return { quants: named(quants), scale: named(scale), sums: (parts) => named(sums(parts)) }
}

/** A product of bytes whose other operand each workgroup rounds for itself. */
export const inPlaceIn = (node: UOp): Pick<Rounded, "value" | "of"> | undefined => {
  const product = Int8.productOf(new Tensor(node))
  if (product === undefined || !("quants" in product.x)) return undefined
  const { rows, x: { quants } } = product
  const value = Int8.sourceOf(quants)
  return value && {
    value,
    of: (other) => {
      const { arena } = node
      const since = arena.size
      const made = Int8.contract(inPlace(other, quants.node, since), rows)
      arena.inherit(made.node, node, since)
      return made
    }
  }
}

const isReduction = ({ dtype, op }: UOp): boolean => op === "REDUCE" && DType.isFloat(dtype)

/** What a value is computed from, element by element: reductions, what is stored, and what else `stops` says. Numbers are nothing. */
export const readBy = (value: UOp, stops: (node: UOp) => boolean = () => false): ReadonlySet<UOp> => {
  const seen = new Set<UOp>()
  const read = new Set<UOp>()
  const visit = (node: UOp): void => {
    if (seen.has(node)) return
    seen.add(node)
    if (stops(node)) read.add(node)
    else if (elementwise.has(node.op)) node.src.forEach(visit)
    else if (movement.has(node.op)) visit(node.src[0]!)
    else if (node.op !== "CONST") read.add(node)
  }
  visit(value)
  return read
}

/** Reductions that each workgroup waits for before it can make these quants; 0 of what no workgroup rounds for itself. */
export const waitsOf = (quants: UOp): number => {
  const value = quants.op === "REDUCE" ? Int8.sourceOf(new Tensor(quants)) : undefined
  return value === undefined ? 0 : [...readBy(value.node)].filter(isReduction).length
}

/**
 * Whether a value takes a launch of its own to be rounded: as the whole of a row is needed for a number of each row first, as in a norm, or
 * as nobody computes it. What a product or attention leaves is rounded where it is computed.
 */
export const isByItself = (value: Tensor): boolean => {
  const rows = Shape.maxElements(value.shape.slice(0, -1))
  const made = [...readBy(value.node)].filter(isReduction)
  return made.length === 0 || made.some((node) => Shape.maxElements(Shape.of(node)) <= rows)
}

const beside = new WeakSet<UOp>()

/** Whether a workgroup that rounds a value makes it in the same stage. */
export const isBeside = (node: UOp): boolean => beside.has(node)

/** The sum over the last axis of a value as sums of its blocks, which are made where they are rounded, and the sum of these. */
const inBlocks = (node: UOp): UOp | undefined => {
  const { axes, op } = reduceArg(node)
  const terms = new Tensor(node.src[0]!)
  const size = terms.dim(-1)
  if (op !== "ADD" || axes.length !== 1 || axes[0] !== terms.rank - 1) return undefined
  if (typeof size !== "number" || size <= Int8.blockValues || size % Int8.blockValues !== 0) return undefined
  const lead = terms.shape.slice(0, -1)
  const blocks = terms.reshape([...lead, size / Int8.blockValues, Int8.blockValues]).sum(-1).label("int8")
  beside.add(blocks.node)
  return blocks.sum(-1).node
}

/** The sums that a factor of a value is computed from and that read nothing but what the value does, and the same in blocks. */
export const blockSumsOf = (value: Tensor, factor: UOp): ReadonlyArray<readonly [sum: UOp, inBlocks: UOp]> => {
  const known = readBy(value.node)
  return [...readBy(factor)].filter(isReduction).flatMap((sum) => {
    const cut = [...readBy(sum.src[0]!)].every((read) => known.has(read)) ? inBlocks(sum) : undefined
    return cut === undefined ? [] : [[sum, cut] as const]
  })
}
