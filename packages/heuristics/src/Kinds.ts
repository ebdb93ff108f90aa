/** Distinctions between devices and between kernels: of devices by a quantity, never by a name. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { toposort, type UOp } from "@tg/core-uop/UOp"

/** Rows of a usual model's matrix, at least, and the threads of a subgroup for each. */
const usualRows = 2048
const usualGroup = 32

/**
 * Whether a subgroup for each row does not saturate the device: rows are then split over more threads. On an
 * H200 (135168 threads) 64 to 128 threads for a row of floats take 7 us where 32 take 20 (3072 rows of 2048).
 */
export const hasIdleThreads = ({ saturatingThreads }: DeviceProfile): boolean =>
  saturatingThreads >= usualRows * usualGroup

/** With so many times the saturating threads, a subgroup for each row is enough in any case. */
const fullTimes = 8
/** Whether so many rows are more than the threads that saturate the device read at a time. */
export const isFull = (rows: number, { saturatingThreads }: DeviceProfile): boolean =>
  rows * usualGroup >= fullTimes * saturatingThreads

/** This part of the threads that saturate the device is nearly as good as all. */
export const nearlyAll = 0.9

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

/** Bytes of a vector load. */
const loadBytes = 16

/**
 * Loads in flight that each of so many threads of a processor needs to saturate memory: bandwidth x latency (Little's law), rounded up
 * to a power of two. On an H200 28 KB for each processor: 16 loads for 128 threads, 4 for 512.
 */
export const loadsInFlight = (profile: DeviceProfile, threads: number): number => {
  const bytes = profile.bytesPerMicro * quantitiesOf(profile).loadMicros / processorsOf(profile)
  return 2 ** Math.max(0, Math.ceil(Math.log2(bytes / loadBytes / threads)))
}

/** Whether a kernel, or a part of one, has products of bytes. */
export const isInt8 = (kernel: UOp): boolean => toposort(kernel).some((n) => n.op === "DOT4I8")
