/** Where the time of a program goes, kernel by kernel: what the profiler measured, with names, places and bytes. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Schedule, Step } from "@tg/rangeify/Schedule"
import * as Estimate from "./Estimate.ts"
import * as KernelNames from "./KernelNames.ts"
import type * as Profiler from "./Profiler.ts"

/** All launches of one kernel. */
export interface KernelRow {
  readonly name: string
  /** The parts of the model that launch it, as the model's labels say. */
  readonly sites: string
  readonly calls: number
  /** Of one call. */
  readonly us: number
  readonly usPerToken: number
  /** Read and written by one call, each byte once. */
  readonly bytes: number
  readonly gbPerSecond: number
  /** Part of the time of all kernels. */
  readonly share: number
  /** Part of the bandwidth that the device's profile names. */
  readonly roof: number
}

/** The kernels of a profile, the one that takes the most time first. */
export const rowsOf = (
  { kernels }: Profiler.Profile,
  schedule: Schedule,
  { profile, vars }: { readonly profile: DeviceProfile; readonly vars: Profiler.Vars }
): ReadonlyArray<KernelRow> => {
  const { steps } = schedule
  const names = new Map(
    [...KernelNames.nameApart(steps.filter((step) => step.kind === "kernel"))].map(([name, { ast }]) => [ast, name])
  )
  const nameOf = (step: Step): string => step.kind === "kernel" ? names.get(step.ast)! : step.name
  const total = kernels.reduce((sum, { launches, micros }) => sum + launches.length * micros, 0)
  return kernels.map(({ launches, micros }): KernelRow => {
    const bytes = launches.reduce((sum, i) => sum + Estimate.bytesOf(steps[i]!, vars), 0) / launches.length
    const rate = micros === 0 ? 0 : bytes / micros
    return {
      name: nameOf(steps[launches[0]!]!),
      sites: sitesOf(launches.map((i) => steps[i]!.site)),
      calls: launches.length,
      us: micros,
      usPerToken: launches.length * micros,
      bytes: Math.round(bytes),
      gbPerSecond: rate / 1000,
      share: total === 0 ? 0 : launches.length * micros / total,
      roof: rate / profile.bytesPerMicro
    }
  }).sort((a, b) => b.usPerToken - a.usPerToken)
}

/** `blk.1 .. blk.46`: the first and the last of the places, in their order. */
export const sitesOf = (sites: ReadonlyArray<string | undefined>): string => {
  const named = [...new Set(sites.filter((site) => site !== undefined))]
  return named.length < 3 ? named.join(", ") : `${named[0]} .. ${named.at(-1)}`
}
