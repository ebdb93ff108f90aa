/** What the kernels of the stages before `linear` keep in workgroup memory. */
import { openRanges, toposort, type UOp } from "./UOp.ts"

/** The workgroup memory of a kernel: its LOCALs. A kernel of one END fills none, so it reads none. */
export const memoryOf = (kernel: UOp): ReadonlyArray<UOp> =>
  kernel.src.length === 1 ? [] : toposort(kernel).filter((n) => n.op === "LOCAL")

/** Its bytes. */
export const bytesOf = (kernel: UOp): number =>
  memoryOf(kernel).reduce((n, memory) => n + 4 * (memory.arg as { readonly length: number }).length, 0)

/** The loops that tell workgroups apart: what is staged in workgroup memory depends on them. */
export const loopsBetween = (kernel: UOp): ReadonlySet<UOp> =>
  new Set(memoryOf(kernel).flatMap((memory) => [...openRanges(memory)]))

/** Whether an END fills workgroup memory. */
export const isStage = (end: UOp): boolean => {
  const effect = end.src[0]
  return (effect?.op === "TUPLE" ? effect.src[0] : effect)?.src[0]?.src[0]?.op === "LOCAL"
}
