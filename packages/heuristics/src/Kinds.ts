/** Distinctions between devices and between kernels: of devices by a quantity, never by a name. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { toposort, type UOp } from "@tg/core-uop/UOp"

/** This fraction of the saturating threads is enough where each has many independent sums (instruction-level parallelism). */
export const keptThreads = 4

/** Bytes of a register. */
export const registerWidth = 4

/** Registers of each thread at that occupancy: 256 on an H200. */
const registersOf = (profile: DeviceProfile): number =>
  quantitiesOf(profile).registerBytes / registerWidth /
  Math.max(1, profile.saturatingThreads / processorsOf(profile) / keptThreads)

/** Register pressure of the largest body: a tile of 16 tokens x 4 rows, and half as many operands and temporaries. */
export const largestBody = 96

/**
 * Whether threads have registers for the largest register tile: 16 tokens x 4 rows, or several rows that reuse an activation. Twice
 * the speed of small tiles on an H200.
 */
export const hasManyRegisters = (profile: DeviceProfile): boolean => registersOf(profile) >= largestBody

/** Tokens of a register tile of a few tokens, at most. */
export const tileTokens = { manyRegisters: 16, fewRegisters: 4 } as const
export const tokensOfTile = (profile: DeviceProfile): number =>
  tileTokens[hasManyRegisters(profile) ? "manyRegisters" : "fewRegisters"]

/** Whether a kernel, or a part of one, has products of bytes. */
export const isInt8 = (kernel: UOp): boolean => toposort(kernel).some((n) => n.op === "DOT4I8")
