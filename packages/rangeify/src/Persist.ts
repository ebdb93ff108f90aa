/** Steps of a schedule as phases of one launch: where its arguments lie, and what becomes of the schedule. */
import * as Phases from "@tg/core-uop/Phases"
import { argOf, transfer, type UOp } from "@tg/core-uop/UOp"
import { bindingAlignment } from "@tg/core-uop/DeviceLimits"
import type { Boundary, Phased } from "./Explain.ts"
import { bindingOf, keyOf } from "./Horizontal.ts"
import type { KernelStep, Ref, Schedule, Slice, Step } from "./Schedule.ts"
import { wordBytes } from "./Windows.ts"
import { forwardsOf } from "./internal/forwards.ts"
import { merged } from "./internal/merged.ts"
import { partsOf } from "./internal/parts.ts"

export { areFew, familiesOf } from "./internal/families.ts"

/** Steps from one on, up to another one, that are one launch. */
export interface Group {
  readonly from: number
  readonly to: number
  readonly launch: Phases.PersistentArg
}

/** The arguments of a launch. */
export interface Composed {
  readonly phases: ReadonlyArray<Phases.Phase>
  /** In the order of the slots; the arena of values that the launch computes is not there. */
  readonly args: ReadonlyArray<Ref | undefined>
  /** Where each temporary begins in the arena, in bytes. */
  readonly places: ReadonlyMap<number, number>
  readonly arenaBytes: number
  /** Memory that is bound twice, by different windows, and written: WebGPU forbids that in a launch. */
  readonly isAliased: boolean
}

/** Which steps write each temporary, and which touch it. */
export interface Uses {
  readonly written: ReadonlyMap<number, ReadonlySet<number>>
  readonly touched: ReadonlyMap<number, ReadonlySet<number>>
}

/** What launches are composed by. */
export interface Layout {
  readonly uses: Uses
  /** Buffers of the host that are slices of larger ones, by id. */
  readonly slices: ReadonlyMap<number, Slice>
}

/** The uses of each temporary. */
export const usesOf = ({ steps }: Schedule): Uses => {
  const written = new Map<number, Set<number>>()
  const touched = new Map<number, Set<number>>()
  const note = (map: Map<number, Set<number>>, id: number, step: number): void => {
    map.set(id, (map.get(id) ?? new Set()).add(step))
  }
  steps.forEach((step, i) => {
    for (const { ref, isWritten } of touches(step)) {
      if (ref.kind !== "temporary") continue
      note(touched, ref.id, i)
      if (isWritten) note(written, ref.id, i)
    }
  })
  return { written, touched }
}

const touches = (step: Step): ReadonlyArray<{ readonly ref: Ref; readonly isWritten: boolean }> => {
  if (step.kind === "custom") return step.args.map((ref) => ({ ref, isWritten: true }))
  const found = Phases.touched(step.ast)
  return step.args.map((ref, slot) => ({ ref, isWritten: found.get(slot) === "write" }))
}

/** Where a temporary of a launch lies: in its arena, in memory of its own, or, where readers in the launch wait for words and others read it too, in both. */
type Home = "arena" | "own" | "both"

/** Whether a temporary is read when the steps are over. */
const isResult = ({ kept = [], results }: Schedule, id: number): boolean => results.includes(id) || kept.includes(id)

/** The slice that a buffer is which steps only read, if it begins with a whole vector. */
const sliceOf = (ref: Ref, slices: Layout["slices"]): Slice | undefined => {
  const slice = ref.kind === "buffer" && ref.window === undefined ? slices.get(argOf(ref.node, "BUFFER").id) : undefined
  return slice === undefined || slice.offset % vectorBytes !== 0 ? undefined : slice
}
const vectorBytes = 16

/**
 * The steps as phases. Where words are awaited, what one step writes of the host's memory and one other step reads is forwarded. Temporaries that only they write share one arena, a single argument, because a launch binds few buffers; where readers wait for words, others cannot read what
 * lies there, so what they touch, too, is written twice. What they read of slices of one buffer, as elements of one dtype, is one argument as well.
 */
