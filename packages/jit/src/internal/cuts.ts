/** Where the steps of a schedule are cut into launches, by what each launch would cost. */
import type { PersistentArg } from "@tg/core-uop/Phases"
import type { Phased } from "@tg/rangeify/Explain"
import type { Group } from "@tg/rangeify/Persist"
import type { Step } from "@tg/rangeify/Schedule"
import { type Code, missedMicros } from "./instructionCache.ts"

/** The cost of steps as one launch, or why they cannot be one. */
export type Weighed =
  | { readonly micros: number; readonly launch: PersistentArg | undefined }
  | { readonly why: string }

/** Weighs the steps from one on, up to another one. */
export type Weigh = (from: number, to: number) => Weighed

/** First steps of the launches of a run of steps. */
export type Cutter = (from: number, to: number, weigh: Weigh) => ReadonlyArray<number>

/** Steps from one on, up to another one, and where the first such run begins that is equal to it: what is between the attention of two layers is. */
export interface Run {
  readonly from: number
  readonly to: number
  readonly first: number
}

/** The launches of each run, what they take the device, and how many the host encodes. */
export interface Plan {
  /** Whether launches that differ in few steps are variants of one program. */
  readonly merges: boolean
  readonly cuts: ReadonlyArray<ReadonlyArray<number>>
  readonly micros: number
  readonly launches: number
}

const mostPhases = 16

const stepsFrom = (from: number, to: number): ReadonlyArray<number> =>
  Array.from({ length: to - from }, (_, i) => from + i)

/** Infinite where they cannot be one launch. */
const microsOf = (made: Weighed): number => "micros" in made ? made.micros : Infinity

/** First steps of the launches of least total cost, by dynamic programming over the last cut. */
const cutsOf = (from: number, to: number, costOf: (from: number, to: number) => number): ReadonlyArray<number> => {
  const best = [{ cost: 0, cuts: [] as ReadonlyArray<number> }]
  for (let end = from + 1; end <= to; end++) {
    let least = { cost: Infinity, cuts: [] as ReadonlyArray<number> }
    for (let begin = Math.max(from, end - mostPhases); begin < end; begin++) {
      const before = best[begin - from]!
      const cost = before.cost + costOf(begin, end)
      if (cost < least.cost) least = { cost, cuts: [...before.cuts, begin] }
    }
    best.push(least)
  }
  return best.at(-1)!.cuts
}

/** The launches of least total cost, each with so much for encoding it. */
export const cheapest = (encoding: number): Cutter => (from, to, weigh) =>
  cutsOf(from, to, (a, b) => microsOf(weigh(a, b)) + encoding)

/** As few launches as possible, regardless of cost. */
export const fewest: Cutter = (from, to, weigh) => cutsOf(from, to, (a, b) => "micros" in weigh(a, b) ? 1 : Infinity)

/** A launch a step. */
export const single: Cutter = stepsFrom

/** Maximal runs of steps of which neighbours can be one launch, whatever it costs. Equal texts, equal runs. */
export const runsOf = (
  steps: ReadonlyArray<Step>,
  textOf: (from: number, to: number) => string,
  weigh: Weigh
): ReadonlyArray<Run> => {
  const found: Array<[number, number]> = []
  const known = new Map<string, boolean>()
  const isOne = (from: number, to: number): boolean => {
    const text = textOf(from, to)
    const made = known.get(text) ?? "micros" in weigh(from, to)
    known.set(text, made)
    return made
  }
  steps.forEach((_, i) => {
    if (i > 0 && isOne(i - 1, i + 1)) found.at(-1)![1] = i + 1
    else found.push([i, i + 1])
  })
  const firsts = new Map<string, number>()
  return found.map(([from, to]) => {
    const text = textOf(from, to)
    const first = firsts.get(text) ?? from
    firsts.set(text, first)
    return { from, to, first }
  })
}

/** Weighs steps of a run as those of the first one that is equal to it. */
const weighIn = (weigh: Weigh, { first, from }: Run): Weigh => (a, b) => weigh(a - from + first, b - from + first)

/** The plans that cutters make, equal ones once; each with programs of its own for all launches, and, where that is faster, with those merged that differ in few steps. */
export const plans = (
  runs: ReadonlyArray<Run>,
  weigh: Weigh,
  { code, cutters }: { readonly cutters: ReadonlyArray<Cutter>; readonly code: Code }
): ReadonlyArray<Plan> => {
  const made = cutters.map((cutter) => cutsBy(cutter, runs, weigh))
  return [...new Map(made.map((cuts) => [cuts.join(";"), cuts])).values()].flatMap((cuts) => {
    let micros = 0
    const launches: Array<ReadonlyArray<number>> = []
    for (const [r, run] of runs.entries()) {
      const own = weighIn(weigh, run)
      for (const [i, begin] of cuts[r]!.entries()) {
        const end = cuts[r]![i + 1] ?? run.to
        micros += microsOf(own(begin, end))
        launches.push(stepsFrom(begin, end))
      }
    }
    const [apart, merged] = [false, true].map((merges): Plan => ({
      cuts,
      merges,
      micros: micros + missedMicros(launches, code, merges),
      launches: launches.length
    }))
    return merged!.micros < apart!.micros ? [apart!, merged!] : [apart!]
  })
}

/** Where a cutter cuts each run; equal runs alike. */
const cutsBy = (cutter: Cutter, runs: ReadonlyArray<Run>, weigh: Weigh): Plan["cuts"] => {
  const known = new Map<number, ReadonlyArray<number>>()
  return runs.map((run) => {
    const { first, from, to } = run
    const found = known.get(first) ?? cutter(from, to, weighIn(weigh, run))
    known.set(first, found)
    return found.map((cut) => cut - first + from)
  })
}

/** The persistent launches of a plan, and why each step is a phase of one, or not. */
export const groupsOf = (
  runs: ReadonlyArray<Run>,
  weigh: Weigh,
  { cuts }: Plan
): { readonly groups: ReadonlyArray<Group>; readonly phased: ReadonlyMap<number, Phased> } => {
  const groups: Array<Group> = []
  const phased = new Map<number, Phased>()
  for (const [r, run] of runs.entries()) {
    const own = weighIn(weigh, run)
    for (const [i, from] of cuts[r]!.entries()) {
      const to = cuts[r]![i + 1] ?? run.to
      const made = own(from, to)
      if ("micros" in made && made.launch !== undefined) groups.push({ from, to, launch: made.launch })
      explain({ weigh: own, phased }, { before: cuts[r]![i - 1], from, to })
    }
  }
  return { groups, phased }
}

/** Records why steps are phases of one launch, or why the first is not a phase of the launch before. */
const explain = (
  { phased, weigh }: { readonly weigh: Weigh; readonly phased: Map<number, Phased> },
  { before, from, to }: { readonly before: number | undefined; readonly from: number; readonly to: number }
): void => {
  const made = weigh(from, to)
  if ("micros" in made && made.launch !== undefined) {
    const steps = stepsFrom(from, to)
    const saves = steps.reduce((sum, step) => sum + microsOf(weigh(step, step + 1)), 0) - made.micros
    const why: Phased = { _tag: "Phase", phases: steps.length, workgroups: made.launch.workgroups, saves }
    for (const step of steps) phased.set(step, why)
    return
  }
  if (before === undefined) return
  const joined = weigh(before, to)
  const why: Phased = "why" in joined
    ? { _tag: "Refused", why: joined.why }
    : { _tag: "Costs", micros: joined.micros - microsOf(weigh(before, from)) - microsOf(made) }
  phased.set(from, why)
}
