import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Renderer } from "@tg/core-uop/Program"
import { Device } from "@tg/runtime/Device"
import { Context, Effect, Layer } from "effect"

/** Who runs the kernels. */
export interface AdapterFacts {
  readonly vendor: string
  readonly architecture: string
  readonly device: string
  readonly description: string
  /** True for a CPU that plays a GPU. */
  readonly software: boolean
}

/** An adapter with its driver, in its own words: another version of it is another device. */
export const identityOf = ({ architecture, description, device, vendor }: AdapterFacts): string =>
  [vendor, architecture, device, description].join("\n")

/** What the device does where WebGPU leaves a choice, found out by running kernels when it starts. */
export interface Probes {
  /** unpack2x16float keeps subnormal halves. */
  readonly halfSubnormals: boolean
  /** pack2x16float rounds to nearest even, subnormal halves too, and what is too large to infinity. */
  readonly halfRounding: boolean
  /** f32 arithmetic keeps subnormal results. */
  readonly f32Subnormals: boolean
  /** Subgroup lanes follow the thread number in the workgroup. False also where there are no subgroups of one size. */
  readonly linearSubgroups: boolean
}

/** The language feature of `dot4I8Packed`. It is listed also where it is not one instruction. */
export const packedDotFeature = "packed_4x8_integer_dot_product"

/** Facts about the device in use, for reports and for the renderer's options. */
export interface Facts {
  readonly adapter: AdapterFacts
  /** Whether figures of the device are known by its name, without measuring it. */
  readonly named: boolean
  readonly features: ReadonlyArray<string>
  /** What WGSL can say here beyond its core. */
  readonly languageFeatures: ReadonlyArray<string>
  readonly limits: Readonly<Record<string, number>>
  /** Smallest and largest subgroup, if the device has subgroups. */
  readonly subgroupSizes: readonly [number, number] | undefined
  /** Whether subgroups multiply matrices of 16 x 16 halves and add floats up, as far as the device says. */
  readonly matrixUnits: boolean
  /** Whether the device leaves indices as they are, so that kernels keep them inside their buffers. */
  readonly unclamped: boolean
  readonly probes: Probes
}

/** What the WGSL renderer is told of a device. */
export const rendererOptions = (
  { languageFeatures, probes, unclamped }: Pick<Facts, "languageFeatures" | "probes" | "unclamped">,
  { matrixUnits, subgroupSize }: Pick<DeviceProfile, "matrixUnits" | "subgroupSize">
) => ({
  subgroupSize,
  matrixUnits,
  halfSubnormals: probes.halfSubnormals,
  halfRounding: probes.halfRounding,
  unclamped,
  packedDot: languageFeatures.includes(packedDotFeature)
})

/** The facts of a device whose instruction for products of bytes is not to be used. */
export const withoutPackedDot = (facts: Facts): Facts => ({
  ...facts,
  languageFeatures: facts.languageFeatures.filter((feature) => feature !== packedDotFeature)
})

export class WebGpuInfo extends Context.Service<WebGpuInfo, Facts>()("@tg/runtime-webgpu/WebGpuInfo") {}

/** The renderer of the device in use, from what makes one of its options (`WgslRenderer.layer`, which is loaded when it is needed). */
export const layerOf = (
  rendererOf: (options: ReturnType<typeof rendererOptions>) => Layer.Layer<Renderer>
): Layer.Layer<Renderer, never, Device | WebGpuInfo> =>
  Layer.unwrap(Effect.gen(function*() {
    return rendererOf(rendererOptions(yield* WebGpuInfo, (yield* Device).profile))
  }))
