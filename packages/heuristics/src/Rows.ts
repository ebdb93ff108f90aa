/** Matrix-vector products: threads for each row, rows for each thread and for each workgroup. */
import { type DeviceProfile, processorsOf } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { groupReductions, largestGroup, maxGroup, outermost, terms } from "./Groups.ts"
import { fewestOfTokens, halves, type TokenTile } from "./Few.ts"
import { isInt8, tileTokens } from "./Kinds.ts"
import { hasIdleThreads, isFull, nearlyAll } from "./Occupancy.ts"
import { freeOutputs, knownOutputs } from "./Outputs.ts"
import type { Plan } from "./Plan.ts"
import { iterations, largestDivisor, largestPower, largestPowerOfTwo } from "./Sizes.ts"

/** A row that is split over so many threads is split down to the words of its blocks: this many lanes inside of a block. */
const wideRow = 128
const coalescedLanes = 8
/** Most subgroups for one row: every thread adds up their partial results. */
const mostSubgroups = 8
/** Several rows for each thread pay while at least this fraction of the saturating threads remains. */
const keptThreads = 8
/** Workgroups that remain, at least, when several rows go to one. */
const manyWorkgroups = 128

/**
 * The largest divisor of `size` that makes at most `most` threads of `threads`, and whole subgroups where it makes more than one: a part of a subgroup
 * takes the registers of a whole one, of every member of a launch (8 tokens of GLM-4.7-Flash's query through k_b beside the cache's rows on an H100: 13.7 us
 * with workgroups of 48 threads, 8.5 with 32).
 */
const localAmount = (
  size: number,
  { most, subgroup, threads }: Record<"most" | "subgroup" | "threads", number>
): number => {
  const limit = Math.floor(most / threads)
  const amount = largestDivisor(size, limit)
  if (threads * amount <= subgroup || threads * amount % subgroup === 0) return amount
  const whole = Array.from({ length: limit }, (_, i) => limit - i).find((d) =>
    size % d === 0 && threads * d % subgroup === 0
  )
  return whole ?? amount
}

/** Threads over neighbouring outputs, for coalescing: of the last loop, and of others in front of it where these are fewer than `fewest`. */
export const localOutputs = (plan: Plan, most: number, fewest = 1, subgroup = 1): void => {
  let threads = 1
  for (const { id, size } of freeOutputs(plan.kernel).toReversed()) {
    const amount = localAmount(size, { most, subgroup, threads })
    if (!plan.try(Opt.local(id, amount)) || amount < size) return
    threads *= amount
    if (threads >= Math.min(fewest, most)) return
  }
}

/** The same as long as enough workgroups remain. */
const localRows = (plan: Plan, most: number): void =>
  localOutputs(plan, Math.floor(Math.min(most, knownOutputs(plan.kernel) / manyWorkgroups)))

/** The same over several loops, until there are so many rows. */
const localRowsOfLoops = (plan: Plan, most: number): void => {
  let left = most
  for (let last = freeOutputs(plan.kernel).at(-1); left > 1 && last !== undefined;) {
    const before = knownOutputs(plan.kernel)
    localRows(plan, left)
    const taken = before / knownOutputs(plan.kernel)
    left = Math.floor(left / taken)
    const next = freeOutputs(plan.kernel).at(-1)
    last = taken > 1 && next?.id !== last.id ? next : undefined
  }
}

/** Results of a thread, at most: register pressure would lower the occupancy that hides the latency of loads. */
const mostResults = 16

/**
 * Register tiling over rows: loads that do not depend on the row are reused. The first of the amounts that divides, and leaves
 * registers where each row is computed for several tokens.
 */
const upcastRows = (plan: Plan, rows: ReadonlyArray<number>, tokens = 1, most = mostResults): void => {
  const amounts = tokens === 1 ? rows : rows.filter((each) => each * tokens <= most)
  const last = freeOutputs(plan.kernel).at(-1)
  const amount = last === undefined ? undefined : amounts.find((n) => last.size % n === 0)
  if (amount !== undefined) plan.try(Opt.upcast(last!.id, amount))
}

/** Threads: `group` for a row by default, `threads` in a workgroup. */
interface Threads {
  readonly group: number
  readonly threads: number
  /** The register tile of a thread; of one token by default. */
  readonly tile?: TokenTile
}

/** Most threads for a row; without subgroups those of `group`. */
const widestRow = ({ subgroupSize }: DeviceProfile, { group, threads }: Threads): number =>
  Math.max(group, Math.min(2 * threads, mostSubgroups * (subgroupSize ?? 0)))

/**
 * A matrix-vector product: a group of threads for each row, several rows for each group, several groups in a workgroup.
 * Few rows get larger groups, to saturate the device.
 */
