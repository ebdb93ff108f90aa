/** Barriers of a workgroup that its memory outside has to be ordered at. */
import { isCoherent, slotOf, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"

/** The barriers behind stores to plain arguments that the kernel reads, too: a workgroup reads there what it has written. */
export const behindStores = (linear: UOp): ReadonlySet<UOp> => {
  const plainSlot = (node: UOp): number => {
    const { buffer } = accessOf(node)
    return buffer.op === "PARAM" && !isCoherent(buffer) ? slotOf(buffer) : -1
  }
  const read = new Set(linear.src.filter(({ op }) => op === "LOAD").map(plainSlot).filter((slot) => slot >= 0))
  const found = new Set<UOp>()
  let isOpen = false
  for (const node of linear.src) {
    if (node.op === "STORE") isOpen ||= read.has(plainSlot(node))
    if (node.op !== "BARRIER") continue
    if (isOpen) found.add(node)
    isOpen = false
  }
  return found
}
