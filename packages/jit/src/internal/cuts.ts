/** Where the steps of a schedule are cut into launches, by what each launch would cost. */
import type { PersistentArg } from "@tg/core-uop/Phases"
import type { Phased } from "@tg/rangeify/Explain"
import type { Group } from "@tg/rangeify/Persist"
import type { Step } from "@tg/rangeify/Schedule"

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
  readonly cuts: ReadonlyArray<ReadonlyArray<number>>
  readonly micros: number
  readonly launches: number
}

/** Bytes of the instruction cache of an H200's processor. */
const codeCache = 2 ** 17
/**
 * Bytes of machine code for each that `PhaseCosts.codeBytes` counts, as drivers unroll loops; and as a phase, with its loop and its copies. What the driver of an H100 reports:
 * 75 KB counted and 121 made of a layer of GLM-4.7-Flash by kernels, 67 and 133 of those that are phases.
 */
const codePerCounted = 1.6
const codeAsPhase = 1.25
/** Microseconds for each byte of code that is not in the instruction cache: 3 for 36 KB on an H200 (`docs/decode-h200.md`). */
const codeMicros = 3 / 36_000
const mostPhases = 16

/** Bytes of machine code of a launch of so many steps, of which so many bytes are counted. */
const machineCode = (counted: number, steps: number): number => counted * codePerCounted * (steps > 1 ? codeAsPhase : 1)

/**
 * Bytes of code that are fetched again each time, where so many run in turns: what the cache does not hold. Three launches of a layer of GLM-4.7-Flash, 176 KB as counted here, take 0.5 to
 * 6 us more in turns than among their like on an H100, from one process to the next, mostly 1 to 2.
 */
const missed = (code: number): number => Math.max(0, code - codeCache)

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

/** Whether no launch goes on from the step in front of this one. */
export type Apart = (step: number) => boolean

/** The launches of least total cost, each with so much for encoding it, of those that do not cross what is apart. */
export const cheapest = (encoding: number, isApart: Apart): Cutter => (from, to, weigh) =>
  cutsOf(
    from,
    to,
    (a, b) => stepsFrom(a + 1, b).some(isApart) ? Infinity : microsOf(weigh(a, b)) + encoding
  )

/** How many times as often a kernel runs that is apart from another one. */
const oftener = 1.5

/**
 * What to keep apart: nothing, or kernels that some layers have and others have not, from those in front of them, behind them or both. A launch with such a kernel is a program of its own
 * for each kind of layers, with all of its code, so layers of several kinds in turns have more than the instruction cache holds; what lies apart is one program for all of them.
 */
export const aparts = (usesOf: (step: number) => number): ReadonlyArray<Apart> => {
  const begins = (step: number): boolean => oftener * usesOf(step) < usesOf(step - 1)
  const ends = (step: number): boolean => oftener * usesOf(step - 1) < usesOf(step)
  return [() => false, begins, ends, (step) => begins(step) || ends(step)]
}

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

/** The program of each step's kernel: the bytes of its code, and its number. */
export interface Code {
  readonly bytesOf: (step: number) => number
  readonly kernelOf: (step: number) => number
}

/** The plans that cutters make, equal ones once. */
export const plans = (
  runs: ReadonlyArray<Run>,
  weigh: Weigh,
  { code, cutters }: { readonly cutters: ReadonlyArray<Cutter>; readonly code: Code }
): ReadonlyArray<Plan> => {
  const made = cutters.map((cutter) => cutsBy(cutter, runs, weigh))
  return [...new Map(made.map((cuts) => [cuts.join(";"), cuts])).values()].map((cuts) => {
    let micros = 0
    const launched: Array<Launched> = []
    for (const [r, run] of runs.entries()) {
      const own = weighIn(weigh, run)
      for (const [i, begin] of cuts[r]!.entries()) {
        const end = cuts[r]![i + 1] ?? run.to
        micros += microsOf(own(begin, end))
        launched.push(launchedOf(code, stepsFrom(begin, end)))
      }
    }
    return { cuts, micros: micros + missedMicros(launched), launches: launched.length }
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

/** The code of a launch. Launches of equal kernels are one program. */
interface Launched {
  readonly program: string
  readonly bytes: number
}

const launchedOf = ({ bytesOf, kernelOf }: Code, steps: ReadonlyArray<number>): Launched => ({
  program: steps.map(kernelOf).join(" "),
  bytes: machineCode(steps.reduce((sum, step) => sum + bytesOf(step), 0), steps.length)
})

/** Microseconds for code that the instruction cache does not hold any more when a program comes again: its share of what is too much from one such launch to the next. */
const missedMicros = (launched: ReadonlyArray<Launched>): number => {
  const next = new Map<string, number>()
  let micros = 0
  for (let i = launched.length - 1; i >= 0; i--) {
    const { bytes, program } = launched[i]!
    const programs = new Map(launched.slice(i, next.get(program) ?? i + 1).map((own) => [own.program, own.bytes]))
    next.set(program, i)
    const between = [...programs.values()].reduce((a, b) => a + b, 0)
    if (between > 0) micros += codeMicros * missed(between) * bytes / between
  }
  return micros
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
  const more = microsOf(joined) - microsOf(weigh(before, from)) - microsOf(made)
  const why: Phased = "why" in joined
    ? { _tag: "Refused", why: joined.why }
    : more < 0
    ? {
      _tag: "Refused",
      why: "the code of the step is more than the instruction cache holds, and as a phase it would be more"
    }
    : { _tag: "Costs", micros: more }
  phased.set(from, why)
}
