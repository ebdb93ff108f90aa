import { Context, Layer } from "effect"

/**
 * What the rules and the costs of the compiler ask of a device besides its limits. Each is measured where a device has been
 * measured (`@tg/runtime-webgpu/DeviceMeasure`); `quantitiesOf` has a value for those that are not. "Processor" is what runs workgroups: a
 * streaming multiprocessor, a compute unit, a core.
 */
export interface Quantities {
  readonly processors: number
  /** Threads that one processor holds at a time, of kernels that need few registers. */
  readonly residentThreads: number
  /** Workgroups that one processor holds at a time, of small ones that need little. */
  readonly residentWorkgroups: number
  /** Workgroup memory of one processor, which its workgroups share. */
  readonly residentBytes: number
  /** Registers of one processor, which its threads share. */
  readonly registerBytes: number
  /** The largest cache that all processors share. */
  readonly cacheBytes: number
  /** Bytes that caches give in the time in which memory gives one. */
  readonly cachedPerByte: number
  /** Operations that the device does in that time. */
  readonly operationsPerByte: number
  /** A load from memory whose place another load decides. */
  readonly loadMicros: number
  /** A load that finds its value in the shared cache. */
  readonly cachedLoadMicros: number
  /** A stage of a workgroup: to write its values to workgroup memory, wait for all threads, and read them. */
  readonly stageMicros: number
  /** The barrier of a workgroup alone. */
  readonly barrierMicros: number
  /** A sum over the threads of a subgroup. */
  readonly subgroupReduceMicros: number
  /** Of the host's time, to encode a dispatch and submit it among many. */
  readonly encodeMicros: number
  /** A barrier that all workgroups of a grid pass together, by atomics. */
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
  /** The make of the device, for what is known about single ones: `webgpu nvidia nvidia-h200`. */
  readonly adapter?: string | undefined
  /** `gpu` runs a grid of workgroups; `cpu` runs loops with short vectors. */
  readonly kind: "gpu" | "cpu"
  readonly maxWorkgroupThreads: number
  readonly maxWorkgroupBytes: number
  readonly maxGrid: number
  readonly maxStorageBuffers: number
  /** Bytes of one argument of a kernel. A larger buffer is bound in windows. */
  readonly maxBindingBytes: number
  /** Bytes of one buffer. More is held in several, each with as many bytes, which no window crosses. */
  readonly maxBufferBytes: number
  /** Bytes of all buffers together, where that is known. */
  readonly memoryBytes?: number | undefined
  /** Lanes of a subgroup if the device has subgroups of one known size. */
  readonly subgroupSize: number | undefined
  /** Sums of four products of bytes (DOT4I8) are one instruction, or so few that products of bytes are the faster ones. */
  readonly packedDot: boolean
  /** Threads that keep the device busy. */
  readonly saturatingThreads: number
  /** A launch that depends on the one before it. */
  readonly dispatchMicros: number
  /** What memory gives, read by all processors. */
  readonly bytesPerMicro: number
}

/** Threads that keep a processor busy, where nobody has counted processors. */
const busyThreads = 1024

/** Processors of a GPU; where they are not counted, by the threads that keep the device busy. */
export const processorsOf = ({ processors, saturatingThreads }: DeviceProfile): number =>
  processors ?? saturatingThreads / busyThreads

/** Figures of a small integrated GPU for what is a size; for what is a time or a ratio, those of the one GPU that was measured. */
const usual: Omit<Quantities, "processors"> = {
  residentThreads: 2048,
  residentWorkgroups: 16,
  residentBytes: 65536,
  registerBytes: 65536,
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

/** All quantities of a device: its own, and for what is not known about it usual ones. */
export const quantitiesOf = (profile: DeviceProfile): Quantities => {
  const known = Object.fromEntries(
    Object.entries(usual).map(([name, value]) => [name, profile[name as keyof typeof usual] ?? value])
  ) as Record<keyof typeof usual, number>
  return { ...known, processors: processorsOf(profile) }
}

/** What is measured of a device, as against its limits, which it tells. */
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
 * NVIDIA H200 through Dawn. Sizes are the maker's; times, and ratios of them, were measured by kernels written by hand. What a
 * device of that name is planned with before it has been measured itself.
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
  cacheBytes: 60e6,
  cachedPerByte: 3,
  operationsPerByte: 6.25,
  loadMicros: 0.8,
  cachedLoadMicros: 0.3,
  stageMicros: 0.4,
  encodeMicros: 3.5,
  gridBarrierMicros: 1.1,
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
  saturatingThreads: 1,
  dispatchMicros: 0.1,
  bytesPerMicro: 10_000
}