export const shareRows = (
  plan: Plan,
  profile: DeviceProfile,
  { group, threads, tile = { tokens: 1 } }: Threads
): void => {
  if (hasIdleThreads(profile)) {
    return (isInt8(plan.kernel) ? shareBytes : shareFloats)(plan, profile, { group, threads, tile })
  }
  const rows = knownOutputs(plan.kernel)
  // rows of bytes are so short that neither more threads for a row nor several rows for a thread pay
  const bytes = isInt8(plan.kernel)
  const wanted = bytes ? group : Math.min(widestRow(profile, { group, threads }), 2 * profile.saturatingThreads / rows)
  const wide = Math.max(group, largestPowerOfTwo(wanted))
  groupReductions(plan, wide, { inside: wide >= wideRow ? coalescedLanes : 1 })
  if (wide === group && !bytes) {
    const kept = [4, 2].filter((each) => rows * group / each >= profile.saturatingThreads / keptThreads)
    upcastRows(plan, kept, tile.tokens)
  }
  localRows(plan, Math.floor((bytes ? threads / 2 : threads) / wide))
}

// The rest was measured on an H200, and is for devices that a subgroup for each row does not saturate (`hasIdleThreads`).

const pair = 2
/** Threads of a workgroup for rows that two subgroups compute. */
const byteThreads = 256

/** Rows of a thread that sums up several experts, at most; a pair for 16 tokens takes 45 us on an H200, single rows 57. */
const mostOfExperts = 4
const rowsOfExperts = [mostOfExperts, pair]

/**
 * Rows of a thread that shares the tokens of a product of bytes with others, and its results at most. An activation is loaded once for all of them: a workgroup reads
 * those of all tokens from the cache, 250 MB for 2048 rows of 5120 and 32 tokens with two rows. On an H200 that takes 34 us, with four rows of 8 tokens 18; of 16 tokens 20,
 * with four rows of 4 tokens 12.
 */
const rowsOfShared = { rows: [4, 2], results: 32 } as const
/** Such rows pay while at least this fraction of the saturating threads remains. */
const keptOfShared = 8

/**
 * Whether a subgroup for each row saturates the device, nearly where all of its threads have terms, and the sums of a row differ in length, as those of the chosen experts and
 * the shared one: on more threads the shorter sum would wait behind the longer one's barrier, and half of them would only repeat it (2048 rows of one token of
 * GLM-4.7-Flash on an H100: 6.1 us, with two subgroups for each row 7.0).
 */
const wantsSubgroup = (kernel: UOp, { saturatingThreads }: DeviceProfile): boolean => {
  const sums = outermost(kernel).filter(isInt8)
  if (new Set(sums.map((sum) => iterations(Loops.loopsOf(sum)))).size <= 1) return false
  const lanes = (sum: UOp): number => Loops.loopsOf(sum).reduce((n, { size }) => n * largestPower(size, maxGroup), 1)
  const enough = sums.every((sum) => lanes(sum) >= maxGroup) ? nearlyAll : 1
  return knownOutputs(kernel) * maxGroup >= enough * saturatingThreads
}

/**
 * Workgroups of eight subgroups for each processor, below which one subgroup is a workgroup: the registers that a second large workgroup would not find room in then go to
 * several small ones. Down of GLM-4.7-Flash on an H100: one token 6.1 us, eight rows together 6.5; two tokens, each thread a pair of rows, 9.6 and 11.8. Four rows for each
 * thread were not measured.
 */
const fewOfProcessor = 2

/** Whether the innermost loop of a sum goes over two blocks, those whose scales share a word: its threads read neighbouring vectors of an activation. */
const sharesWords = (kernel: UOp): boolean =>
  outermost(kernel).filter(isInt8).some((sum) =>
    Loops.loopsOf(sum).filter((l) => l.axis === "REDUCE").at(-1)?.size === pair
  )

/**
 * Rows of a thread where there are very many: of one token, and of several, whose activations are loaded once for them. 154880 rows of 2048 take an H100 146 us with 8 tokens
 * and four rows, 255 with two, and 96 and 133 with 4 tokens.
 */
const rowsOfMany = { one: [pair], several: [4, pair] }

/**
 * Products of bytes: two subgroups for a row, which pay beside other rows in a workgroup (2048 rows of 2048: 3.6 us, with
 * one subgroup 4.2). A row that cannot be split so gets a workgroup of one subgroup. Very many rows in pairs for each thread.
 */