export const compose = (
  schedule: Schedule,
  { from, to }: { readonly from: number; readonly to: number },
  { awaits = false, slices = new Map(), uses = usesOf(schedule) }: Partial<Layout> & { readonly awaits?: boolean } = {}
): Composed => {
  const steps = schedule.steps.slice(from, to).filter((step): step is KernelStep => step.kind === "kernel")
  const isInside = (step: number): boolean => step >= from && step < to
  const homeOf = (ref: Ref): Home => {
    if (ref.kind !== "temporary" || ref.window !== undefined) return "own"
    const [written, touched] = [uses.written, uses.touched].map((steps) => [...steps.get(ref.id) ?? []])
    if (written!.length === 0 || !written!.every(isInside)) return "own"
    const isSeen = isResult(schedule, ref.id) || (awaits && !touched!.every(isInside))
    if (!isSeen) return "arena"
    return awaits && touched!.filter(isInside).length > 1 ? "both" : "own"
  }
  const slots = new Map<string, number>()
  const args: Array<Ref | undefined> = []
  const slotOf = (key: string, ref: Ref | undefined): number => {
    const known = slots.get(key)
    if (known !== undefined) return known
    slots.set(key, args.length)
    return args.push(ref) - 1
  }
  const places = new Map<number, number>()
  let arenaBytes = 0
  const placeFor = (bytes: number): number => {
    const place = arenaBytes
    arenaBytes += Math.ceil(bytes / bindingAlignment) * bindingAlignment
    return place
  }
  const placeOf = (id: number): number => {
    const place = places.get(id) ?? placeFor(schedule.temporaries[id]!.bytes)
    places.set(id, place)
    return place
  }
  const forwards = awaits ? forwardsOf(steps, touches) : undefined
  const memories = new Map<string, Set<string>>()
  const writtenKeys = new Set<string>()
  const phases = steps.map((step, phase): Phases.Phase => {
    const dtypes = Phases.dtypes(step.ast)
    const own = touches(step).map(({ isWritten, ref }, argument) => {
      const home = homeOf(ref)
      if (ref.kind === "temporary" && home !== "own") {
        const copy = home === "both" && isWritten ? slotOf(bindingOf(ref), ref) : -1
        return { slot: slotOf("arena", undefined), offset: placeOf(ref.id) / wordBytes, copy }
      }
      const slice = isWritten ? undefined : sliceOf(ref, slices)
      if (slice !== undefined) {
        const whole = { kind: "buffer", node: (ref as Ref & { readonly kind: "buffer" }).node, whole: true } as const
        return { slot: slotOf(`whole ${slice.whole} ${dtypes.get(argument)}`, whole), offset: slice.offset / wordBytes }
      }
      const memory = keyOf(ref)
      memories.set(memory, (memories.get(memory) ?? new Set()).add(bindingOf(ref)))
      if (isWritten) writtenKeys.add(memory)
      return { slot: slotOf(bindingOf(ref), ref), offset: 0 }
    })
    const copies = own.map(({ copy = -1 }) => copy)
    const forwarded = (forwards?.get(phase) ?? []).map(({ reader, slot, words }): Phases.Forward => ({
      slot,
      reader,
      to: slotOf("arena", undefined),
      offset: placeFor(wordBytes * words) / wordBytes
    }))
    return {
      kernel: step.ast,
      slots: own.map(({ slot }) => slot),
      offsets: own.map(({ offset }) => offset),
      ...copies.some((copy) => copy >= 0) ? { copies } : {},
      ...forwarded.length > 0 ? { forwards: Phases.numbersOf(forwarded) } : {}
    }
  })
  const isAliased = [...writtenKeys].some((memory) => memories.get(memory)!.size > 1)
  return { phases, args, places, arenaBytes, isAliased }
}

/**
 * Tells steps apart by what is asked of them as phases: the number of each kernel, which arguments are the same memory, and what of it the
 * steps may own. Equal texts, equal launches.
 */
