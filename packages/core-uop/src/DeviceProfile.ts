import { Context, Layer } from "effect"

/**
 * What the rules and the costs of the compiler ask of a device besides its limits. Each is measured where a device has been
 * measured (`@tg/runtime-webgpu/DeviceMeasure`); `quantitiesOf` has a value for those that are not. "Processor" is what runs workgroups: a
 * streaming multiprocessor, a compute unit, a core.
 */
export interface Quantities {
  readonly processors: number
  /** Resident threads of a processor at full occupancy: with few registers each. */
  readonly residentThreads: number
  /** Resident workgroups of a processor, of small ones with little workgroup memory. */
  readonly residentWorkgroups: number
  /** Workgroup memory of a processor, divided among its resident workgroups. */
  readonly residentBytes: number
  /** The register file of a processor, divided among its resident threads. */
  readonly registerBytes: number
  /** The cache that a processor has for itself. */
  readonly ownCacheBytes: number
  /** The last-level cache, which all processors share. */
  readonly cacheBytes: number
  /** Bandwidth of caches over that of memory, where half of what is read again is in a processor's own cache. */
  readonly cachedPerByte: number
  /** The ridge of the roofline: operations in the time in which memory gives one byte. */
  readonly operationsPerByte: number
  /** Latency of a load from memory that is busy. */
  readonly loadMicros: number
  /** Latency of a load that hits the shared cache. */
  readonly cachedLoadMicros: number
  /** A stage of a workgroup: to write its values to workgroup memory, wait for all threads, and read them. */
  readonly stageMicros: number
  /** The barrier of a workgroup alone. */
  readonly barrierMicros: number
  /** A reduction over the threads of a subgroup. */
  readonly subgroupReduceMicros: number
  /** Host time to encode and submit one dispatch among many. */
  readonly encodeMicros: number
  /** A barrier that all workgroups of a grid pass together, by atomics, with the wait until what they stored is in memory. */
  readonly gridBarrierMicros: number
}

/** Whether a barrier across the grid holds on a device: absent until the litmus program has run there. */
export interface GridBarrier {
  /** Whether all workgroups came through, and no value that was written before the barrier and read after it was stale. */
  readonly gridBarrierHolds?: boolean | undefined
  /** Workgroups of 256 threads with which it was tried: more of them, or larger ones, have not been seen to run at once. */
  readonly gridBarrierWorkgroups?: number | undefined
}

/** What a device can do and how fast, as plain data. Sizes in bytes, times in microseconds. */
export interface DeviceProfile
  extends GridBarrier, Partial<{ readonly [Q in keyof Quantities]: Quantities[Q] | undefined }>
{
  readonly name: string
  /** The identity of the adapter, for what is known about single devices: `webgpu nvidia nvidia-h200`. */
  readonly adapter?: string | undefined
  /** `gpu` runs a grid of workgroups; `cpu` runs loops with short vectors. */
  readonly kind: "gpu" | "cpu"
  readonly maxWorkgroupThreads: number
  readonly maxWorkgroupBytes: number
  readonly maxGrid: number
  readonly maxStorageBuffers: number
  /** Bytes of one argument of a kernel. A larger buffer is bound in windows. */
  readonly maxBindingBytes: number
  /** Bytes of one buffer. A larger tensor is split over several of this size; no window crosses from one to the next. */
  readonly maxBufferBytes: number
  /** Bytes of all buffers together, where that is known. */
  readonly memoryBytes?: number | undefined
  /** Lanes of a subgroup if the device has subgroups of one known size. */
  readonly subgroupSize: number | undefined
  /** Sums of four products of bytes (DOT4I8) are one instruction, or so few that products of bytes are the faster ones. */
  readonly packedDot: boolean
  /** Subgroups multiply matrices of 16 x 16 halves and add floats up (matrix units). */
  readonly matrixUnits?: boolean | undefined
  /** Operations that converting a half takes where there is no instruction for it; hidden behind loads if it is not said. */
  readonly halfOperations?: number | undefined
  /** Bytes of a line of the processors' caches, where rows that are read together should not share sets of them. */
  readonly cacheLineBytes?: number | undefined
  /** Threads that saturate the device. */
  readonly saturatingThreads: number
  /** Overhead of a launch that depends on the one before it. */
  readonly dispatchMicros: number
  /** Bandwidth of memory, with all processors reading. */
  readonly bytesPerMicro: number
}

/** Threads that saturate a processor, for devices whose processors are not counted. */
const busyThreads = 1024

/** Processors of a GPU; where they are not counted, estimated from the threads that saturate the device. */
export const processorsOf = (
  { processors, saturatingThreads }: Pick<DeviceProfile, "processors" | "saturatingThreads">
): number => processors ?? saturatingThreads / busyThreads

