/** How far threads and workgroups fill a device. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { maxGroup } from "./Groups.ts"
import { largestBody, registerWidth } from "./Kinds.ts"

/** Rows of a usual model's matrix, at least. */
const usualRows = 2048

/**
 * Whether a subgroup for each row does not saturate the device: rows are then split over more threads. On an
 * H200 (135168 threads) 64 to 128 threads for a row of floats take 7 us where 32 take 20 (3072 rows of 2048).
 */
export const hasIdleThreads = ({ saturatingThreads }: DeviceProfile): boolean =>
  saturatingThreads >= usualRows * maxGroup

/** This part of the threads that saturate the device is nearly as good as all. */
export const nearlyAll = 0.9

/** With so many times the saturating threads, a subgroup for each row is enough in any case. */
const fullTimes = 8
/** Whether so many rows, a subgroup for each, are many times the threads that saturate the device. */
export const isFull = (rows: number, { saturatingThreads }: DeviceProfile): boolean =>
  rows * maxGroup >= fullTimes * saturatingThreads

/**
 * Workgroups of so many threads that are resident at once, each with registers for the largest body, or for 64 loads on their way: none of more than these
 * hides the latency of another one's loads.
 */
export const residentWorkgroups = (profile: DeviceProfile, threads: number): number =>
  processorsOf(profile) * Math.floor(quantitiesOf(profile).registerBytes / (registerWidth * largestBody * threads))

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
