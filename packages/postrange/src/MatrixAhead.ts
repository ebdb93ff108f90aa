/** How many steps of a product by matrix units have their operands on their way while one is multiplied: as many as hide the latency of memory and have registers. */
import * as Bounds from "@tg/core-uop/Bounds"
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { side } from "@tg/core-uop/MatrixTile"
import { rangeArg, type UOp } from "@tg/core-uop/UOp"
import { endOf } from "@tg/core-uop/View"
import { vector } from "./MatrixOperand.ts"

/** Steps at most: multiplying takes a third of a load's latency at least. */
const mostAhead = 4
/** Workgroups of a processor that hide each other's latency. */
const fewWorkgroups = 2
/** Registers of a thread besides its accumulators and what is on its way: addresses, fragments of operands. */
const otherRegisters = 48
const registerBytes = 4

/** Whether a processor has few workgroups of a kernel, or has no room for more: several products need its registers and its memory. */
const isAlone = (kernel: UOp, products: number, profile: DeviceProfile): boolean => {
  if (products > 1) return true
  const workgroups = endOf(kernel.src.at(-1)!).loops.filter((range) => rangeArg(range).axis === "GLOBAL")
    .reduce((n, range) => n * Bounds.of(range.src[0]!).max, 1)
  return workgroups <= fewWorkgroups * processorsOf(profile)
}

/** A tile as far as registers go. */
interface Tile {
  readonly fragments: readonly [number, number]
  /** Words of both operands that a workgroup stages at a time. */
  readonly words: number
  readonly threads: number
}

/** The steps ahead of each tile of a kernel that has so many products. */
export const aheadIn = (kernel: UOp, products: number, profile: DeviceProfile): (tile: Tile) => number => {
  if (!isAlone(kernel, products, profile)) return () => 1
  const { registerBytes: ofProcessor } = quantitiesOf(profile)
  return ({ fragments: [down, across], threads, words }) => {
    const accumulators = down * across * side ** 2 / profile.subgroupSize!
    const left = ofProcessor / registerBytes / threads - accumulators - otherRegisters
    const each = vector * Math.ceil(words / vector / threads)
    return Math.max(1, Math.min(mostAhead, Math.floor(left / each)))
  }
}
