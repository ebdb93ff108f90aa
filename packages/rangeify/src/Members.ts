/** Kernels as members of a launch, and with numbers of their own. */
import { type Arg, argOf, rangeArg, rebuild, slotOf, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf, endOf } from "@tg/core-uop/View"
import * as Workgroup from "@tg/core-uop/Workgroup"
import { renumberRanges } from "./SplitRanges.ts"

/** A member of a joined kernel: its slot i is `slots[i]` of that kernel. */
export interface Part {
  readonly ast: UOp
  readonly slots: ReadonlyArray<number>
}

/**
 * The members of a joined kernel, each as it would be alone: ENDs that fill workgroup memory belong to the next END that stores a
 * result.
 */
export const members = (kernel: UOp): ReadonlyArray<Part> => {
  const parts: Array<Array<UOp>> = [[]]
  for (const [at, end] of kernel.src.entries()) {
    parts.at(-1)!.push(end)
    if (!Workgroup.isStage(end) && !goesOn(end, kernel.src[at + 1])) parts.push([])
  }
  const roots = parts.filter((ends) => ends.length > 0)
  // a kernel that is not joined stays what it is
  if (roots.length < 2) return [{ ast: kernel, slots: slotsOf(kernel).toSorted((a, b) => a - b) }]
  return roots.map((ends) => canonical(renumberRanges(kernel.with(ends))))
}

/** Whether the next END is of the same workgroups: they share a loop. */
const goesOn = (end: UOp, next: UOp | undefined): boolean =>
  next !== undefined && next.src.slice(1).some((loop) => end.src.includes(loop, 1))

const slotsOf = (...roots: ReadonlyArray<UOp>): ReadonlyArray<number> => [
  ...new Set(
    toposort(...roots).filter((node) => node.op === "PARAM").map(slotOf)
  )
]

/** The kernel with the slots in the order in which its nodes use them, what it stores first, and its memory from 0. */
export const canonical = (kernel: UOp): Part => {
  const nodes = toposort(kernel)
  const [result] = endOf(kernel.src.at(-1)!).stores
  const slots = slotsOf(accessOf(result!).buffer, kernel)
  const memory = nodes.filter((node) => node.op === "LOCAL").map(idOf)
  const by = { range: 0, memory: memory.length === 0 ? 0 : -Math.min(...memory) }
  return { ast: move(kernel, (slot) => slots.indexOf(slot), by), slots }
}

const idOf = (memory: UOp): number => argOf(memory, "LOCAL").id

/** What is added to the numbers of loops and of workgroup memory. */
export interface Offsets {
  readonly range: number
  readonly memory: number
}

/** The kernel with other argument slots, and with other numbers for its loops and its workgroup memory. */
export const move = (kernel: UOp, slotIn: (slot: number) => number, by: Offsets): UOp => {
  const moved = (node: UOp): Arg => {
    switch (node.op) {
      case "PARAM":
        return { ...argOf(node, "PARAM"), slot: slotIn(slotOf(node)) }
      case "RANGE":
        return { ...rangeArg(node), id: rangeArg(node).id + by.range }
      case "LOCAL":
        return { ...argOf(node, "LOCAL"), id: idOf(node) + by.memory }
      default:
        return node.arg
    }
  }
  return rebuild(kernel, (node, src) => {
    const made = node.arena.make(node.op, node.dtype, src, moved(node))
    node.arena.inherit(made, node)
    return made
  })
}
