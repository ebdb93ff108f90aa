/** From timings to quantities. Pure: what was measured goes in, what it says about the device comes out. */
import type { DeviceProfile, GridBarrier, Quantities } from "@tg/core-uop/DeviceProfile"

/** How long something of a size took. */
export interface Sample {
  readonly size: number
  readonly micros: number
}

/** Readings of one time: so many at first, and where the least of them stands alone so many at most. */
export const readings = { first: 3, most: 5 } as const
/** Readings that differ by no more than this factor confirm each other. */
const agreeing = 1.1

/**
 * What the readings of one time say, or `undefined` where another one is needed: the least, if a second one confirms it; of as many as are taken at most, the
 * second least otherwise. What else happens on a machine only makes it slower, so the others may be as long as they like; a clock that wraps and a run that was
 * left out do not give nearly the same twice, so no single one is believed.
 */
export const confirmed = (micros: ReadonlyArray<number>): number | undefined => {
  const [least, second] = micros.toSorted((a, b) => a - b)
  if (least === undefined || second === undefined) return undefined
  if (second <= agreeing * least) return least
  return micros.length < readings.most ? undefined : second
}

/** What one more unit of size takes; `undefined` where more of it took no longer. */
export const perUnit = (few: Sample, many: Sample): number | undefined => {
  const micros = (many.micros - few.micros) / (many.size - few.size)
  return micros > 0 ? micros : undefined
}

/** A step is where the time is so many times that of the smallest size: workgroups that have to wait for others double it. */
const step = 1.5

/** What to try next to find the largest size that takes hardly longer than the smallest, or that size. */
export type Search = { readonly next: number } | { readonly found: number | undefined }

/** Continues a search for a step, by doubling and then halving the distance. None is found up to `most`: nothing is known. */
export const search = (samples: readonly [Sample, ...ReadonlyArray<Sample>], most: number): Search => {
  const sorted = samples.toSorted((a, b) => a.size - b.size)
  const base = sorted[0]!
  const fits = sorted.filter(({ micros }) => micros <= step * base.micros)
  const last = fits.at(-1)!.size
  const beyond = sorted.find(({ size }) => size > last)?.size
  if (beyond === undefined) return last >= most ? { found: undefined } : { next: Math.min(most, 2 * last) }
  return beyond - last <= 1 ? { found: last } : { next: Math.floor((last + beyond) / 2) }
}

/** Below this a window may be held by caches of single processors. */
const leastShared = 2 ** 20
/** Memory that is not slower than this, compared with a cache, shows none. */
const visible = 1.3

/**
 * A load takes so much longer while kernels keep memory busy than it takes alone, as it is measured. On an H100 a load alone takes 0.48 us; with 0.8, which first
 * loads of kernels take, GLM-4.7-Flash's steps of 1 to 16 tokens are compiled to take 0.5 to 4.5% less (`docs/devices.md`).
 */
const underLoad = 1.7

/** What latencies of loads around windows of growing sizes say. */
export interface Latencies {
  /** Of memory as busy as kernels keep it, where memory is seen. */
  readonly loadMicros: number
  readonly cachedLoadMicros: number | undefined
  readonly cacheBytes: number | undefined
}

/** Latency of memory, of the largest window; of the shared cache, and how large it is, where the curve has such a step. */
export const latencies = (curve: readonly [Sample, ...ReadonlyArray<Sample>]): Latencies => {
  const sorted = curve.toSorted((a, b) => a.size - b.size)
  const memory = sorted.at(-1)!.micros
  const shared = sorted.filter(({ size }) => size >= leastShared)
  const cached = Math.min(...shared.map(({ micros }) => micros))
  if (shared.length < 2 || memory < visible * cached) {
    return { loadMicros: memory, cachedLoadMicros: undefined, cacheBytes: undefined }
  }
  const between = Math.sqrt(cached * memory)
  const beyond = shared.findIndex(({ micros }) => micros > between)
  const cacheBytes = shared[beyond - 1]?.size ?? shared[0]!.size
  return { loadMicros: underLoad * memory, cachedLoadMicros: cached, cacheBytes }
}

