/**
 * Which launches of a schedule become phases of a persistent launch: dependent ones, where the device has a barrier across the grid
 * and the cost model says that it pays.
 */
import * as Bounds from "@tg/core-uop/Bounds"
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import * as PhasesOf from "@tg/core-uop/Phases"
import { signature } from "@tg/core-uop/Program"
import { isAccumulating, key, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Ahead from "@tg/devectorize/Ahead"
import * as PhaseCosts from "@tg/devectorize/PhaseCosts"
import * as Phases from "@tg/devectorize/Phases"
import * as Fusion from "@tg/rangeify/Fusion"
import { members } from "@tg/rangeify/Horizontal"
import * as Persist from "@tg/rangeify/Persist"
import type { KernelStep, Schedule, Slice } from "@tg/rangeify/Schedule"
import { Context, Effect } from "effect"
import * as Cuts from "./internal/cuts.ts"
import type { Code } from "./internal/instructionCache.ts"
import { boundaryMicros, crossings, savedAhead, type Share, slower } from "./internal/phaseMicros.ts"
import type * as Pipeline from "./Pipeline.ts"
import * as Stages from "./Stages.ts"

/** When launches are persistent. */
export type Mode =
  /** Never. */
  | "off"
  /** Where grid barriers hold, and encoding launches one by one was measured to take longer than running them. */
  | "auto"
  /** Wherever they hold, regardless of cost. */
  | "on"

/** The mode of persistent launches, and whether they failed on this device. */
export interface Service {
  readonly mode: Mode
  /** Why they are off regardless of `mode`: their workgroups were not all resident. */
  refused: string | undefined
  /** Called once, at the first failure. */
  readonly onRefused: (why: string) => Effect.Effect<void>
}

/** No persistent launches. */
export const off: Service = { mode: "off", refused: undefined, onRefused: () => Effect.void }

/** Whether launches are persistent; read at each scheduling. */
export const Persistent = Context.Reference<Service>("@tg/jit/Persistent", { defaultValue: () => off })

/** What has to be done before a launch is tried (`Trial`): as long as weights are on their way, two runs of the same differ. */
export const Ready = Context.Reference<Effect.Effect<void>>("@tg/jit/Persistent/Ready", {
  defaultValue: () => Effect.void
})

/** Buffers of the host that are slices of larger ones of the device, by id: a persistent launch binds what several of its arguments are slices of. */
export const Slices = Context.Reference<ReadonlyMap<number, Slice>>("@tg/jit/Persistent/Slices", {
  defaultValue: () => new Map()
})

/** No launch is persistent from now on; the first reason is told. */
export const refuse = (service: Service, why: string): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (service.refused !== undefined) return Effect.void
    service.refused = why
    return service.onRefused(why)
  })

/** The effective mode: for cache keys, as schedules depend on it. */
export const idOf = ({ mode, refused }: Service): Mode => refused === undefined ? mode : "off"

/** Workgroup size of the probe of grid barriers (`gridBarrierWorkgroups`). */
const triedThreads = 256
/** Bytes of the largest value that may cross phases: its loads are scalar. */
const mostCrossing = 2 ** 18
/** Bytes of the largest value that is staged in workgroup memory. */
const mostStaged = 2 ** 15
/** Scalar atomic loads per thread and phase, of values that are not staged: none of them hits the processor's own cache. */
const mostWords = 32
/**
 * What hosts take to encode, times what was measured once: they have neighbours, and took 0.7 to 1.7 times as long from minute to minute on machines with an H100 (`docs/persistent.md`).
 */
const hosts = [0.7, 1, 1.3, 1.7]
/** How much faster a step has to be on these hosts by the model of costs: within this, it does not know. */
const leastGain = 1.02
/** What of encoding counts where launches are cut: a plan is made with each, as it is hidden as long as the device takes longer. */
const shares = [0, 0.25, 0.5, 1]
/** Registers per thread, at most. */
const mostRegisters = 255
/** Words per thread that are prefetched across a barrier, at most. */
const mostAhead = 28
/** Timeout of a grid barrier. */
const patienceMicros = 1_000_000

/** A step that may be a phase. */
interface Candidate extends Share {
  readonly step: KernelStep
  /** Of its kernel: equal kernels have the same. */
  readonly number: number
  readonly linear: UOp
  /** As a launch of its own. */
  readonly micros: number
  /** The same, with what its opts were measured to gain as one. */
  readonly tuned: number
  /** Bytes of its machine code. */
  readonly code: number
  /** Registers of a thread for values that are in use at a time. */
  readonly registers: number
  /** Words that a thread reads of each slot. */
  readonly words: ReadonlyMap<number, number>
  /** Slots of which it can load the first words before it knows what others wrote, as long as nobody writes them. */
  readonly ahead: ReadonlySet<number>
}

