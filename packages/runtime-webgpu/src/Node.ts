import type { DeviceError } from "@tg/runtime/Device"
import { Effect, Layer } from "effect"
import { matrixFeatures } from "./internal/matrixUnits.ts"
import { error } from "./internal/queue.ts"
import * as WebGpu from "./WebGpu.ts"

/** A WebGPU device in Node. */
export interface Options extends Omit<WebGpu.Options, "matrixFeatures" | "unclamped"> {
  /**
   * Whether Dawn clamps each index of a kernel to its buffer, as a browser does. Rendered kernels stay inside their buffers without it; kernels that are
   * written by hand may want it. Default false.
   */
  readonly clamped?: boolean | undefined
}

/**
 * Matrix units are an experiment of Dawn's, which it offers among what it calls unsafe, and on NVIDIA it has halves only where it is told.
 * Devices have neither unless asked. Timestamps are as the device has them: Dawn rounds them for pages that must not look too closely;
 * a kernel takes less than that.
 */
const flags = (clamped: boolean): Array<string> => [
  `enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia${clamped ? "" : ",disable_robustness"}`,
  "disable-dawn-features=timestamp_quantization"
]

const unavailable = (cause: unknown): DeviceError =>
  error(
    "Unavailable",
    `Dawn cannot be loaded on this platform (${
      cause instanceof Error ? cause.message : String(cause)
    }); use --device wasm`
  )

/** Dawn's classes by their names, for those who count what is called. */
export const classes: Effect.Effect<Readonly<Record<string, unknown>>, DeviceError> = Effect.tryPromise({
  try: async (): Promise<Readonly<Record<string, unknown>>> => ({ ...(await import("webgpu")).globals }),
  catch: unavailable
})

const entryOf = (clamped: boolean): Effect.Effect<GPU, DeviceError> =>
  Effect.tryPromise({
    try: async () => (await import("webgpu")).create(flags(clamped)),
    catch: unavailable
  })

/** Dawn's entry to WebGPU, whose devices clamp indices. Its native library is loaded here, not when this module is imported. */
export const entry: Effect.Effect<GPU, DeviceError> = entryOf(true)

/** The same whose devices do not: `WebGpu.Options` has to say so. */
export const unclampedEntry: Effect.Effect<GPU, DeviceError> = entryOf(false)

/**
 * The WebGPU device in Node. The entry lives as long as the layer: Dawn's devices do not keep it alive, and a process ends
 * only when it is let go.
 */
export const layer = ({ clamped = false, ...options }: Options = {}): Layer.Layer<WebGpu.Services, DeviceError> =>
  Layer.unwrap(
    Effect.acquireRelease(
      Effect.map(clamped ? entry : unclampedEntry, (gpu) => ({ gpu })),
      (held) => Effect.sync(() => Reflect.deleteProperty(held, "gpu"))
    )
      .pipe(Effect.map(({ gpu }) => WebGpu.layer(gpu, { matrixFeatures, ...options, unclamped: !clamped })))
  )