/** Memory is as good as busy at this part of its speed: what is behind it costs many threads for little. */
const busy = 0.75

/** The fewest threads with which memory is busy. */
export const saturation = (
  curve: ReadonlyArray<{ readonly threads: number; readonly bytesPerMicro: number }>
): number | undefined => {
  const best = Math.max(...curve.map(({ bytesPerMicro }) => bytesPerMicro))
  return curve.toSorted((a, b) => a.threads - b.threads).find(({ bytesPerMicro }) => bytesPerMicro >= busy * best)
    ?.threads
}

/** What the litmus program of the barrier across the grid gave for one number of workgroups. */
export interface Litmus {
  readonly workgroups: number
  /** Values that threads read behind a barrier, and how many of them were old. */
  readonly values: number
  readonly stale: number
  /** Whether a wait was given up, since not all workgroups ran at once. */
  readonly gaveUp: boolean
}

/** The most workgroups for which barriers hold, as long as they hold for all smaller numbers; none if they never do. */
export const gridBarrier = (tried: ReadonlyArray<Litmus>): GridBarrier => {
  const sorted = tried.toSorted((a, b) => a.workgroups - b.workgroups)
  const failed = sorted.findIndex(({ gaveUp, stale }) => gaveUp || stale > 0)
  const holds = (failed < 0 ? sorted : sorted.slice(0, failed)).at(-1)
  // a stale value is no matter of how many there are
  if (holds === undefined || sorted.some(({ stale }) => stale > 0)) return { gridBarrierHolds: false }
  return { gridBarrierHolds: true, gridBarrierWorkgroups: holds.workgroups }
}

/** What can be measured of a device. */
export type Measurable = keyof Quantities | "saturatingThreads" | "dispatchMicros" | "bytesPerMicro"

/** Values between which there are devices, so that what is outside of them is an error of the measurement. */
export const plausible: { readonly [M in Measurable]: readonly [least: number, most: number] } = {
  saturatingThreads: [16, 2 ** 22],
  dispatchMicros: [0.05, 2000],
  bytesPerMicro: [500, 2e7],
  processors: [1, 4096],
  residentThreads: [16, 8192],
  residentWorkgroups: [1, 256],
  residentBytes: [1024, 2 ** 21],
  registerBytes: [1024, 2 ** 21],
  ownCacheBytes: [1024, 2 ** 22],
  cacheBytes: [2 ** 17, 2 ** 31],
  cachedPerByte: [1, 64],
  operationsPerByte: [0.05, 1000],
  loadMicros: [0.005, 20],
  cachedLoadMicros: [0.002, 20],
  stageMicros: [0.01, 2000],
  barrierMicros: [0.0005, 2000],
  subgroupReduceMicros: [0.0002, 100],
  encodeMicros: [0.05, 500],
  gridBarrierMicros: [0.05, 20_000]
}

/** One quantity: what it was found to be, or why it was not. */
export interface Finding {
  readonly quantity: Measurable
  readonly value?: number
  readonly problem?: string
}

/** Digits that are worth keeping: a second run gives hardly more than two of them again. What is counted is exact. */
const digits = 3
const rounded = (value: number): number => Number.isInteger(value) ? value : Number(value.toPrecision(digits))

/** A measured value, if there can be one such. */
export const finding = (
  quantity: Measurable,
  value: number | undefined,
  why = "no difference was to be seen"
): Finding => {
  if (value === undefined || !Number.isFinite(value)) return { quantity, problem: why }
  const [least, most] = plausible[quantity]
  return value >= least && value <= most
    ? { quantity, value: rounded(value) }
    : {
      quantity,
      problem: `${rounded(value)} was measured, which no device has (${least} to ${most})`
    }
}

/** The profile with what was found. What was not stays as it was. */
export const withFindings = (
  profile: DeviceProfile,
  findings: ReadonlyArray<Finding>,
  barrier: GridBarrier
): DeviceProfile => ({
  ...profile,
  ...Object.fromEntries(findings.flatMap(({ quantity, value }) => value === undefined ? [] : [[quantity, value]])),
  ...barrier
})
