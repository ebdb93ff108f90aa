import { type DeviceProfile, h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { type AdapterFacts, type Facts, packedDotFeature } from "../WebGpuInfo.ts"

const softwareNames = /llvmpipe|lavapipe|swiftshader|basic render|software/i

/** The adapter's own words about itself, and whether it is a CPU. */
export const facts = (info: GPUAdapterInfo): AdapterFacts => ({
  vendor: info.vendor,
  architecture: info.architecture,
  device: info.device,
  description: info.description,
  software: (info as { isFallbackAdapter?: boolean }).isFallbackAdapter === true ||
    softwareNames.test(`${info.architecture} ${info.device} ${info.description}`)
})

/** The name a person recognises. Drivers put the model into `device`, `description`, or both; browsers may hide them. */
export const nameOf = (adapter: AdapterFacts): string => {
  const { architecture, description, device, vendor } = adapter
  if (device !== "" && description !== "") return `${device} (${description})`
  return device || description || `${vendor} ${architecture}`.trim() || "unnamed adapter"
}

/** The make and model without the driver's version: what kernels were tuned for. */
const makeOf = ({ architecture, device, vendor }: AdapterFacts): string =>
  ["webgpu", vendor, architecture, device].filter((part) => part !== "").join(" ")

/** The limits kernels are bounded by. The rest stay at their defaults: a request for more is never free everywhere. */
const wanted = [
  "maxStorageBufferBindingSize",
  "maxBufferSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY",
  "maxComputeWorkgroupSizeZ",
  "maxComputeWorkgroupsPerDimension",
  "minUniformBufferOffsetAlignment"
] as const

/** Asks for everything the adapter has, of what matters here, and for its experiments that are of use. */
export const descriptor = (
  adapter: GPUAdapter,
  experiments: ReadonlyArray<GPUFeatureName> = []
): GPUDeviceDescriptor => ({
  requiredLimits: Object.fromEntries(wanted.map((name) => [name, adapter.limits[name]])),
  requiredFeatures: [
    ...(["subgroups", "timestamp-query"] as const).filter((name) => adapter.features.has(name)),
    ...experiments
  ]
})

/** The limits as plain numbers. */
export const limitsOf = (limits: GPUSupportedLimits): Record<string, number> =>
  Object.fromEntries(wanted.map((name) => [name, limits[name]]))

/** Smallest and largest subgroup of a device with the feature. */
export const subgroupSizes = (
  info: GPUAdapterInfo,
  features: ReadonlySet<string>
): readonly [number, number] | undefined => {
  const { subgroupMaxSize, subgroupMinSize } = info as { subgroupMinSize?: number; subgroupMaxSize?: number }
  return features.has("subgroups") && subgroupMinSize !== undefined && subgroupMaxSize !== undefined
    ? [subgroupMinSize, subgroupMaxSize]
    : undefined
}

/** Whether a product of bytes is an instruction. On Metal it is expanded, on a CPU it gains nothing. */
const packedDot = ({ architecture, description, software, vendor }: AdapterFacts, language: ReadonlyArray<string>) =>
  language.includes(packedDotFeature) && !software && !/apple|metal/i.test(`${vendor} ${architecture} ${description}`)

/** Speeds of an adapter that is a program: a few cores with short vectors. */
const onProcessor = { dispatchMicros: 5, bytesPerMicro: 5000 }

/** Figures by the name of an adapter, to begin with. Barriers across the grid are believed only where they were tried. */
const named = (adapter: AdapterFacts): DeviceProfile | undefined => {
  if (!/\bh200\b/i.test(nameOf(adapter))) return undefined
  const { gridBarrierHolds: _, gridBarrierWorkgroups: __, ...figures } = h200
  return figures
}

/** Whether figures are known by the adapter's name. */
export const isNamed = (adapter: AdapterFacts): boolean => named(adapter) !== undefined

/**
 * The compiler's view of the device before it is measured. Speeds are measured ones where the adapter is known by its name, else a
 * small GPU's.
 */
export const profile = (
  adapter: AdapterFacts,
  limits: Readonly<Record<string, number>>,
  { languageFeatures, matrixUnits, probes, subgroupSizes: sizes }: Pick<
    Facts,
    "languageFeatures" | "matrixUnits" | "probes" | "subgroupSizes"
  >
): DeviceProfile => ({
  ...(named(adapter) ?? (adapter.software ? { ...webgpuDefault, ...onProcessor } : webgpuDefault)),
  name: nameOf(adapter),
  adapter: makeOf(adapter),
  maxWorkgroupThreads: Math.min(limits["maxComputeInvocationsPerWorkgroup"]!, limits["maxComputeWorkgroupSizeX"]!),
  maxWorkgroupBytes: limits["maxComputeWorkgroupStorageSize"]!,
  maxGrid: limits["maxComputeWorkgroupsPerDimension"]!,
  maxStorageBuffers: limits["maxStorageBuffersPerShaderStage"]!,
  maxBindingBytes: limits["maxStorageBufferBindingSize"]!,
  maxBufferBytes: limits["maxBufferSize"]!,
  subgroupSize: sizes !== undefined && probes.linearSubgroups ? sizes[0] : undefined,
  packedDot: packedDot(adapter, languageFeatures),
  // `undefined` where there are none: programs that were compiled for such a device keep their keys
  matrixUnits: matrixUnits && probes.linearSubgroups || undefined
})