/** A schedule, what is known of its steps, and where what they touch lies. */
interface Asked {
  readonly schedule: Schedule
  readonly candidates: ReadonlyArray<Candidate | undefined>
  readonly layout: Persist.Layout
}

/** The schedule with persistent launches where they pay; unchanged on devices without a grid barrier. */
export const persist = (
  pipeline: Pipeline.Stages,
  schedule: Schedule,
  mode: Mode
): Effect.Effect<Schedule> =>
  Effect.gen(function*() {
    const { caps, profile } = pipeline
    const { gridBarrierHolds, gridBarrierWorkgroups = 0 } = profile
    if (mode === "off" || !caps.hasGrid || gridBarrierHolds !== true || gridBarrierWorkgroups < 2) return schedule
    const { encodeMicros } = quantitiesOf(profile)
    /** The mean over hosts: the device's time, or the host's where that is longer. */
    const took = ({ launches, micros }: Cuts.Plan): number =>
      hosts.reduce((sum, times) => sum + Math.max(micros, times * encodeMicros * launches), 0) / hosts.length
    if (mode === "auto" && profile.encodeMicros === undefined) return schedule
    const candidates = yield* candidatesOf(pipeline, schedule)
    const { maxBindingBytes } = profile
    const layout: Persist.Layout = {
      uses: Persist.usesOf(schedule),
      slices: new Map([...yield* Slices].filter(([, { bytes }]) => bytes <= maxBindingBytes))
    }
    const code = codeOf(candidates)
    const cutters = mode === "on" ? [Cuts.fewest] : shares.map((share) => Cuts.cheapest(share * encodeMicros))
    const asked: Asked = { schedule, candidates, layout }
    const planned = (mayAwait: boolean) => {
      const weigh = weigher(pipeline, asked, mayAwait)
      const runs = runsOf(asked, weigh)
      const plans = (cutters: ReadonlyArray<Cuts.Cutter>) => Cuts.plans(runs, weigh, { code, cutters })
      const best = plans(cutters).reduce((a, b) => took(b) < took(a) ? b : a)
      return { best, separate: plans([Cuts.single])[0]!, ...Cuts.groupsOf(runs, weigh, best) }
    }
    const awaiting = planned(true)
    const [first, ...others] = awaiting.groups.filter(({ launch }) => launch.awaited !== undefined)
    // words of one launch alone are exchanged, as no other one would clear them; not all may be
    const isImpossible = first !== undefined && others.length === 0 &&
      "why" in weigher(pipeline, asked, false)(first.from, first.to)
    const { best, groups, phased, separate } = isImpossible ? planned(false) : awaiting
    if (mode === "auto" && leastGain * took(best) > took(separate)) {
      const [merged, alone] = [best, separate].map((plan) => (took(plan) / 1000).toFixed(2))
      return refused(
        schedule,
        `the step takes ${alone} ms with launches one by one, and ${merged} with ${best.launches} at best, as the mean over fast and slow hosts; ${leastGain} times is asked`
      )
    }
    return Persist.persist(schedule, groups, {
      layout,
      merges: mode === "on" || best.merges,
      phasedOf: (step) => phased.get(step)
    })
  })

/** The schedule as it is, and why. */
const refused = (schedule: Schedule, why: string): Schedule =>
  Persist.persist(schedule, [], { phasedOf: () => ({ _tag: "Refused", why }) })

/** The code of each step; those that are no candidates have none that is known. */
const codeOf = (candidates: Asked["candidates"]): Code => ({
  bytesOf: (step) => candidates[step]?.code ?? 0,
  kernelOf: (step) => candidates[step]?.number ?? -1
})

/** The runs of a schedule, of which those are equal that are asked for equal launches. */
const runsOf = ({ candidates, layout, schedule }: Asked, weigh: Cuts.Weigh): ReadonlyArray<Cuts.Run> => {
  const { kernelOf } = codeOf(candidates)
  return Cuts.runsOf(schedule.steps, (from, to) => Persist.textOf(schedule, { ...layout, from, to, kernelOf }), weigh)
}