export const textOf = (
  schedule: Schedule,
  { from, kernelOf, slices, to, uses }: Layout & {
    readonly from: number
    readonly to: number
    readonly kernelOf: (step: number) => number
  }
): string => {
  const numbers = new Map<string, number>()
  const numberOf = (name: string): number => {
    const known = numbers.get(name) ?? numbers.size
    numbers.set(name, known)
    return known
  }
  const argument = (ref: Ref): ReadonlyArray<unknown> => {
    const slice = sliceOf(ref, slices)
    const places = [
      numberOf(`binding ${bindingOf(ref)}`),
      numberOf(`memory ${keyOf(ref)}`),
      ref.kind,
      ...slice === undefined ? [] : [numberOf(`whole ${slice.whole}`), slice.offset, slice.bytes]
    ]
    if (ref.kind !== "temporary") return places
    const users = [uses.written, uses.touched].map((steps) =>
      new Set([...steps.get(ref.id) ?? []].map((i) => i >= from && i < to ? i - from : -1))
    )
    return [
      ...places,
      schedule.temporaries[ref.id]!.bytes,
      isResult(schedule, ref.id),
      ref.window === undefined,
      ...users
    ]
  }
  const steps = schedule.steps.slice(from, to).map(({ args }, i) => [kernelOf(from + i), args.map(argument)])
  return JSON.stringify(steps, (_, value: unknown) => value instanceof Set ? [...value] : value)
}

/** The schedule with groups of its steps as one launch each. Groups do not overlap, and follow one another. `merges`: launches that differ in few phases are variants of one program. */
export const persist = (
  schedule: Schedule,
  groups: ReadonlyArray<Group>,
  { layout = { uses: usesOf(schedule), slices: new Map() }, merges = false, phasedOf = () => undefined }: {
    readonly layout?: Layout
    readonly merges?: boolean
    readonly phasedOf?: (step: number) => Phased | undefined
  } = {}
): Schedule => {
  const explained = new Explained(schedule, phasedOf)
  const temporaries = [...schedule.temporaries]
  const temporary = (bytes: number): number => temporaries.push({ bytes }) - 1
  const awaiting = groups.filter(({ launch }) => launch.awaited !== undefined)
  // one alone would have no other that clears its words
  const isAwaited = awaiting.length > 1
  const meeting = groups.length === 0
    ? undefined
    : temporary(wordBytes * (isAwaited ? Phases.waiting : Phases.meetingWords).count)
  /** The arena and the place in it of each temporary that lies in one. */
  const moved = new Map<number, { readonly arena: number; readonly offset: number }>()
  const whole = groups.map(({ from, launch: { awaited, ...launch }, to }) => {
    const awaits = isAwaited && awaited !== undefined
    const composed = compose(schedule, { from, to }, { ...layout, awaits })
    const { args, phases } = composed
    return { composed, awaits, args, phases, launch }
  })
  const programs = merges ? merged(whole) : whole
  // of the largest one, so that equal launches stay equal behind different ones
  const most = Math.max(0, ...whole.map(({ awaits, composed }) => awaits ? composed.arenaBytes / wordBytes : 0))
  const parts = partsOf(isAwaited ? awaiting.length : 0).values()
  const launches = new Map(groups.map(({ from, to }, i) => {
    const { args, awaits, composed: { arenaBytes, places }, launch, phases } = programs[i]!
    const slot = args.indexOf(undefined)
    const part = awaits ? parts.next().value : undefined
    const cleared = part === undefined ? 0 : part.parts > 1 ? part.parts * Phases.waiting.part : most
    const arena = part !== undefined || arenaBytes === 0 ? -1 : temporary(arenaBytes)
    if (part === undefined) { for (const [id, offset] of places) moved.set(id, { arena, offset }) }
    const own: Ref = part === undefined
      ? { kind: "temporary", id: arena }
      : windowOf(meeting!, Phases.beginOf(part.part), Phases.waiting.part)
    const steps = schedule.steps.slice(from, to)
    const [first, last] = [steps[0]!, steps.at(-1)!]
    const step: KernelStep = {
      ...first,
      kind: "kernel",
      name: `${first.name}..${last.name}`,
      ast: persistentOf(phases, part === undefined ? launch : { ...launch, awaited: [slot, args.length, cleared] }),
      args: [
        ...args.map((ref) => ref ?? own),
        ...part === undefined
          ? []
          : [windowOf(meeting!, Phases.beginOf(part.cleared), part.parts * Phases.waiting.part)],
        isAwaited ? windowOf(meeting!, 0, Phases.waiting.begin) : { kind: "temporary", id: meeting! }
      ],
      boundaries: explained.of(from, to, launch.variant?.[1])
    }
    return [from, { step, to }]
  }))
  const steps: Array<Step> = []
  for (let i = 0; i < schedule.steps.length;) {
    const launch = launches.get(i)
    if (launch !== undefined) steps.push(launch.step)
    else {
      const step = schedule.steps[i]!
      steps.push(phasedOf(i) === undefined ? step : { ...step, boundaries: explained.of(i, i + 1) })
    }
    i = launch?.to ?? i + 1
  }
  const made = { ...schedule, steps: steps.map((step) => withArgs(step, moved, schedule)), temporaries }
  return meeting === undefined ? made : { ...made, kept: [...schedule.kept ?? [], meeting] }
}