const shareBytes = (
  plan: Plan,
  profile: DeviceProfile,
  { group, tile: { rows, tokens } }: Required<Threads>
): void => {
  if (rows !== undefined) {
    groupReductions(plan, group, { inside: halves, leastPower: fewestOfTokens })
    upcastRows(plan, [rows], tokens)
    return localRows(plan, Math.floor(byteThreads / largestGroup(plan.kernel)))
  }
  const full = isFull(knownOutputs(plan.kernel), profile)
  if (wantsSubgroup(plan.kernel, profile)) {
    const threadsWith = (each: number): number => knownOutputs(plan.kernel) * group / each
    const enough = rowsOfExperts.filter((each) => threadsWith(each) >= nearlyAll * profile.saturatingThreads)
    upcastRows(plan, full ? [pair] : enough, tokens)
    groupReductions(plan, group, { inside: sharesWords(plan.kernel) ? pair : 1 })
    const reached = largestGroup(plan.kernel)
    const areFew = knownOutputs(plan.kernel) * group / byteThreads < fewOfProcessor * processorsOf(profile)
    return areFew && reached === group && enough[0] !== mostOfExperts
      ? undefined
      : localRows(plan, Math.floor(byteThreads / group))
  }
  if (full) {
    groupReductions(plan, group)
    return upcastRows(plan, tokens > 1 ? rowsOfMany.several : rowsOfMany.one, tokens, rowsOfShared.results)
  }
  const isShared = Loops.threads(plan.kernel) > 1
  groupReductions(plan, isShared ? group : 2 * group, tokens > 1 ? { leastPower: fewestOfTokens } : {})
  const reached = largestGroup(plan.kernel)
  const threads = knownOutputs(plan.kernel) * Loops.threads(plan.kernel)
  if (isShared) {
    const enough = rowsOfShared.rows.filter((each) => threads / each >= profile.saturatingThreads / keptOfShared)
    const sums = outermost(plan.kernel).length
    upcastRows(plan, enough, tokens * sums, sums > 1 ? mostResults : rowsOfShared.results)
  }
  localRows(plan, Math.floor((reached > group ? byteThreads : group) / reached))
}

/** Rows for each processor that count as many; terms of a long row. */
const manyRows = 4
const longRow = 2048
/** Terms of a row for each thread: with fewer rows than processors, with some, and with many. */
const termsOfFew = 8
const termsOfSome = 16
const termsOfMany = 24
/** Several rows of floats for each thread pay while at least this fraction of the saturating threads remains. */
const keptOfLarge = 4

/** Threads for each row of floats. */
const threadsOfRow = (rows: number, terms: number, profile: DeviceProfile): number => {
  const perRow = profile.saturatingThreads / rows
  if (isFull(rows, profile)) return maxGroup
  if (rows >= manyRows * processorsOf(profile)) {
    return terms >= longRow ? wideRow : Math.max(terms / termsOfMany, Math.min(maxGroup, perRow))
  }
  // a launch has the threads of its largest member, and idle ones take registers: norms of 512 beside the query's second half of 2 tokens take an H100 4.0 us, with two
  // subgroups for each 4.7
  if (terms <= termsOfSome * maxGroup) return maxGroup
  return Math.min(2 * perRow, Math.max(maxGroup, terms / (rows < processorsOf(profile) ? termsOfFew : termsOfSome)))
}

/**
 * A tile of tokens loads several activations for each weight, so neighbouring threads read neighbouring ones (value projection of 16 tokens on an H200: 16 us, with a block of the
 * row for each thread 46; of 8 on an H100 7.2 and 9.9). The largest takes all registers for one row; with fewer tokens a thread takes several.
 */
const fullTile = tileTokens.manyRegisters
const resultsBelow = 32
/** Such rows pay while at least this fraction of the saturating threads remains (8 tokens, four rows: 10.4 us, two: 15). */
const keptOfTile = 16

/** Opts of float products with a tile of several tokens in each thread. */
const shareTile = (
  plan: Plan,
  profile: DeviceProfile,
  { rows, tokens, wide }: Record<"rows" | "tokens" | "wide", number>
): void => {
  groupReductions(plan, wide, { inside: coalescedLanes })
  const kept = [4, 2].filter((each) => rows * wide / each >= profile.saturatingThreads / keptOfTile)
  upcastRows(plan, kept, tokens, tokens < fullTile ? resultsBelow : mostResults)
}

/**
 * Products of floats, which take instructions to unpack: long rows are split over many threads, with several rows for each
 * (3072 rows of 2048: 7 us, with 64 threads for each row alone 20), short ones over few.
 */
const shareFloats = (plan: Plan, profile: DeviceProfile, { group, threads, tile }: Required<Threads>): void => {
  const { others = 1, tokens } = tile
  const rows = knownOutputs(plan.kernel) / others
  const length = terms(plan.kernel)
  const most = widestRow(profile, { group, threads })
  const wide = largestPowerOfTwo(Math.min(most, threadsOfRow(rows, length, profile)))
  const isTile = tokens > 1
  if (isTile) shareTile(plan, profile, { rows, tokens, wide })
  else {
    groupReductions(plan, wide, { inside: wide > wideRow ? coalescedLanes : 1 })
    upcastRows(
      plan,
      (length < longRow ? [2] : [4, 2]).filter((each) => rows * wide / each >= profile.saturatingThreads / keptOfLarge)
    )
  }
  const reached = largestGroup(plan.kernel)
  const own = largestGroup(plan.kernel.src.at(-1)!)
  // what a workgroup stages serves as many results as it has threads for, of all loops
  if (own < reached) return localRowsOfLoops(plan, Math.floor(threads / own))
  const rowsOf = isTile ? localRowsOfLoops : localRows
  rowsOf(plan, Math.floor((reached < group ? group : threads) / reached))
  // a part of a subgroup takes the registers of a whole one
  if (!isTile) localRowsOfLoops(plan, Math.floor(group / Loops.threads(plan.kernel)))
}
