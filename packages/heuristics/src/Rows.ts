/** Matrix-vector products: threads for the sum of a row, and rows for a thread and for a workgroup. */
import { type DeviceProfile, processorsOf } from "@tg/core-uop/DeviceProfile"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { groupReductions, maxGroup, terms } from "./Groups.ts"
import { hasIdleThreads, isInt8 } from "./Kinds.ts"
import type { Plan } from "./Plan.ts"
import { iterations, largestDivisor, largestPowerOfTwo } from "./Sizes.ts"
import { loadsOf } from "./Vectors.ts"

/** From so many threads on, a row is shared down to the words of its blocks: this many lanes inside of a block. */
const wideRow = 128
const coalescedLanes = 8
/** Subgroups that share one row: every thread adds up their partial results. */
const mostSubgroups = 8
/** Several rows per thread still pay with this fraction of the threads that saturate the device. */
const keptThreads = 8
/** Workgroups that remain at least when several rows go to one. */
const manyWorkgroups = 128

/** Outputs that nothing is chosen for yet; a loop of unknown length is left to workgroups. */
export const freeOutputs = (kernel: UOp): ReadonlyArray<Loops.Loop> =>
  Loops.outputs(kernel).filter((l) => l.axis === "GLOBAL" && !l.isSymbolic)

/** Workgroups there would be: a symbolic number of rows may be one. */
export const knownOutputs = (kernel: UOp): number => iterations(freeOutputs(kernel))

/** Threads over neighbouring outputs. */
export const localOutputs = (plan: Plan, most: number): void => {
  const last = freeOutputs(plan.kernel).at(-1)
  if (last !== undefined) plan.try(Opt.local(last.id, largestDivisor(last.size, most)))
}

/** The same as long as enough workgroups remain. */
const localRows = (plan: Plan, most: number): void =>
  localOutputs(plan, Math.floor(Math.min(most, knownOutputs(plan.kernel) / manyWorkgroups)))

/** Results of a thread, so that there are registers for as many threads as wait for loads. */
const mostResults = 16

/**
 * Rows per thread: what does not depend on the row is then read once for several. The first of the amounts that divides, and leaves
 * registers where each row is computed for several tokens.
 */
const upcastRows = (plan: Plan, rows: ReadonlyArray<number>, tokens = 1): void => {
  const amounts = tokens === 1 ? rows : rows.filter((each) => each * tokens <= mostResults)
  const last = freeOutputs(plan.kernel).at(-1)
  const amount = last === undefined ? undefined : amounts.find((n) => last.size % n === 0)
  if (amount !== undefined) plan.try(Opt.upcast(last!.id, amount))
}

/** Threads: `group` share a row where nothing speaks for more, `threads` are in a workgroup. */
interface Threads {
  readonly group: number
  readonly threads: number
  /** Tokens that each thread computes a row for; one if it is not said. */
  readonly tokens?: number
}

/** Threads that a row may have: without subgroups none more than usual. */
const widestRow = ({ subgroupSize }: DeviceProfile, { group, threads }: Threads): number =>
  Math.max(group, Math.min(2 * threads, mostSubgroups * (subgroupSize ?? 0)))

/**
 * A matrix-vector product: a group of threads for each row, several rows for each group, several groups in a workgroup.
 * Few rows get larger groups, so that the device is full.
 */
export const shareRows = (plan: Plan, profile: DeviceProfile, { group, threads, tokens }: Threads): void => {
  if (hasIdleThreads(profile)) {
    return (isInt8(plan.kernel) ? shareBytes : shareFloats)(plan, profile, { group, threads, tokens: tokens ?? 1 })
  }
  const rows = knownOutputs(plan.kernel)
  // products of bytes read so little for a row that sharing it further, or rows among threads, does not pay
  const bytes = isInt8(plan.kernel)
  const wanted = bytes ? group : Math.min(widestRow(profile, { group, threads }), 2 * profile.saturatingThreads / rows)
  const wide = Math.max(group, largestPowerOfTwo(wanted))
  groupReductions(plan, wide, { inside: wide >= wideRow ? coalescedLanes : 1 })
  if (wide === group && !bytes) {
    upcastRows(plan, [4, 2].filter((each) => rows * group / each >= profile.saturatingThreads / keptThreads), tokens)
  }
  localRows(plan, Math.floor((bytes ? threads / 2 : threads) / wide))
}