/** A launch of kernels that may be those of several functions, each scheduled in an arena of its own. */
const persistentOf = (phases: ReadonlyArray<Phases.Phase>, launch: Phases.PersistentArg): UOp => {
  const { arena } = phases[0]!.kernel
  const own = phases.map(({ kernel, ...arg }) => ({
    ...arg,
    kernel: kernel.arena === arena ? kernel : transfer(kernel, arena)
  }))
  return Phases.persistent(arena, own, launch)
}

/** So many words of a temporary, from one on. */
const windowOf = (id: number, begin: number, words: number): Ref => ({
  kind: "temporary",
  id,
  window: { offset: wordBytes * begin, bytes: wordBytes * words }
})

/** The step with its temporaries where they are in arenas. */
const withArgs = (
  step: Step,
  moved: ReadonlyMap<number, { readonly arena: number; readonly offset: number }>,
  { temporaries }: Schedule
): Step => {
  const args = step.args.map((ref): Ref => {
    const place = ref.kind === "temporary" ? moved.get(ref.id) : undefined
    if (ref.kind !== "temporary" || place === undefined) return ref
    const window = ref.window ?? { offset: 0, bytes: temporaries[ref.id]!.bytes }
    return { kind: "temporary", id: place.arena, window: { ...window, offset: place.offset + window.offset } }
  })
  return args.every((ref, i) => ref === step.args[i]) ? step : { ...step, args }
}

/** Boundaries with what was decided about phases. Equal sites share theirs, as before. */
class Explained {
  private readonly schedule: Schedule
  private readonly phasedOf: (step: number) => Phased | undefined
  private readonly numbers = new Map<ReadonlyArray<Boundary>, number>()
  private readonly known = new Map<string, ReadonlyArray<Boundary>>()

  constructor(schedule: Schedule, phasedOf: (step: number) => Phased | undefined) {
    this.schedule = schedule
    this.phasedOf = phasedOf
  }

  /** The boundaries of these steps, and of how many variants the program is of which they are phases. */
  of(from: number, to: number, variants?: number): ReadonlyArray<Boundary> {
    const steps = this.schedule.steps.slice(from, to)
    const phased = steps.map((_, i) => {
      const own = this.phasedOf(from + i)
      return own?._tag === "Phase" && variants !== undefined ? { ...own, variants } : own
    })
    const text = JSON.stringify([steps.map(({ boundaries }) => this.numberOf(boundaries)), phased])
    const known = this.known.get(text) ?? steps.flatMap(({ boundaries }, i) => {
      const own = phased[i]
      return own === undefined ? boundaries : boundaries.map((boundary) => ({ ...boundary, phased: own }))
    })
    this.known.set(text, known)
    return known
  }

  private numberOf(boundaries: ReadonlyArray<Boundary>): number {
    const known = this.numbers.get(boundaries) ?? this.numbers.size
    this.numbers.set(boundaries, known)
    return known
  }
}

/** Bytes of the largest argument of each slot of these phases, as far as their kernels say. */
export const bytesOfSlots = (phases: ReadonlyArray<Phases.Phase>): ReadonlyMap<number, number> => {
  const found = new Map<number, number>()
  for (const { kernel, slots } of phases) {
    for (const [own, bytes] of Phases.sizes(kernel)) {
      const slot = slots[own]!
      found.set(slot, Math.max(found.get(slot) ?? 0, bytes))
    }
  }
  return found
}
