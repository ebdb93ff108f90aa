/** What a GPU is planned for as: a profile that somebody gives, or what was measured on it and kept. */
import { type DeviceProfile, withFigures } from "@tg/core-uop/DeviceProfile"
import * as ProfileFile from "@tg/core-uop/ProfileFile"
import { digest } from "@tg/core-uop/UOp"
import type { DeviceError, DeviceShape } from "@tg/runtime/Device"
import { planned } from "@tg/runtime/Limited"
import type { Measured } from "@tg/runtime-webgpu/DeviceMeasure"
import { type AdapterFacts, type Facts, identityOf } from "@tg/runtime-webgpu/WebGpuInfo"
import { Effect, Option, Schema } from "effect"
import type { KeyValueStore } from "effect/persistence/KeyValueStore"

/** Where measured profiles are kept, one for each adapter and version of its driver. */
export interface Keeping {
  readonly store: KeyValueStore
  /** Tells people that something takes a while, or cannot be kept. */
  readonly tell: (message: string) => Effect.Effect<void>
}

/** What is known of devices besides what they say themselves. */
export interface Known {
  /** A profile that somebody gives: it goes before everything else. */
  readonly given?: DeviceProfile | undefined
  readonly keeping?: Keeping | undefined
}

/** Of how devices are measured: what was kept of another one is measured again. 3 tells a processor's own cache from the shared one, 4 believes no single reading, 5 knows that memory is busy. */
const version = 5

/** A measurement that is kept. */
export const Kept = Schema.Struct({
  version: Schema.Literal(version),
  /** The adapter's own words about itself, with those about its driver. */
  adapter: Schema.Struct({
    vendor: Schema.String,
    architecture: Schema.String,
    device: Schema.String,
    description: Schema.String,
    software: Schema.Boolean
  }),
  /** Whether everything was measured, or only whether barriers across the grid hold. */
  complete: Schema.Boolean,
  profile: ProfileFile.ProfileFile,
  /** Of each quantity that was not found, why. */
  problems: Schema.Array(Schema.Struct({ quantity: Schema.String, problem: Schema.String })),
  litmus: Schema.Array(Schema.Struct({
    workgroups: Schema.Int,
    values: Schema.Finite,
    stale: Schema.Int,
    gaveUp: Schema.Boolean
  })),
  seconds: Schema.Finite
})
/** A measurement that is kept. */
export type Kept = typeof Kept.Type

const KeptText = Schema.fromJsonString(Kept)

/** Names an adapter with its driver: another version of it is another device. */
export const keyOf = (adapter: AdapterFacts): string => digest(identityOf(adapter))

/** What is kept of an adapter. What cannot be read is measured again some time. */
export const find = ({ store }: Pick<Keeping, "store">, adapter: AdapterFacts): Effect.Effect<Kept | undefined> =>
  store.get(keyOf(adapter)).pipe(
    Effect.flatMap((text) =>
      text === undefined ? Effect.succeedNone : Effect.option(Schema.decodeEffect(KeptText)(text))
    ),
    Effect.map(Option.getOrUndefined),
    Effect.orElseSucceed(() => undefined)
  )

const put = ({ store, tell }: Keeping, kept: Kept): Effect.Effect<void> =>
  Schema.encodeEffect(KeptText)(kept).pipe(
    Effect.flatMap((text) => store.set(keyOf(kept.adapter), text)),
    Effect.catch(({ message }) => tell(`warning: what was measured of the device is not kept: ${message}`))
  )

/** Keeps a measurement. */
export const keep = (keeping: Keeping, adapter: AdapterFacts, measured: Measured): Effect.Effect<void> =>
  put(keeping, {
    version,
    adapter,
    complete: measured.findings.length > 1,
    profile: ProfileFile.ofProfile(measured.profile),
    problems: measured.findings.flatMap(({ problem, quantity }) =>
      problem === undefined ? [] : [{ quantity, problem }]
    ),
    litmus: measured.litmus,
    seconds: measured.seconds
  })

/** Measures on first use; of a device that is known by its name only what depends on its driver. */
const measured = Effect.fnUntraced(
  function*(device: DeviceShape, { adapter, named, subgroupSizes }: Facts, keeping: Keeping) {
    const { measure } = yield* Effect.promise(() => import("@tg/runtime-webgpu/DeviceMeasure"))
    if (!named) yield* keeping.tell(`measuring ${device.profile.name}, once: a few seconds`)
    const kind = { isSoftware: adapter.software, hasSubgroups: subgroupSizes !== undefined }
    const found = yield* measure(device, kind, { onlyBarriers: named })
    yield* keep(keeping, adapter, found)
    return found.profile
  }
)

/** The device's profile with the figures that are kept; of one whose figures are known by its name, with what was tried on it. */
const asKept = (profile: DeviceProfile, { complete, profile: kept }: Kept): DeviceProfile => {
  if (complete) return withFigures(profile, ProfileFile.profileOf(kept))
  const { gridBarrierHolds, gridBarrierMicros = profile.gridBarrierMicros, gridBarrierWorkgroups } = kept
  return { ...profile, gridBarrierHolds, gridBarrierMicros, gridBarrierWorkgroups }
}

/**
 * Remembers that barriers across the grid failed on an adapter while it was used, whatever was found when it was measured: until
 * it is measured again, it is one where they do not hold.
 */
export const refuseBarriers = (
  keeping: Keeping,
  adapter: AdapterFacts,
  { profile, why }: { readonly profile: DeviceProfile; readonly why: string }
): Effect.Effect<void> =>
  Effect.gen(function*() {
    const kept = (yield* find(keeping, adapter)) ??
      {
        version,
        adapter,
        complete: false,
        profile: ProfileFile.ofProfile(profile),
        problems: [],
        litmus: [],
        seconds: 0
      }
    const { gridBarrierWorkgroups: _, ...rest } = kept.profile
    const problems = kept.problems.filter(({ quantity }) => quantity !== refused)
    yield* put(keeping, {
      ...kept,
      profile: { ...rest, gridBarrierHolds: false },
      problems: [...problems, { quantity: refused, problem: why }]
    })
  })
const refused = "gridBarrierHolds"

/**
 * The device with the profile it is planned for: a given one; else what is kept of it; else what is measured now, of a GPU. A
 * processor that plays one is measured only where somebody asks for it.
 */
export const settle = (
  device: DeviceShape,
  facts: Facts,
  { given, keeping }: Known
): Effect.Effect<DeviceShape, DeviceError> =>
  Effect.gen(function*() {
    if (given !== undefined) return yield* planned(device, given)
    if (keeping === undefined) return device
    const kept = yield* find(keeping, facts.adapter)
    if (kept !== undefined) return { ...device, profile: asKept(device.profile, kept) }
    return facts.adapter.software ? device : { ...device, profile: yield* measured(device, facts, keeping) }
  })