/** Defaults: sizes of a small integrated GPU, times and ratios of the one GPU that was measured. */
const usual: Omit<Quantities, "processors"> = {
  residentThreads: 2048,
  residentWorkgroups: 16,
  residentBytes: 65536,
  registerBytes: 65536,
  ownCacheBytes: 65536,
  cacheBytes: 2 ** 20,
  cachedPerByte: 3,
  operationsPerByte: 6.25,
  loadMicros: 0.8,
  cachedLoadMicros: 0.3,
  stageMicros: 0.4,
  barrierMicros: 0.05,
  subgroupReduceMicros: 0.05,
  encodeMicros: 3.5,
  gridBarrierMicros: 2
}

/** All quantities of a device: its own, and defaults for those that are not known. */
export const quantitiesOf = (
  profile: Pick<DeviceProfile, "saturatingThreads"> & Partial<Pick<DeviceProfile, keyof Quantities>>
): Quantities => {
  const known = Object.fromEntries(
    Object.entries(usual).map(([name, value]) => [name, profile[name as keyof typeof usual] ?? value])
  ) as Record<keyof typeof usual, number>
  return { ...known, processors: processorsOf(profile) }
}

/** The fields of a profile that are measured. The others are limits, which the device reports. */
export const figures: ReadonlyArray<
  keyof Quantities | keyof GridBarrier | "saturatingThreads" | "dispatchMicros" | "bytesPerMicro"
> = [
  "saturatingThreads",
  "dispatchMicros",
  "bytesPerMicro",
  "processors",
  ...(Object.keys(usual) as ReadonlyArray<keyof typeof usual>),
  "gridBarrierHolds",
  "gridBarrierWorkgroups"
]

/** The profile with the figures of another one; what the other does not know is unknown. */
export const withFigures = (profile: DeviceProfile, measured: DeviceProfile): DeviceProfile => ({
  ...profile,
  ...Object.fromEntries(figures.map((name) => [name, measured[name]]))
})

/** The device a kernel is tuned for. Needs no device: a profile is data. */
export class Profile extends Context.Service<Profile, DeviceProfile>()("@tg/core-uop/DeviceProfile") {
  static readonly layer = (profile: DeviceProfile) => Layer.succeed(Profile, profile)
}

/** The limits every WebGPU implementation grants; speed figures of a small integrated GPU. */
export const webgpuDefault: DeviceProfile = {
  name: "webgpu-default",
  kind: "gpu",
  maxWorkgroupThreads: 256,
  maxWorkgroupBytes: 16384,
  maxGrid: 65535,
  maxStorageBuffers: 8,
  maxBindingBytes: 128 * 2 ** 20,
  maxBufferBytes: 256 * 2 ** 20,
  subgroupSize: undefined,
  packedDot: false,
  saturatingThreads: 16384,
  dispatchMicros: 5,
  bytesPerMicro: 100_000
}

/**
 * NVIDIA H200 through Dawn. Sizes are from the vendor; times and ratios were measured with hand-written kernels. A device of that
 * name is planned with this until it has been measured itself.
 */
export const h200: DeviceProfile = {
  name: "h200",
  adapter: "webgpu nvidia nvidia-h200",
  kind: "gpu",
  maxWorkgroupThreads: 1024,
  maxWorkgroupBytes: 49152,
  maxGrid: 65535,
  maxStorageBuffers: 16,
  maxBindingBytes: 2 ** 31 - 4,
  maxBufferBytes: 2 ** 40,
  memoryBytes: 141e9,
  subgroupSize: 32,
  packedDot: true,
  saturatingThreads: 132 * 1024,
  dispatchMicros: 1.8,
  bytesPerMicro: 4_600_000,
  processors: 132,
  residentThreads: 2048,
  residentWorkgroups: 32,
  residentBytes: 228 * 1024,
  registerBytes: 256 * 1024,
  ownCacheBytes: 228 * 1024,
  cacheBytes: 60e6,
  cachedPerByte: 3,
  operationsPerByte: 6.25,
  loadMicros: 0.8,
  cachedLoadMicros: 0.3,
  stageMicros: 0.4,
  encodeMicros: 3.5,
  gridBarrierMicros: 1.4,
  gridBarrierHolds: true,
  gridBarrierWorkgroups: 528
}

/** One WebAssembly thread with 128-bit SIMD. */
export const wasm: DeviceProfile = {
  name: "wasm",
  adapter: "wasm",
  kind: "cpu",
  maxWorkgroupThreads: 1,
  maxWorkgroupBytes: 0,
  maxGrid: 2 ** 31 - 1,
  maxStorageBuffers: 64,
  maxBindingBytes: 2 ** 31,
  maxBufferBytes: 2 ** 32,
  memoryBytes: 2 ** 32,
  subgroupSize: undefined,
  packedDot: true,
  halfOperations: 8,
  cacheLineBytes: 64,
  saturatingThreads: 1,
  dispatchMicros: 0.1,
  bytesPerMicro: 10_000
}
