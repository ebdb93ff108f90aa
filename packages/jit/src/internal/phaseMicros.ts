/** What a phase of a persistent launch costs that a launch of its own does not, and what it saves. */
import { type DeviceProfile, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import * as PhasesOf from "@tg/core-uop/Phases"

/** Work of a phase, and its grid as a launch of its own. */
export interface Share {
  /** Microseconds of arithmetic or of memory traffic, whichever is longer. */
  readonly busy: number
  /** Microseconds beside them, as a launch of its own: in each wave of workgroups one waits for its loads, and for its threads. */
  readonly waits: number
  readonly workgroups: number
  /** Whether there are more or fewer, as the position says. */
  readonly varies?: boolean
  readonly threads: number
}

/**
 * Microseconds a phase loses against a launch of its own: by lower occupancy, and where workgroups have several of its
 * workgroups to run one after the other, each of which waits for its own loads.
 */
export const slower = (
  profile: DeviceProfile,
  { busy, threads, varies = false, waits, workgroups }: Share,
  launch: Pick<PhasesOf.PersistentArg, "threads" | "workgroups">,
  beside = Math.max(1, Math.floor(launch.threads / threads))
): number => {
  const { saturatingThreads } = profile
  const { processors, residentThreads, residentWorkgroups } = quantitiesOf(profile)
  const wanted = workgroups * threads
  const has = Math.min(wanted, launch.workgroups * beside * threads)
  const turns = workgroups / (launch.workgroups * beside)
  const atOnce = processors * Math.min(residentWorkgroups, Math.max(1, Math.floor(residentThreads / threads)))
  const alone = Math.max(1, workgroups / atOnce)
  return (Math.min(wanted, saturatingThreads) / Math.min(has, saturatingThreads) - 1) * busy +
    Math.max(0, (varies ? turns : Math.ceil(turns)) - alone) * waits / alone
}

/**
 * From one phase to the next: all workgroups meet, and before, where words are not awaited by those who read them, the last ones are exchanged, which takes as long as a load that no
 * cache holds.
 */
export const boundaryMicros = (
  profile: DeviceProfile,
  { awaited }: Pick<PhasesOf.PersistentArg, "awaited">
): number => {
  const { gridBarrierMicros, loadMicros } = quantitiesOf(profile)
  return gridBarrierMicros + (awaited === undefined ? loadMicros : 0)
}

/**
 * What first loads in front of a barrier save of the shorter of the two: nine phases in plain WGSL take 0.2 us less each with 512 and 1024 threads, 0.5 with 256
 * (`bench/phases.mjs`, H200), as the threads of other subgroups hide latencies, too. Five phases of GLM with 1024 threads take 0.3 us less each (H100).
 */
const shareAhead = 0.25

/** Microseconds that first loads and barriers are waited for together. */
export const savedAhead = (profile: DeviceProfile, { ahead }: Pick<PhasesOf.PersistentArg, "ahead">): number => {
  const { gridBarrierMicros, loadMicros } = quantitiesOf(profile)
  return shareAhead * ahead.filter((words) => words > 0).length * Math.min(gridBarrierMicros, loadMicros)
}

/** Microseconds for values that cross phases: small ones are staged in workgroup memory, loads of others miss the processor's cache. */
export const crossings = (
  profile: DeviceProfile,
  phases: ReadonlyArray<PhasesOf.Phase>,
  { coherent, stagedBytes }: { readonly coherent: ReadonlySet<number>; readonly stagedBytes: number }
): number => {
  const { cachedLoadMicros, stageMicros } = quantitiesOf(profile)
  return phases.reduce((sum, { kernel, slots }) => {
    const sizes = PhasesOf.sizes(kernel)
    const read = [...PhasesOf.touched(kernel)].flatMap(([slot, access]) =>
      access === "read" && coherent.has(slots[slot]!) ? [sizes.get(slot) ?? Infinity] : []
    )
    const staged = read.some((bytes) => bytes <= stagedBytes) ? stageMicros : 0
    return sum + staged + read.filter((bytes) => bytes > stagedBytes).length * cachedLoadMicros
  }, 0)
}
