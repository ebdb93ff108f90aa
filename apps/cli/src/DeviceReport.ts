/** What is known of a GPU besides what it says itself: measured now, kept from before, or usual figures. */
import type { Restrictions } from "@tg/core-uop/DeviceLimits"
import { type DeviceProfile, figures } from "@tg/core-uop/DeviceProfile"
import * as ProfileFile from "@tg/core-uop/ProfileFile"
import * as DeviceProfiles from "@tg/node/DeviceProfiles"
import { Device } from "@tg/runtime/Device"
import * as Limited from "@tg/runtime/Limited"
import type { Finding, Litmus, Measured } from "@tg/runtime-webgpu/DeviceMeasure"
import type { Facts } from "@tg/runtime-webgpu/WebGpuInfo"
import { Context, Effect, Layer } from "effect"

/** A device that was measured now. */
export interface MeasuredGpu extends Measured {
  readonly device: string
  /** Whether it is used from now on. */
  readonly isKept: boolean
}

/** The GPU, without what is known of it, measured. */
const measureBare = Effect.fnUntraced(function*(restrictions: Restrictions) {
  const [node, { DeviceMeasure }] = yield* Effect.promise(() =>
    Promise.all([import("@tg/runtime-webgpu/Node"), import("@tg/runtime-webgpu/DeviceMeasure")])
  )
  const maxBufferBytes = restrictions.limits["maxBufferSize"]
  const device = Limited.within(restrictions)(node.layer({ allowSoftware: true, maxBufferBytes }))
  const services = yield* Layer.build(Layer.provideMerge(DeviceMeasure.layer, device))
  const measured = yield* Context.get(services, DeviceMeasure).measure()
  return { ...measured, device: Context.get(services, Device).profile.name }
}, Effect.scoped)

/**
 * Measures the GPU, and keeps what was found. With lower limits than it has, it is another device, of which nothing is
 * kept.
 */
export const measure = Effect.fn("DeviceReport.measure")(
  function*(restrictions: Restrictions, facts: Facts, keeping: DeviceProfiles.Keeping | undefined) {
    const measured = yield* measureBare(restrictions)
    const isWhole = restrictions.subgroups && Object.keys(restrictions.limits).length === 0
    const isKept = isWhole && keeping !== undefined
    if (isKept) yield* DeviceProfiles.keep(keeping, facts.adapter, measured)
    const report: MeasuredGpu = {
      ...measured,
      profile: ProfileFile.profileOf(ProfileFile.ofProfile(measured.profile)),
      isKept
    }
    return report
  }
)

const words = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`

const litmusLine = ({ gaveUp, stale, values, workgroups }: Litmus): string =>
  `  barrier across ${words(workgroups, "workgroup")}: ${
    gaveUp ? "not all of them ran at once; it was given up" : `${values.toPrecision(2)} values read, ${stale} stale`
  }`

const barrierLine = ({ gridBarrierHolds, gridBarrierWorkgroups }: DeviceProfile): string =>
  gridBarrierHolds === undefined
    ? "  barriers across the grid were never tried: kernels are launched one by one"
    : gridBarrierHolds
    ? `  barriers across the grid hold, for up to ${gridBarrierWorkgroups} workgroups`
    : "  barriers across the grid do not hold: kernels are launched one by one"

const findingLine = ({ problem, quantity, value }: Finding): string =>
  `  ${quantity} ${value ?? `unknown, a usual value is taken: ${problem}`}`

/** What was measured now, for people. */
export const measuredLines = (
  { device, findings, isKept, litmus, profile, seconds }: MeasuredGpu
): ReadonlyArray<string> => [
  `measured on ${device}, in ${seconds.toFixed(1)} s${isKept ? "; kept, and used from now on" : ""}:`,
  ...findings.map(findingLine),
  ...litmus.map(litmusLine),
  barrierLine(profile)
]

/** Where figures of the GPU come from, for people. */
export const keptLines = (facts: Facts, kept: DeviceProfiles.Kept | undefined): ReadonlyArray<string> => {
  if (kept === undefined) {
    return [
      facts.named
        ? "  planned with the figures of its name; doctor --measure takes its own"
        : "  planned with the figures of a small GPU; doctor --measure takes its own"
    ]
  }
  const profile = ProfileFile.profileOf(kept.profile)
  const { complete, litmus, problems, seconds } = kept
  return [
    complete
      ? `  planned with what was measured of it, in ${seconds.toFixed(1)} s:`
      : "  planned with the figures of its name:",
    `    ${figures.flatMap((name) => profile[name] === undefined ? [] : [`${name} ${profile[name]}`]).join(", ")}`,
    ...problems.map(({ problem, quantity }) => `    ${quantity}: ${problem}`),
    ...litmus.map(litmusLine),
    barrierLine(profile)
  ]
}
