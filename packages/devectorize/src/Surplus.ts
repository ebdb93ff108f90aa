/** Threads that a workgroup of a launch has beyond those of a phase: they come to its barriers, and do nothing else. */
import * as DType from "@tg/core-uop/DType"
import { elementwise } from "@tg/core-uop/Op"
import { groupArg, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"

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

/**
 * The instructions of a phase with barriers, in branches that surplus threads do not take. As they are where a group of threads that reduces a
 * value would not take one together.
 */
export const leaveOut = (instructions: ReadonlyArray<UOp>, working: Working): ReadonlyArray<UOp> =>
  instructions.every((node) => node.op !== "SUBGROUP_REDUCE" || working.count % groupArg(node).threads === 0)
    ? guarded(itemsOf(instructions), working)
    : instructions

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

/** The instructions between barriers in branches of their own; those that barriers are inside of, from the inside. */
const guarded = (items: ReadonlyArray<Item>, working: Working): ReadonlyArray<UOp> => {
  const made: Array<UOp> = []
  for (let from = 0; from < items.length;) {
    const { hasBarrier, nodes } = items[from]!
    if (hasBarrier) {
      made.push(
        ...nodes.length === 1 ? nodes : [nodes[0]!, ...guarded(itemsOf(nodes.slice(1, -1)), working), nodes.at(-1)!]
      )
      from++
      continue
    }
    const barrier = items.findIndex((item, place) => place > from && item.hasBarrier)
    const to = barrier < 0 ? items.length : barrier
    made.push(...between(items.slice(from, to), usedBy(items.slice(to)), working))
    from = to
  }
  return made
}

const usedBy = (items: ReadonlyArray<Item>): ReadonlySet<UOp> =>
  new Set(items.flatMap(({ nodes }) => nodes.flatMap(({ src }) => src)))

/**
 * Instructions between two barriers: those whose values are used behind the next one stay outside of the branch, if indices alone decide about them, or
 * what is loaded early. If others are used there, no more than loops and branches have a branch around them.
 */
const between = (
  items: ReadonlyArray<Item>,
  later: ReadonlySet<UOp>,
  working: Working
): ReadonlyArray<UOp> => {
  const outside = new Set<UOp>()
  for (const { nodes: [node, ...inner] } of items.toReversed()) {
    if (inner.length > 0 || !(later.has(node!) || outside.has(node!))) continue
    outside.add(node!)
    for (const s of node!.src) outside.add(s)
  }
  const defined = new Set(items.map(({ nodes }) => nodes[0]!))
  const isPlain = (node: UOp): boolean =>
    node.op === "REG" || isEarly(node) || isOfIndices(node) && node.src.every(({ op }) => op !== "REG")
  if ([...outside].every((node) => !defined.has(node) || isPlain(node))) {
    const before = items.filter(({ nodes }) => outside.has(nodes[0]!))
    const rest = items.filter(({ nodes }) => !outside.has(nodes[0]!))
    return [...before.flatMap(({ nodes }) => nodes), ...branch(rest.flatMap(({ nodes }) => nodes), working)]
  }
  return items.flatMap(({ nodes }) => nodes.length > 1 ? branch(nodes, working) : nodes)
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
