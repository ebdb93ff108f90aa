/** Devices as data, for commands that need none: what `--profile`, `--limit`, `--no-subgroups` and `--no-matrix-units` say. */
import * as DeviceLimits from "@tg/core-uop/DeviceLimits"
import type { Restrictions } from "@tg/core-uop/DeviceLimits"
import { type DeviceProfile, h200, Profile, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as ProfileFile from "@tg/core-uop/ProfileFile"
import type { Pipeline } from "@tg/jit/Pipeline"
import type { Keeping } from "@tg/node/DeviceProfiles"
import type { Store } from "@tg/tuner/Store"
import { Context, Effect, type FileSystem, Layer, Option, Path, Stdio } from "effect"
import { Flag } from "effect/cli"
import { KeyValueStore } from "effect/persistence/KeyValueStore"
import * as UserDirectories from "effect/persistence/UserDirectories"
import * as CompiledFiles from "./CompiledFiles.ts"
import * as Devices from "./Devices.ts"
import * as Files from "./Files.ts"
import * as Output from "./Output.ts"
import { UsageError } from "./Report.ts"
import * as Targets from "./Targets.ts"

/** The profiles that come with the command line. */
export const builtIn: ReadonlyMap<string, DeviceProfile> = new Map([h200, wasm, webgpuDefault].map((p) => [p.name, p]))

/** The compiler of a device that need not be there: as on the device itself, up to the text of its programs. */
export const pipeline = (
  profile: DeviceProfile,
  store: Store,
  target: Targets.Target = Targets.usual(profile)
): Layer.Layer<Pipeline> =>
  Devices.pipeline(store, target.rendererOf(profile)).pipe(Layer.provide(Profile.layer(profile)))

/** `--profile`. */
export const profile = Flag.String("profile").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription(`The device to plan for: ${[...builtIn.keys()].join(", ")}, or a JSON file`),
  Flag.withDefault(h200.name)
)

/** `--profile` where something else may say it. */
export const profileIfSaid = Flag.String("profile").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription(
    `The device to compile for: ${[...builtIn.keys()].join(", ")}, or a JSON file (default: the target's, ${h200.name})`
  ),
  Flag.optional
)

/** `--profile` where a device is there: what to take it for. */
export const given = Flag.String("profile").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription(
    `What to take the device for: ${
      [...builtIn.keys()].join(", ")
    }, or a JSON file, as doctor --measure --out writes ` +
      "(default: what was measured of it)"
  ),
  Flag.optional
)

/** `--limit`, any number of times. */
export const limits = Flag.KeyValuePair("limit").pipe(
  Flag.withMetavar("NAME=VALUE"),
  Flag.withDescription("A WebGPU limit to stay within, maxStorageBufferBindingSize=1048576; or memory=BYTES in all"),
  Flag.withDefault({})
)

/** `--no-subgroups`. */
export const noSubgroups = Flag.Boolean("no-subgroups").pipe(
  Flag.withDescription("Do without subgroups"),
  Flag.withDefault(false)
)

/** `--no-matrix-units`. */
export const noMatrixUnits = Flag.Boolean("no-matrix-units").pipe(
  Flag.withDescription("Do without matrix units"),
  Flag.withDefault(false)
)

/** The flags that decide what a device is like. */
export interface ProfileFlags {
  readonly profile: string | Option.Option<string>
  readonly limits: Readonly<Record<string, string>>
  readonly noSubgroups: boolean
  readonly noMatrixUnits: boolean
}

/** The limits of these flags, which any device can be given. */
export const restrictionsOf = (
  { limits, noMatrixUnits, noSubgroups }: Omit<ProfileFlags, "profile">
): Restrictions | UsageError => {
  const found = DeviceLimits.parse(limits, !noSubgroups)
  return found instanceof DeviceLimits.InvalidLimit
    ? new UsageError({ message: `--limit: ${found.message}` })
    : { ...found, matrixUnits: !noMatrixUnits }
}

/** A profile by its name, or of a file. */
const named = (name: string): Effect.Effect<DeviceProfile, UsageError, FileSystem.FileSystem> => {
  const known = builtIn.get(name)
  if (known !== undefined) return Effect.succeed(known)
  if (name.endsWith(".json")) return fromFile(name)
  const names = [...builtIn.keys()].join(", ")
  return Effect.fail(
    new UsageError({ message: `there is no profile ${name}; known are ${names}, or give a JSON file` })
  )
}

/** The profile of these flags; without `--profile` the usual one. */
export const resolve = (
  flags: ProfileFlags,
  usual: DeviceProfile = h200
): Effect.Effect<DeviceProfile, UsageError, FileSystem.FileSystem> =>
  Effect.gen(function*() {
    const name = typeof flags.profile === "string" ? flags.profile : Option.getOrUndefined(flags.profile)
    const profile = name === undefined ? usual : yield* named(name)
    const restrictions = restrictionsOf(flags)
    return restrictions instanceof UsageError ? yield* restrictions : DeviceLimits.restrict(profile, restrictions)
  })

/** Where measured profiles are kept: in the user's folder for caches. */
export const folder = Effect.gen(function*() {
  const path = yield* Path.Path
  return path.join(yield* UserDirectories.make().cache("tg"), "devices")
})

/** The user's measured profiles. If the folder cannot be used, nothing is kept. */
export const keeping = Effect.gen(function*() {
  const stdio = yield* Stdio.Stdio
  const tell = (message: string) => Effect.provideService(Output.note(message), Stdio.Stdio, stdio)
  return yield* Effect.flatMap(folder, (where) => Layer.build(CompiledFiles.layer(where))).pipe(
    Effect.map((context): Keeping => ({ store: Context.get(context, KeyValueStore), tell })),
    Effect.catch(({ message }) => Effect.as(tell(`warning: measured profiles are not kept: ${message}`), undefined))
  )
})

/** What is known of the device that a command runs on: the profile that is given, and those that were measured. */
export const known = (given: Option.Option<string>) =>
  Effect.gen(function*() {
    const profile = Option.isNone(given) ? undefined : yield* named(given.value)
    return { given: profile, keeping: yield* keeping }
  })

const fromFile = Effect.fnUntraced(function*(path: string) {
  const text = yield* Files.readText(path)
  const read = yield* Files.decodeJson(text, { schema: ProfileFile.ProfileFile, where: path, isExact: true })
  return ProfileFile.profileOf(read)
})
