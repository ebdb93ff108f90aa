import { Context, Layer } from "effect"

/** What a device can do and how fast, as plain data. Sizes in bytes, times in microseconds. */
export interface DeviceProfile {
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
  readonly dispatchMicros: number
  readonly bytesPerMicro: number
}

/** Processors of a GPU, by the threads that keep one of them busy: 1024. */
export const processorsOf = ({ saturatingThreads }: DeviceProfile): number => saturatingThreads / 1024

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

/** NVIDIA H200 through Dawn, measured. */
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
  bytesPerMicro: 4_600_000
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
