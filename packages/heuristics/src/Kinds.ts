/** The kinds of devices and kernels that are treated apart: of devices by a quantity of theirs, never by a name. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { toposort, type UOp } from "@tg/core-uop/UOp"

/** Rows that matrices of usual models have at least, and threads of a subgroup that each gets. */
const usualRows = 2048
const usualGroup = 32

/**
 * Whether a subgroup for each row leaves threads idle, by the threads that saturate the device: rows are then shared further. On an
 * H200 (135168 threads) 64 to 128 threads for a row of floats take 7 us where 32 take 20 (3072 rows of 2048).
 */
export const hasIdleThreads = ({ saturatingThreads }: DeviceProfile): boolean =>
  saturatingThreads >= usualRows * usualGroup

/** With this fraction of the threads that saturate the device, each with many independent sums, it is busy. */
export const keptThreads = 4

const registerBytes = 4

/** Registers for each thread where just so many run as are busy with independent sums: 256 on an H200. */
const registersOf = (profile: DeviceProfile): number =>
  quantitiesOf(profile).registerBytes / registerBytes /
  Math.max(1, profile.saturatingThreads / processorsOf(profile) / keptThreads)

/** Values of the largest body of a thread: 16 tokens x 4 rows, and half as many that are read and computed with. */
const largestBody = 96

/**
 * Whether a thread has registers for the largest tile of results, by the registers of a processor: 16 tokens x 4 rows, or rows that
 * read an activation together. Twice the speed of small tiles on an H200.
 */
export const hasManyRegisters = (profile: DeviceProfile): boolean => registersOf(profile) >= largestBody

/** Bytes of a vector load. */
const loadBytes = 16

/**
 * Loads that each of so many threads of a processor has to wait for at once, so that memory is busy: what memory gives in the time
 * of one load (Little's law), in powers of two. On an H200 28 KB for each processor: 16 loads for 128 threads, 4 for 512.
 */
export const loadsInFlight = (profile: DeviceProfile, threads: number): number => {
  const bytes = profile.bytesPerMicro * quantitiesOf(profile).loadMicros / processorsOf(profile)
  return 2 ** Math.max(0, Math.ceil(Math.log2(bytes / loadBytes / threads)))
}

/** Whether a kernel, or a part of one, has products of bytes. */
export const isInt8 = (kernel: UOp): boolean => toposort(kernel).some((n) => n.op === "DOT4I8")