/** The candidate of each step; none for hand-written kernels, and for those that add to memory. */
const candidatesOf = Effect.fnUntraced(function*(pipeline: Pipeline.Stages, { steps }: Schedule) {
  const known = new Map<string, Omit<Candidate, "step" | "number"> | undefined>()
  const numbers = new Map<string, number>()
  const found: Array<Candidate | undefined> = []
  for (const step of steps) {
    if (step.kind === "custom") {
      found.push(undefined)
      continue
    }
    const text = key(step.ast)
    if (!known.has(text)) known.set(text, yield* candidateOf(pipeline, step))
    if (!numbers.has(text)) numbers.set(text, numbers.size)
    const own = known.get(text)
    found.push(own === undefined ? undefined : { ...own, step, number: numbers.get(text)! })
  }
  return found
})

/** None if the kernel adds to memory, does not compile, which the launch reports, or multiplies by matrix units. */
const candidateOf = (pipeline: Pipeline.Stages, { ast, name }: KernelStep) =>
  toposort(ast).some(isAccumulating) ? Effect.undefined : Stages.ofPhase(pipeline, name, ast).pipe(
    Effect.map(({ linear }): Omit<Candidate, "step" | "number"> | undefined => {
      // fragments are registers that nobody counts, and workgroups of a launch have to be resident at once
      if (linear.src.some(({ op }) => op === "FRAGMENT")) return undefined
      const { grid, workgroup } = signature(linear)
      const parts = partsOf(pipeline, ast)
      const micros = microsOfParts(pipeline, parts)
      const busy = Math.max(0, ...parts.map(({ transfer = 0, work }) => Math.max(work, transfer)))
      return {
        linear,
        threads: workgroup[0],
        workgroups: grid.reduce<number>((n, size) => n * (typeof size === "number" ? size : usualGrid(size)), 1),
        varies: grid.some((size) => typeof size !== "number"),
        micros,
        tuned: micros - (members(ast).length === 1 ? pipeline.gain(ast) : 0),
        code: PhaseCosts.codeBytes(linear),
        registers: PhaseCosts.wordsInUse(linear),
        words: PhaseCosts.wordsOfSlots(linear),
        ahead: Ahead.slotsAhead(linear),
        busy,
        waits: Math.max(0, micros - busy - pipeline.profile.dispatchMicros)
      }
    }),
    Effect.orElseSucceed(() => undefined)
  )

/** Workgroups along an axis that the position decides: a quarter of the most, as a context is seldom full, and conversations begin at its beginning. */
const usualGrid = (size: UOp): number => {
  const { max, min } = Bounds.of(size)
  return Math.max(min, Math.ceil(max / 4))
}

/** The costs of a launch's members, where there is a model of costs. */
const partsOf = (pipeline: Pipeline.Stages, ast: UOp) =>
  members(ast).flatMap((member) => pipeline.limits.fusion?.kernelMicros(member.ast) ?? [])

const microsOfParts = (pipeline: Pipeline.Stages, parts: ReturnType<typeof partsOf>): number =>
  parts.length === 0 ? pipeline.profile.dispatchMicros : Fusion.launchOf(parts)

/** The memoised cost of steps as one launch; whose readers look at each word that crosses phases where they can, if they may. */
const weigher = (
  pipeline: Pipeline.Stages,
  { candidates, layout, schedule }: Asked,
  mayAwait: boolean
): Cuts.Weigh => {
  const known = new Map<string, Cuts.Weighed>()
  const weighedAs = (from: number, to: number, awaits: boolean): Cuts.Weighed =>
    weighed(pipeline, {
      composed: Persist.compose(schedule, { from, to }, { ...layout, awaits }),
      candidates: candidates.slice(from, to),
      schedule,
      awaits
    })
  return (from, to) => {
    const text = `${from} ${to}`
    const before = known.get(text)
    if (before !== undefined) return before
    const awaited = mayAwait ? weighedAs(from, to, true) : undefined
    const made = awaited === undefined || "why" in awaited ? weighedAs(from, to, false) : awaited
    known.set(text, made)
    return made
  }
}

/** Steps weighed as one launch. */
interface Together {
  readonly composed: Persist.Composed
  readonly candidates: ReadonlyArray<Candidate | undefined>
  readonly schedule: Schedule
  /** Whether readers look at each word that crosses phases, instead of writers waiting until it is in memory. */
  readonly awaits: boolean
}

