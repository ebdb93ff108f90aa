/** Devices as data, for commands that need none: what `--profile`, `--limit` and `--no-subgroups` say. */
import * as Wasm from "@tg/codegen-wasm/Wasm"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import * as DeviceLimits from "@tg/core-uop/DeviceLimits"
import type { Restrictions } from "@tg/core-uop/DeviceLimits"
import { type DeviceProfile, h200, Profile, wasm, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { Renderer, RenderError } from "@tg/core-uop/Program"
import type { Pipeline } from "@tg/jit/Pipeline"
import type { Store } from "@tg/tuner/Store"
import { Effect, type FileSystem, Layer, Schema } from "effect"
import { Flag } from "effect/cli"
import * as Devices from "./Devices.ts"
import * as Files from "./Files.ts"
import { UsageError } from "./Report.ts"

/** The profiles that come with the command line. */
export const builtIn: ReadonlyMap<string, DeviceProfile> = new Map([h200, wasm, webgpuDefault].map((p) => [p.name, p]))

/** WebAssembly as text: to read, not to run. */
const wasmText: Layer.Layer<Renderer> = Layer.succeed(Renderer, {
  id: "WebAssembly text",
  caps: Wasm.caps,
  render: (name, linear) => {
    let code = ""
    const program = Wasm.render(name, linear, {
      assemble: (_, text) => {
        code = text
        return new Uint8Array()
      }
    })
    return program instanceof RenderError ? Effect.fail(program) : Effect.succeed({ ...program, code })
  }
})

/** Writes programs in the language that a device runs, to read. */
const rendererOf = ({ kind, packedDot, subgroupSize }: DeviceProfile): Layer.Layer<Renderer> =>
  kind === "cpu" ? wasmText : WgslRenderer.layer({ packedDot, subgroupSize })

/** The compiler of a device that need not be there: as on the device itself, up to the text of its programs. */
export const pipeline = (profile: DeviceProfile, store: Store): Layer.Layer<Pipeline> =>
  Devices.pipeline(store, rendererOf(profile)).pipe(Layer.provide(Profile.layer(profile)))

/** `--profile`. */
export const profile = Flag.String("profile").pipe(
  Flag.withMetavar("NAME"),
  Flag.withDescription(`The device to plan for: ${[...builtIn.keys()].join(", ")}, or a JSON file`),
  Flag.withDefault(h200.name)
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
  adapter: Schema.optionalKey(Schema.String),
  kind: Schema.Literals(["gpu", "cpu"]),
  maxWorkgroupThreads: Count,
  maxWorkgroupBytes: Count,
  maxGrid: Count,
  maxStorageBuffers: Count,
  maxBindingBytes: Count,
  maxBufferBytes: Count,
  memoryBytes: Schema.optionalKey(Positive),
  subgroupSize: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThan(1))),
  packedDot: Schema.optionalKey(Schema.Boolean),
  saturatingThreads: Count,
  dispatchMicros: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
  bytesPerMicro: Positive
})

/** The limits of these flags, which any device can be given. */
export const restrictionsOf = ({ limits, noSubgroups }: Omit<ProfileFlags, "profile">): Restrictions | UsageError => {
  const found = DeviceLimits.parse(limits, !noSubgroups)
  return found instanceof DeviceLimits.InvalidLimit ? new UsageError({ message: `--limit: ${found.message}` }) : found
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
    const restrictions = restrictionsOf(flags)
    return restrictions instanceof UsageError ? yield* restrictions : DeviceLimits.restrict(profile, restrictions)
  })

const fromFile = Effect.fnUntraced(function*(path: string) {
  const text = yield* Files.readText(path)
  const read = yield* Files.decodeJson(text, { schema: FromFile, where: path })
  const profile: DeviceProfile = { ...read, subgroupSize: read.subgroupSize, packedDot: read.packedDot ?? false }
  return profile
})