// What follows was measured on an H200, and is for devices that a subgroup for each row leaves threads of idle.

/** Threads, times those that saturate the device, from which on rows are enough to fill it in any case. */
const fullTimes = 8
const isFull = (rows: number, { saturatingThreads }: DeviceProfile): boolean =>
  rows * maxGroup >= fullTimes * saturatingThreads

const pair = 2
/** Threads of a workgroup for rows that two subgroups share. */
const byteThreads = 256

/**
 * Products of bytes: two subgroups for a row, which pay beside other rows in a workgroup (2048 rows of 2048: 3.6 us, with
 * one subgroup 4.2); one that no other can help stays alone. Very many rows in pairs for each thread.
 */
const shareBytes = (plan: Plan, profile: DeviceProfile, { group, tokens }: Threads): void => {
  if (isFull(knownOutputs(plan.kernel), profile)) {
    groupReductions(plan, group)
    return upcastRows(plan, [pair], tokens)
  }
  groupReductions(plan, 2 * group)
  const reached = Math.max(...Loops.reductions(plan.kernel).map(Loops.groupOf))
  localRows(plan, Math.floor((reached > group ? byteThreads : group) / reached))
}

/** Rows for each processor that are many; terms of a long one. */
const manyRows = 4
const longRow = 2048
/** Terms of a thread's part of a row, where rows are fewer than processors, fewer than many, and many. */
const termsOfFew = 8
const termsOfSome = 16
const termsOfMany = 24
/** Several rows per thread pay with this fraction of the threads that saturate the device. */
const keptOfLarge = 4

/** Threads for each row of floats. */
const threadsOfRow = (rows: number, terms: number, profile: DeviceProfile): number => {
  const perRow = profile.saturatingThreads / rows
  if (isFull(rows, profile)) return maxGroup
  if (rows >= manyRows * processorsOf(profile)) {
    return terms >= longRow ? wideRow : Math.max(terms / termsOfMany, Math.min(maxGroup, perRow))
  }
  return Math.min(2 * perRow, Math.max(maxGroup, terms / (rows < processorsOf(profile) ? termsOfFew : termsOfSome)))
}

/**
 * Products of floats, which take instructions to unpack: long rows are shared by many threads with several rows each
 * (3072 rows of 2048: 7 us, with 64 threads for each row alone 20), short ones by few.
 */
const shareFloats = (plan: Plan, profile: DeviceProfile, { group, threads, tokens }: Threads): void => {
  const rows = knownOutputs(plan.kernel)
  const length = terms(plan.kernel)
  const most = widestRow(profile, { group, threads })
  const wide = largestPowerOfTwo(Math.min(most, threadsOfRow(rows, length, profile)))
  groupReductions(plan, wide, { inside: wide > wideRow ? coalescedLanes : 1 })
  upcastRows(
    plan,
    (length < longRow ? [2] : [4, 2]).filter((each) => rows * wide / each >= profile.saturatingThreads / keptOfLarge),
    tokens
  )
  const reached = Math.max(...Loops.reductions(plan.kernel).map(Loops.groupOf))
  localRows(plan, Math.floor((reached < group ? group : threads) / reached))
}

/** Outputs that one thread computes of the same values, and how many others there are at least. */
const mostAlike = 16
const othersAlike = 16

/**
 * Outputs of which one thread computes all, if many others remain: no load depends on which of them it is, so other threads
 * would load the same again.
 */
export const upcastAlike = (plan: Plan): void => {
  const loads = loadsOf(plan.kernel).map((load) => openRanges(load.src[0]!))
  for (const loop of freeOutputs(plan.kernel)) {
    const isAlike = loads.length > 0 && loads.every((open) => !open.has(loop.node))
    if (isAlike && loop.size <= mostAlike && knownOutputs(plan.kernel) >= loop.size * othersAlike) {
      plan.try(Opt.upcast(loop.id, loop.size))
    }
  }
}