const weighed = (pipeline: Pipeline.Stages, together: Together): Cuts.Weighed => {
  const { profile } = pipeline
  const candidates = together.candidates.filter((candidate) => candidate !== undefined)
  if (together.candidates.length === 1) {
    return { micros: candidates[0]?.tuned ?? profile.dispatchMicros, launch: undefined }
  }
  if (candidates.length < together.candidates.length) {
    return { why: "a kernel that is written by hand, or adds to memory, runs alone" }
  }
  const impossible = refusal(profile, together)
  if (impossible !== undefined) return { why: impossible }
  const { phases } = together.composed
  const coherent = PhasesOf.crossing(phases)
  const unchecked = together.awaits ? whyUnchecked(together.composed, coherent) : undefined
  if (unchecked !== undefined) return { why: unchecked }
  const parts = phases.map((phase, i) => ({ ...phase, linear: candidates[i]!.linear }))
  const most = Math.max(...candidates.map(({ threads }) => threads))
  const sized = sizesOf(profile, most).map((threads) =>
    ofThreads(pipeline, together, { candidates, coherent, parts, threads })
  )
  const why = sized.find((made) => typeof made === "string")
  return best(sized.flatMap((made) => typeof made === "string" ? [] : made)) ??
    { why: why ?? "not one workgroup of its threads is known to run on each processor" }
}

/** Why readers cannot look at each word that crosses phases, if they cannot. */
const whyUnchecked = (
  { args, arenaBytes, phases }: Persist.Composed,
  coherent: ReadonlySet<number>
): string | undefined => {
  const most = 4 * PhasesOf.waiting.part
  if (arenaBytes > most) return `readers would wait for ${arenaBytes} bytes of ${most}`
  if (!args.includes(undefined)) return "nothing crosses its phases in memory of its own"
  if ([...coherent].some((slot) => args[slot] !== undefined)) return "others touch what crosses its phases, too"
  return phases.every((phase) => fills(phase, coherent))
    ? undefined
    : "a phase may leave words unwritten that others would read"
}

/** Whether a phase writes each word of what it writes for others. */
const fills = ({ kernel, slots }: PhasesOf.Phase, coherent: ReadonlySet<number>): boolean =>
  [...PhasesOf.touched(kernel)].every(([slot, access]) =>
    access === "read" || !coherent.has(slots[slot]!) || PhasesOf.filled(kernel).has(slot)
  )

/** A launch and its cost. */
interface Priced {
  readonly micros: number
  readonly launch: PhasesOf.PersistentArg
}

/** The cheapest launch; of equal ones the first, whose threads are fewest and have the most registers. */
const best = (all: ReadonlyArray<Priced>): Priced | undefined =>
  all.reduce<Priced | undefined>((a, b) => a === undefined || b.micros < a.micros ? b : a, undefined)

/** Sizes of workgroups to choose from: larger ones than a phase needs run several of its workgroups. A compiler keeps to the registers that they have. */
const sizesOf = ({ maxWorkgroupThreads }: DeviceProfile, most: number): ReadonlyArray<number> => {
  const multiples = Array.from(
    { length: Math.floor(maxWorkgroupThreads / threadsStep) },
    (_, i) => threadsStep * (i + 1)
  )
  return [most, ...multiples.filter((threads) => threads > most)]
}
const threadsStep = 128

/** Phases as a launch of workgroups of so many threads. */
interface Sized {
  readonly candidates: ReadonlyArray<Candidate>
  readonly coherent: ReadonlySet<number>
  readonly parts: ReadonlyArray<Phases.Phase & PhasesOf.Phase>
  readonly threads: number
}

/** A launch of so many threads, with values staged as far as there is room; or why there is none. */
const ofThreads = (
  { profile }: Pipeline.Stages,
  { awaits, composed: { args, phases } }: Together,
  { candidates, coherent, parts, threads }: Sized
): Priced | string => {
  const processors = Math.max(1, Math.floor(processorsOf(profile)))
  // fewer workgroups run more of a phase's side by side each, and take no less memory
  const memoryOf = (stagedBytes: number): number =>
    Phases.memoryBytes(parts, { coherent, stagedBytes, threads, workgroups: processors })
  // without room for copies, everything is read one by one
  const stagedBytes = [mostStaged, mostStaged / 2, 0].find((bytes) => memoryOf(bytes) <= profile.maxWorkgroupBytes)
  if (stagedBytes === undefined) return "its phases take more workgroup memory than there is"
  const words = Math.max(...parts.map((part, i) => {
    const staged = Phases.slotsStaged(part, { coherent, stagedBytes, threads, workgroups: processors })
    const read = [...candidates[i]!.words].filter(([slot]) => coherent.has(part.slots[slot]!) && !staged.has(slot))
    return read.reduce((sum, [, own]) => sum + own, 0)
  }))
  if (awaits && words > 0) return "a value that crosses its phases has no room in workgroup memory"
  if (words > mostWords) return `a thread would read ${words} words one by one that another phase writes`
  const workgroups = residents(profile, threads)
  if (workgroups < 1) return "not one workgroup of its threads is known to run on each processor"
  const written = PhasesOf.written(phases)
  const hasAhead = candidates.map((own, i) =>
    i > 0 && [...own.ahead].some((slot) => !written.has(phases[i]!.slots[slot]!))
  )
  const ahead = candidates.map((own, i) =>
    hasAhead[i]! ? wordsAhead(profile, { threads, workgroups, registers: own.registers }) : 0
  )
  const shared = { workgroups, threads, stagedBytes, ahead, spins: spinsOf(profile) }
  // which part of the memory of words it has, and what it clears, is decided when all launches are known
  const launch: PhasesOf.PersistentArg = awaits
    ? { ...shared, awaited: [args.indexOf(undefined), args.length, 0] }
    : shared
  const micros = microsOf(profile, candidates, launch) + crossings(profile, phases, { coherent, stagedBytes }) -
    savedAhead(profile, launch)
  return { micros, launch }
}

