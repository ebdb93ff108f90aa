/** What kernels keep in workgroup memory. */
import * as DType from "./DType.ts"
import { argOf, openRanges, toposort, type UOp } from "./UOp.ts"

/** The workgroup memory of a kernel: its LOCALs. A kernel of one END fills none, so it reads none. */
export const memoryOf = (kernel: UOp): ReadonlyArray<UOp> =>
  kernel.src.length === 1 ? [] : toposort(kernel).filter((n) => n.op === "LOCAL")

const lengthOf = (memory: UOp): number => argOf(memory, "LOCAL").length

/** Its bytes. */
export const bytesOf = (kernel: UOp): number => memoryOf(kernel).reduce((n, memory) => n + 4 * lengthOf(memory), 0)

/** How kernels share workgroup memory of which no workgroup runs two. */
export interface Overlay {
  /** The place of each LOCAL of each kernel. */
  readonly places: ReadonlyArray<ReadonlyMap<UOp, string>>
  /** Elements of each place. */
  readonly lengths: ReadonlyMap<string, number>
}

/** The longest LOCALs of a dtype share a place, the second longest ones, and so on; each is as long as the longest there. */
export const overlay = (memories: ReadonlyArray<ReadonlyArray<UOp>>): Overlay => {
  const lengths = new Map<string, number>()
  const places = memories.map((memory) => {
    const counts = new Map<string, number>()
    return new Map(
      memory.toSorted((a, b) => lengthOf(b) - lengthOf(a)).map((node) => {
        const dtype = DType.print(node.dtype)
        const number = counts.get(dtype) ?? 0
        counts.set(dtype, number + 1)
        const place = `${dtype}: ${number}`
        lengths.set(place, Math.max(lengthOf(node), lengths.get(place) ?? 0))
        return [node, place] as const
      })
    )
  })
  return { places, lengths }
}

/** Bytes of workgroup memory for kernels of which each workgroup runs one. */
export const overlaidBytes = (kernels: ReadonlyArray<UOp>): number =>
  [...overlay(kernels.map(memoryOf)).lengths.values()].reduce((n, length) => n + 4 * length, 0)

/** The loops that tell workgroups apart: what is staged in workgroup memory depends on them. */
export const loopsBetween = (kernel: UOp): ReadonlySet<UOp> =>
  new Set(memoryOf(kernel).flatMap((memory) => [...openRanges(memory)]))

/** Whether an END fills workgroup memory. */
export const isStage = (end: UOp): boolean => {
  const effect = end.src[0]
  return (effect?.op === "TUPLE" ? effect.src[0] : effect)?.src[0]?.src[0]?.op === "LOCAL"
}
