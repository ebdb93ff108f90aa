/** Limits below those of a device, as data: what `--limit`, `--no-subgroups` and `--no-matrix-units` set. */
import { Schema } from "effect"
import type { DeviceProfile } from "./DeviceProfile.ts"

/** Alignment in bytes of a binding's offset (WebGPU's default `minStorageBufferOffsetAlignment`) and of its size. */
export const bindingAlignment = 256

type Size =
  | "maxBindingBytes"
  | "maxBufferBytes"
  | "maxStorageBuffers"
  | "maxWorkgroupBytes"
  | "maxWorkgroupThreads"
  | "maxGrid"
  | "memoryBytes"

interface Limit {
  /** The size that it bounds. Workgroups are one-dimensional, so their sizes along y and z bound nothing. */
  readonly bounds: Size | undefined
  /** The least value with which anything runs. */
  readonly least: number
}

/** WebGPU's limits that matter to kernels, by their names there, and `memory`: bytes of all buffers together. */
export const known: ReadonlyMap<string, Limit> = new Map<string, Limit>([
  ["maxStorageBufferBindingSize", { bounds: "maxBindingBytes", least: bindingAlignment }],
  ["maxBufferSize", { bounds: "maxBufferBytes", least: bindingAlignment }],
  ["maxStorageBuffersPerShaderStage", { bounds: "maxStorageBuffers", least: 2 }],
  ["maxComputeWorkgroupStorageSize", { bounds: "maxWorkgroupBytes", least: 0 }],
  ["maxComputeInvocationsPerWorkgroup", { bounds: "maxWorkgroupThreads", least: 1 }],
  ["maxComputeWorkgroupSizeX", { bounds: "maxWorkgroupThreads", least: 1 }],
  ["maxComputeWorkgroupSizeY", { bounds: undefined, least: 1 }],
  ["maxComputeWorkgroupSizeZ", { bounds: undefined, least: 1 }],
  ["maxComputeWorkgroupsPerDimension", { bounds: "maxGrid", least: 1 }],
  ["memory", { bounds: "memoryBytes", least: 1 }]
])

/** Limits by the names of `known`, and whether subgroups may be used, and their matrix units. */
export interface Restrictions {
  readonly limits: Readonly<Record<string, number>>
  readonly subgroups: boolean
  /** They may if it is not said. */
  readonly matrixUnits?: boolean | undefined
}

/** No restrictions. */
export const unrestricted: Restrictions = { limits: {}, subgroups: true }

/** An unknown limit, or a value with which nothing can run. */
export class InvalidLimit extends Schema.TaggedError<InvalidLimit>()("InvalidLimit", { message: Schema.String }) {}

/** Limits from their text, `NAME=VALUE`. */
export const parse = (
  limits: Readonly<Record<string, string>>,
  subgroups: boolean
): Restrictions | InvalidLimit => {
  const parsed: Record<string, number> = {}
  for (const [name, text] of Object.entries(limits)) {
    const limit = known.get(name)
    if (limit === undefined) {
      return new InvalidLimit({ message: `the limit ${name} is not known; known are ${[...known.keys()].join(", ")}` })
    }
    if (!/^\d{1,15}$/.test(text) || Number(text) < limit.least) {
      return new InvalidLimit({
        message: `the limit ${name}=${text} is no size to work with; give a whole number from ${limit.least}`
      })
    }
    parsed[name] = Number(text)
  }
  return { limits: parsed, subgroups }
}

/** The profile with these limits. One above the device's own changes nothing. */
export const restrict = (
  profile: DeviceProfile,
  { limits, matrixUnits = true, subgroups }: Restrictions
): DeviceProfile => {
  const lower: { -readonly [S in Size]?: number } = {}
  for (const [name, value] of Object.entries(limits)) {
    const size = known.get(name)?.bounds
    if (size !== undefined) lower[size] = Math.min(lower[size] ?? profile[size] ?? Infinity, value)
  }
  return {
    ...profile,
    ...lower,
    subgroupSize: subgroups ? profile.subgroupSize : undefined,
    matrixUnits: subgroups && matrixUnits ? profile.matrixUnits : undefined
  }
}

/** A profile of a GPU for a CPU, or the other way round. */
export class ProfileMismatch
  extends Schema.TaggedError<ProfileMismatch>()("ProfileMismatch", { message: Schema.String })
{}

const sizes: ReadonlyArray<Exclude<Size, "memoryBytes">> = [
  "maxBindingBytes",
  "maxBufferBytes",
  "maxStorageBuffers",
  "maxWorkgroupBytes",
  "maxWorkgroupThreads",
  "maxGrid"
]

/** The given profile within the device's limits: figures are the profile's, limits the lower ones; subgroups and matrix units need both. */
export const as = (device: DeviceProfile, given: DeviceProfile): DeviceProfile | ProfileMismatch => {
  if (device.kind !== given.kind) {
    return new ProfileMismatch({
      message:
        `the profile ${given.name} is one of a ${given.kind}, and ${device.name} is a ${device.kind}; give a profile of ` +
        `its kind, or choose another --device`
    })
  }
  const memoryBytes = Math.min(device.memoryBytes ?? Infinity, given.memoryBytes ?? Infinity)
  return {
    ...given,
    ...Object.fromEntries(sizes.map((size) => [size, Math.min(device[size], given[size])])),
    memoryBytes: memoryBytes === Infinity ? undefined : memoryBytes,
    subgroupSize: given.subgroupSize === undefined ? undefined : device.subgroupSize,
    matrixUnits: given.matrixUnits === true && given.subgroupSize !== undefined ? device.matrixUnits : undefined
  }
}
