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
  readonly maxBindingBytes: number
  /** Lanes of a subgroup if the device has subgroups of one known size. */
  readonly subgroupSize: number | undefined
  /** Sums of four products of bytes (DOT4I8) are one instruction. */
  readonly packedDot: boolean
  /** Threads that keep the device busy. */
  readonly saturatingThreads: number
  readonly dispatchMicros: number
  readonly bytesPerMicro: number
}

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
  subgroupSize: undefined,
  packedDot: false,
  saturatingThreads: 1,
  dispatchMicros: 0.1,
  bytesPerMicro: 10_000
}
