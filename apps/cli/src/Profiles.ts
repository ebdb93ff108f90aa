/** Devices as data, for commands that need none: what `--profile`, `--limit` and `--no-subgroups` say. */
import { type DeviceProfile, h200, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { Effect, type FileSystem, Schema } from "effect"
import { Flag } from "effect/cli"
import * as Files from "./Files.ts"
import { UsageError } from "./Report.ts"

/** The profiles that come with the command line. */
export const builtIn: ReadonlyMap<string, DeviceProfile> = new Map([h200, wasm, webgpuDefault].map((p) => [p.name, p]))

/** `--profile`. */
export const profile = Flag.String("profile").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription(`The device to plan for: ${[...builtIn.keys()].join(", ")}, or a JSON file`),
  Flag.withDefault(h200.name)
)

/** `--limit`, any number of times. */
export const limits = Flag.KeyValuePair("limit").pipe(
  Flag.withMetavar("NAME=VALUE"),
  Flag.withDescription("A WebGPU limit to stay within: maxStorageBufferBindingSize=1048576"),
  Flag.withDefault({})
)

/** `--no-subgroups`. */
export const noSubgroups = Flag.Boolean("no-subgroups").pipe(
  Flag.withDescription("Do without subgroups"),
  Flag.withDefault(false)
)

/** The flags that decide what a device is like. */
export interface ProfileFlags {
  readonly profile: string
  readonly limits: Readonly<Record<string, string>>
  readonly noSubgroups: boolean
}

const Positive = Schema.Finite.check(Schema.isGreaterThan(0))
const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

/** A profile in a file. Without `subgroupSize` the device has no subgroups of one known size, without `packedDot` no such instruction. */
export const FromFile = Schema.Struct({
  name: Schema.String,
  kind: Schema.Literals(["gpu", "cpu"]),
  maxWorkgroupThreads: Count,
  maxWorkgroupBytes: Count,
  maxGrid: Count,
  maxStorageBuffers: Count,
  maxBindingBytes: Count,
  subgroupSize: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThan(1))),
  packedDot: Schema.optionalKey(Schema.Boolean),
  saturatingThreads: Count,
  dispatchMicros: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
  bytesPerMicro: Positive
})

type Size = "maxWorkgroupThreads" | "maxWorkgroupBytes" | "maxGrid" | "maxStorageBuffers" | "maxBindingBytes"

/** The number of a profile that a WebGPU limit bounds. A buffer is bound as a whole. */
const sizes: ReadonlyMap<string, Size> = new Map([
  ["maxComputeInvocationsPerWorkgroup", "maxWorkgroupThreads"],
  ["maxComputeWorkgroupSizeX", "maxWorkgroupThreads"],
  ["maxComputeWorkgroupStorageSize", "maxWorkgroupBytes"],
  ["maxComputeWorkgroupsPerDimension", "maxGrid"],
  ["maxStorageBuffersPerShaderStage", "maxStorageBuffers"],
  ["maxStorageBufferBindingSize", "maxBindingBytes"],
  ["maxBufferSize", "maxBindingBytes"]
])

/** The profile with lower limits. A limit above the device's own changes nothing. */
export const limited = (
  profile: DeviceProfile,
  { limits, noSubgroups }: Omit<ProfileFlags, "profile">
): DeviceProfile | UsageError => {
  const lower: { -readonly [S in Size]?: number } = {}
  for (const [name, text] of Object.entries(limits)) {
    const size = sizes.get(name)
    if (size === undefined) {
      return new UsageError({ message: `--limit ${name} is not known; known are ${[...sizes.keys()].join(", ")}` })
    }
    if (!/^\d{1,15}$/.test(text) || Number(text) < 1) {
      return new UsageError({ message: `--limit ${name}=${text} has no size; give a whole number from 1` })
    }
    lower[size] = Math.min(lower[size] ?? profile[size], Number(text))
  }
  return { ...profile, ...lower, subgroupSize: noSubgroups ? undefined : profile.subgroupSize }
}

/** The profile of these flags. */
export const resolve = (
  flags: ProfileFlags
): Effect.Effect<DeviceProfile, UsageError, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    const known = builtIn.get(flags.profile)
    if (known === undefined && !flags.profile.endsWith(".json")) {
      return yield* new UsageError({
        message: `there is no profile ${flags.profile}; known are ${
          [...builtIn.keys()].join(", ")
        }, or give a JSON file`
      })
    }
    const profile = known ?? (yield* fromFile(flags.profile))
    const made = limited(profile, flags)
    return made instanceof UsageError ? yield* made : made
  })

const fromFile = Effect.fnUntraced(function*(path: string) {
  const text = yield* Files.readText(path)
  const read = yield* Files.decodeJson(text, { schema: FromFile, where: path })
  return { ...read, subgroupSize: read.subgroupSize, packedDot: read.packedDot ?? false }
})
