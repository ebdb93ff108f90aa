/** A profile as a table of kernels: times, names, call sites and memory traffic. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Schedule, Step } from "@tg/rangeify/Schedule"
import { bytesOf } from "./StepTraffic.ts"
import * as KernelNames from "./KernelNames.ts"
import type * as Profiler from "./Profiler.ts"

/** All launches of one kernel. */
export interface KernelRow {
  readonly name: string
  /** Labels of the model's parts that launch it. */
  readonly sites: string
  readonly calls: number
  /** Of one call. */
  readonly us: number
  readonly usPerToken: number
  /** Memory traffic of one call, each byte counted once. */
  readonly bytes: number
  readonly gbPerSecond: number
  /** Fraction of the time of all kernels. */
  readonly share: number
  /** Fraction of the bandwidth in the device's profile, `bytesPerMicro`. */
  readonly roof: number
}

/** The kernels of a profile, by descending total time. */
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
    const bytes = launches.reduce((sum, i) => sum + bytesOf(steps[i]!, vars), 0) / launches.length
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
