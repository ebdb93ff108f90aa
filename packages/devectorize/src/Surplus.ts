/** Threads that a workgroup of a launch has beyond those of a phase: they come to its barriers, and do nothing else. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise } from "@tg/core-uop/Op"
import { groupArg, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { listOf } from "./Concatenate.ts"
import { remade } from "./internal/remade.ts"

/** An instruction, or a loop or branch with all of its own. */
interface Item {
  readonly nodes: ReadonlyArray<UOp>
  readonly hasBarrier: boolean
}

/** The threads that work. */
interface Working {
  readonly isThread: UOp
  readonly count: number
  /** A number for a branch: equal instructions are one node. */
  readonly fresh: () => number
}

/** And what is loaded early, outside of the branches that only they take. */
interface Guarding extends Working {
  readonly early: Set<UOp>
}

/**
 * The instructions of a phase with barriers, in branches that surplus threads do not take. As they are where a group of threads that reduces a
 * value would not take one together.
 */
export const leaveOut = (instructions: ReadonlyArray<UOp>, working: Working): ReadonlyArray<UOp> => {
  if (!areWhole(instructions, working)) return instructions
  const early = new Set<UOp>()
  const made = guarded(itemsOf(instructions), { ...working, early })
  return closed(made, early, working.isThread)
}

/** The instructions with these loads behind the condition: surplus threads would ask a processor's cache for as many bytes again. */
const closed = (instructions: ReadonlyArray<UOp>, loads: ReadonlySet<UOp>, condition: UOp): ReadonlyArray<UOp> => {
  if (loads.size === 0) return instructions
  const { here, push } = listOf(() => false)
  remade(instructions, (own, node) => {
    if (!loads.has(node)) return push(own)
    const { at, buffer, gate } = accessOf(own)
    const both = Expr.gated(gate, condition)
    if (gate !== undefined) push(both)
    return push(own.with([push(Expr.element(buffer, at, both))]))
  })
  return here
}

/**
 * Whether threads that are left out do nothing between barriers but compute indices and load arguments early: then nothing they would read has to be there.
 */
export const areLeftOut = (instructions: ReadonlyArray<UOp>, working: Pick<Working, "count">): boolean =>
  areWhole(instructions, working) && isClean(itemsOf(instructions))

/** Whether groups of threads that reduce a value are left out as a whole. */
const areWhole = (instructions: ReadonlyArray<UOp>, { count }: Pick<Working, "count">): boolean =>
  instructions.every((node) => node.op !== "SUBGROUP_REDUCE" || count % groupArg(node).threads === 0)

const opens = ({ op }: UOp): boolean => op === "RANGE" || op === "IF"
const closes = ({ op }: UOp): boolean => op === "END" || op === "ENDIF"

const itemsOf = (instructions: ReadonlyArray<UOp>): ReadonlyArray<Item> => {
  const items: Array<Item> = []
  let depth = 0
  let from = 0
  instructions.forEach((node, place) => {
    if (opens(node)) depth++
    if (closes(node)) depth--
    if (depth > 0) return
    const nodes = instructions.slice(from, place + 1)
    items.push({ nodes, hasBarrier: nodes.some(({ op }) => op === "BARRIER") })
    from = place + 1
  })
  return items
}

/** Instructions between two barriers, and what is used behind them; or one with barriers inside. */
interface Stretch {
  readonly items: ReadonlyArray<Item>
  readonly later: ReadonlySet<UOp>
}

const stretchesOf = (items: ReadonlyArray<Item>): ReadonlyArray<Stretch> => {
  const found: Array<Stretch> = []
  for (let from = 0; from < items.length;) {
    const barrier = items.findIndex((item, place) => place >= from && item.hasBarrier)
    const to = barrier === from ? from + 1 : barrier < 0 ? items.length : barrier
    found.push({ items: items.slice(from, to), later: usedBy(items.slice(to)) })
    from = to
  }
  return found
}

/** What a loop or branch with barriers has inside. */
const insideOf = ({ nodes }: Item): ReadonlyArray<Item> => itemsOf(nodes.slice(1, -1))

/** The instructions between barriers in branches of their own; those that barriers are inside of, from the inside. */
const guarded = (items: ReadonlyArray<Item>, working: Guarding): ReadonlyArray<UOp> =>
  stretchesOf(items).flatMap((stretch) => {
    const [first] = stretch.items as [Item]
    if (!first.hasBarrier) return between(stretch, working)
    const { nodes } = first
    return nodes.length === 1 ? nodes : [nodes[0]!, ...guarded(insideOf(first), working), nodes.at(-1)!]
  })

const isClean = (items: ReadonlyArray<Item>): boolean =>
  stretchesOf(items).every((stretch) => {
    const [first] = stretch.items as [Item]
    if (!first.hasBarrier) return outsideOf(stretch) !== undefined
    return first.nodes.length === 1 || isClean(insideOf(first))
  })

const usedBy = (items: ReadonlyArray<Item>): ReadonlySet<UOp> =>
  new Set(items.flatMap(({ nodes }) => nodes.flatMap(({ src }) => src)))

/** Instructions whose values are used behind the next barrier, if indices alone decide about them, or what is loaded early; none, if others are used there. */
const outsideOf = ({ items, later }: Stretch): ReadonlySet<UOp> | undefined => {
  const outside = new Set<UOp>()
  for (const { nodes: [node, ...inner] } of items.toReversed()) {
    if (inner.length > 0 || !(later.has(node!) || outside.has(node!))) continue
    outside.add(node!)
    for (const s of node!.src) outside.add(s)
  }
  const defined = new Set(items.map(({ nodes }) => nodes[0]!))
  const isPlain = (node: UOp): boolean =>
    node.op === "REG" || isEarly(node) || isOfIndices(node) && node.src.every(({ op }) => op !== "REG")
  return [...outside].every((node) => !defined.has(node) || isPlain(node)) ? outside : undefined
}

/**
 * Instructions between two barriers, in a branch but for those that stay outside of it. Where more is used behind the next barrier, no more than loops and branches have a branch around
 * them.
 */
const between = (stretch: Stretch, working: Guarding): ReadonlyArray<UOp> => {
  const { items } = stretch
  const outside = outsideOf(stretch)
  if (outside === undefined) return items.flatMap(({ nodes }) => nodes.length > 1 ? branch(nodes, working) : nodes)
  const before = items.filter(({ nodes }) => outside.has(nodes[0]!))
  const rest = items.filter(({ nodes }) => !outside.has(nodes[0]!))
  for (const { nodes: [node] } of before) if (isEarly(node!)) working.early.add(node!)
  return [...before.flatMap(({ nodes }) => nodes), ...branch(rest.flatMap(({ nodes }) => nodes), working)]
}

/** Whether an instruction computes with what it is given, and reads no memory. */
const isOfIndices = ({ op }: UOp): boolean =>
  elementwise.has(op) || op === "INDEX" || op === "LANE" || op === "STACK" || op === "CONST" || op === "PARAM" ||
  op === "LOCAL" || op === "VAR" || op === "SPECIAL"

/** A load of an argument, which waits behind a barrier. */
const isEarly = (node: UOp): boolean => node.op === "LOAD" && accessOf(node).buffer.op === "PARAM"

/** Instructions that are worth a branch, in one. */
const branch = (nodes: ReadonlyArray<UOp>, { fresh, isThread }: Working): ReadonlyArray<UOp> => {
  if (nodes.every(isOfIndices)) return nodes
  const open = isThread.arena.make("IF", DType.none, [isThread], fresh())
  return [open, ...nodes, open.arena.make("ENDIF", DType.none, [open])]
}