/**
 * Words that each thread carries over the barrier in front of a phase: where loads take long enough, and registers are left. None are set aside for addresses: what the phase
 * loads first is among its live values and is what is carried.
 */
const wordsAhead = (
  profile: DeviceProfile,
  { registers, threads, workgroups }: {
    readonly registers: number
    readonly threads: number
    readonly workgroups: number
  }
): number => {
  const { loadMicros, registerBytes } = quantitiesOf(profile)
  if (loadMicros < profile.dispatchMicros / 10) return 0
  const resident = Math.ceil(workgroups / Math.max(1, Math.floor(processorsOf(profile)))) * threads
  const left = Math.min(mostRegisters, Math.floor(registerBytes / (registerWidth * resident))) - registers
  return Math.max(0, Math.min(mostAhead, left - left % 4))
}

/** What is in the way of a launch, whatever it would cost. */
const refusal = (profile: DeviceProfile, { awaits, composed, schedule }: Together): string | undefined => {
  const { args, isAliased, phases, places } = composed
  // the counters of barriers, and words of another launch
  const needs = args.length + (awaits ? 2 : 1)
  if (isAliased) return "its launches bind several windows of memory that one of them writes"
  if (needs > profile.maxStorageBuffers) return `a launch would bind ${needs} buffers of ${profile.maxStorageBuffers}`
  const bytes = Persist.bytesOfSlots(phases)
  const crossing = PhasesOf.crossing(phases)
  const sizes = [...crossing].filter((slot) => args[slot] !== undefined).map((slot) => bytes.get(slot) ?? Infinity)
  const owned = [...places.keys()].map((id) => schedule.temporaries[id]!.bytes)
  const largest = Math.max(0, ...sizes, ...owned)
  return largest > mostCrossing
    ? `${largest === Infinity ? "a buffer of unknown size" : `${largest} bytes`} that a phase writes would be read ` +
      "word by word in another"
    : undefined
}

/** Polls of the counter before a workgroup gives up. */
const spinsOf = (profile: DeviceProfile): number =>
  Math.round(Math.min(2 ** 31, Math.max(100_000, patienceMicros / quantitiesOf(profile).cachedLoadMicros)))

/** Bytes of a register. */
const registerWidth = 4

/**
 * Workgroups that run at once, as far as barriers were tried: one on each processor, or fewer. One fits with any kernel, because a compiler keeps
 * to the registers that its threads can have. For two, the registers would have to be known: estimates were too low on an H200, and all waited in vain.
 */
export const residents = (profile: DeviceProfile, threads: number): number => {
  const processors = Math.max(1, Math.floor(processorsOf(profile)))
  const tried = Math.floor((profile.gridBarrierWorkgroups ?? 0) * Math.min(1, triedThreads / threads))
  return Math.min(processors, tried)
}

/** The launch, its phases and the barriers between them. */
const microsOf = (
  profile: DeviceProfile,
  candidates: ReadonlyArray<Candidate>,
  launch: PhasesOf.PersistentArg
): number => {
  const { dispatchMicros } = profile
  const phases = candidates.map((own) =>
    own.micros - dispatchMicros + slower(profile, own, launch, Phases.besideOf(own.linear, launch))
  )
  const barriers = (candidates.length - 1) * boundaryMicros(profile, launch)
  return dispatchMicros + barriers + phases.reduce((a, b) => a + b, 0)
}
