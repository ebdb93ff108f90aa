/**
 * Persistent launches, before `linear`: kernels that depend on each other are phases of one launch, with a barrier across the grid
 * between them.
 */
import * as Bounds from "./Bounds.ts"
import * as DType from "./DType.ts"
import * as Expr from "./Expr.ts"
import { elementwise } from "./Op.ts"
import { type Arena, argOf, slotOf, toposort, type UOp } from "./UOp.ts"
import { accessOf, endOf } from "./View.ts"

// type aliases, not interfaces: only those are records to TypeScript

/**
 * A kernel in a persistent launch: its slot i is `slots[i]` of the launch, from word `offsets[i]` on. What it writes there it also writes to slot `copies[i]`, if that is not negative: for
 * other launches, where readers in this one await words.
 */
export type PhaseArg = {
  readonly slots: ReadonlyArray<number>
  readonly offsets: ReadonlyArray<number>
  readonly copies?: ReadonlyArray<number>
  /** What `forwardsOf` tells: four numbers each. */
  readonly forwards?: ReadonlyArray<number>
  /** The variants of the launch that it runs in; all, if it is not said. */
  readonly variants?: ReadonlyArray<number>
  /** Whether it runs instead of the phase in front of it, in other variants: there is no barrier between them. */
  readonly instead?: boolean
}

/**
 * Stores of a phase that are forwarded to another one's loads: what it writes to its slot `slot` lies at word `offset` of the launch's slot `to` as words that are awaited, and each workgroup
 * of phase `reader`, which alone reads that slot, stores it where it belongs before it loads anything there.
 */
export interface Forward {
  readonly slot: number
  readonly reader: number
  readonly to: number
  readonly offset: number
}

/** What of a phase's stores is forwarded. */
export const forwardsOf = ({ forwards = [] }: PhaseArg): ReadonlyArray<Forward> =>
  Array.from({ length: forwards.length / 4 }, (_, i) => {
    const [slot, reader, to, offset] = forwards.slice(4 * i, 4 * i + 4) as [number, number, number, number]
    return { slot, reader, to, offset }
  })

/** These as the numbers of a PHASE. */
export const numbersOf = (forwards: ReadonlyArray<Forward>): ReadonlyArray<number> =>
  forwards.flatMap(({ offset, reader, slot, to }) => [slot, reader, to, offset])

/** A persistent launch: workgroups that run at once, each of which does its share of every phase. */
export type PersistentArg = {
  readonly workgroups: number
  /** Threads of each, or more where a phase needs more. */
  readonly threads: number
  /** Polls of a barrier after which a workgroup gives up. */
  readonly spins: number
  /** Bytes of the largest coherent argument that each workgroup copies to its own memory before a phase reads it. */
  readonly stagedBytes: number
  /** For each phase, words that each thread loads for it while it waits for the phase before. */
  readonly ahead: ReadonlyArray<number>
  /** Where words that cross phases are awaited by those who read them. Without, writers wait until their words are in memory before they arrive at a barrier. */
  readonly awaited?: Awaited
  /** Where launches that differ in few phases are one program: which of them this is. */
  readonly variant?: Variant
}

/** The number of a variant, and how many there are. */
export type Variant = readonly [number: number, count: number]

/** The variable of a program whose launches are of several variants. No other one has a name with parentheses. */
export const variantName = "(variant)"

/** The slot of the words that a launch writes, that of words of another launch, which it clears, and how many these are. Each is a window of the memory of words (`waiting`). */
export type Awaited = readonly [slot: number, cleared: number, clearedWords: number]

/**
 * A barrier of all workgroups. One that has polled it `spins` times in vain gives up, and from then on none waits. `awaits`: words of this slot that were written in front of it may come
 * later, and are awaited where they are read (AWAIT).
 */
export type GridBarrierArg = {
  readonly id: number
  readonly workgroups: number
  readonly spins: number
  readonly awaits?: number
  /** So many workgroups, the first ones, go on without waiting for others. So it orders nothing, and all that crosses it is awaited word by word. */
  readonly passes?: number
}

/** A kernel as a phase. */
export interface Phase extends PhaseArg {
  readonly kernel: UOp
}

/**
 * Words of the barrier's buffer: how many workgroups arrived; for how many the first one that gave up was waiting, all barriers of its launch
 * so far counted (0 where none did); and how many it had seen.
 */
export const meetingWords = { arrived: 0, gaveUp: 1, came: 2, count: 4 } as const

/**
 * The memory of words that readers wait for, of all launches of a device, in words: behind those of the barrier three parts. A launch binds one, which is all 0 when it begins, and
 * another one, in which it clears what the launch before it wrote. The first launch of a program does not know that one, but that it was not part 0: it has that part, clears the others,
 * and the last one has another. Each begins where a window may.
 */
export const waiting = { begin: 64, part: 2 ** 15, parts: 3, count: 64 + 3 * 2 ** 15 } as const

/** Where a part of the memory of words begins. */
export const beginOf = (part: number): number => waiting.begin + part * waiting.part

/** What stands where arrivals are counted, if not a barrier was waited for in vain but a word. */
export const noBarrier = 2 ** 32 - 1

/**
 * Words that readers wait for are stored combined with this one (exclusive or): memory is cleared to 0, and a word that would be 0 is one that nothing computes (four bytes of -128;
 * as a float -1.2e-38). A launch that meets one gives up, as at a barrier that does not hold.
 */
export const veil = 0x80808080

/** Whether a kernel is a persistent launch. */
export const isPersistent = (kernel: UOp): boolean => kernel.op === "PERSISTENT"

/** The phases of a persistent launch, in order; none of another kernel. */
export const phasesOf = (kernel: UOp): ReadonlyArray<Phase> =>
  isPersistent(kernel) ? kernel.src.map((node) => ({ kernel: node.src[0]!, ...argOf(node, "PHASE") })) : []

/** The phases of a persistent launch that run in its variant; none of another kernel. */
export const runningIn = (kernel: UOp): ReadonlyArray<Phase> => isPersistent(kernel) ? phasesOf(ofVariant(kernel)) : []

/** The launch as a program of its own: without the phases of other variants. */
export const ofVariant = (launch: UOp): UOp => {
  const { variant, ...arg } = argOf(launch, "PERSISTENT")
  if (variant === undefined) return launch
  const phases = phasesOf(launch)
  const own = [...phases.keys()].filter((i) => phases[i]!.variants?.includes(variant[0]) !== false)
  const moved = own.map((i) => {
    const { instead: _, variants: __, ...phase } = phases[i]!
    const forwards = forwardsOf(phase).map((forward) => ({ ...forward, reader: own.indexOf(forward.reader) }))
    return { ...phase, ...forwards.length > 0 ? { forwards: numbersOf(forwards) } : {} }
  })
  return persistent(launch.arena, moved, { ...arg, ahead: own.map((i) => arg.ahead[i] ?? 0) })
}

/** The phases between barriers: those of which one runs instead of the other are together. */
export const stretchesOf = <A extends Pick<PhaseArg, "instead">>(
  phases: ReadonlyArray<A>
): ReadonlyArray<ReadonlyArray<A>> => {
  const made: Array<Array<A>> = []
  for (const phase of phases) {
    if (phase.instead === true) made.at(-1)!.push(phase)
    else made.push([phase])
  }
  return made
}

/** The launch of these phases. */
export const persistent = (arena: Arena, phases: ReadonlyArray<Phase>, launch: PersistentArg): UOp =>
  arena.make(
    "PERSISTENT",
    DType.none,
    phases.map(({ kernel, ...arg }) => arena.make("PHASE", DType.none, [kernel], arg)),
    launch
  )

/** Slots of a kernel, before `linear`, and which of them it writes. */
export const touched = (kernel: UOp): ReadonlyMap<number, "read" | "write"> => remembered(touches, kernel, findTouched)

/** Slots of a kernel, before `linear`, of which it writes each element in each launch, whatever the variables are. */
export const filled = (kernel: UOp): ReadonlySet<number> => remembered(filling, kernel, findFilled)

/** Consecutive words of a slot, from one on. */
export interface Window {
  /** Of what does not change inside of the window: variables, or the number of a workgroup. */
  readonly base: UOp
  readonly words: number
}

/** The words of a slot that a kernel, before `linear`, writes in each launch, each of them once; none, where it also reads the slot or more is not known. */
export const windowOf = (kernel: UOp, slot: number): Window | undefined =>
  remembered(windows, kernel, findWindows).get(slot)

const windows = new WeakMap<UOp, ReadonlyMap<number, Window>>()
const filling = new WeakMap<UOp, ReadonlySet<number>>()
const touches = new WeakMap<UOp, ReadonlyMap<number, "read" | "write">>()
const sizesOf = new WeakMap<UOp, ReadonlyMap<number, number>>()

/** Memoised, because a kernel is asked about for each launch that it may join. */
const remembered = <A>(known: WeakMap<UOp, A>, kernel: UOp, find: (kernel: UOp) => A): A => {
  const found = known.get(kernel) ?? find(kernel)
  known.set(kernel, found)
  return found
}

const findTouched = (kernel: UOp): ReadonlyMap<number, "read" | "write"> => {
  const nodes = toposort(kernel)
  const stored = new Set(nodes.filter((node) => node.op === "STORE").map((node) => accessOf(node).buffer))
  const found = new Map<number, "read" | "write">()
  for (const node of nodes) {
    if (node.op !== "PARAM") continue
    if (stored.has(node)) found.set(slotOf(node), "write")
    else if (!found.has(slotOf(node))) found.set(slotOf(node), "read")
  }
  return found
}

const findFilled = (kernel: UOp): ReadonlySet<number> => {
  const known = sizes(kernel)
  const bytes = new Map<number, number>()
  for (const end of toposort(kernel)) {
    if (end.op !== "END") continue
    const { loops, stores } = endOf(end)
    const count = iterationsOf(loops)
    for (const store of stores) {
      const { buffer, gate } = accessOf(store)
      if (buffer.op !== "PARAM") continue
      // no two iterations write one element
      const own = gate === undefined ? 4 * count : NaN
      bytes.set(slotOf(buffer), (bytes.get(slotOf(buffer)) ?? 0) + own)
    }
  }
  return new Set([...bytes].flatMap(([slot, own]) => own === known.get(slot) ? [slot] : []))
}

const findWindows = (kernel: UOp): ReadonlyMap<number, Window> =>
  new Map([...touched(kernel)].flatMap(([slot, access]) => {
    const window = access === "write" ? findWindow(kernel, slot) : undefined
    return window === undefined ? [] : [[slot, window] as const]
  }))

/** How often these loops run all their bodies; not a number, where that is not known. */
const iterationsOf = (loops: ReadonlyArray<UOp>): number =>
  loops.reduce((n, { src: [size] }) => size?.op === "CONST" ? n * Number(size.arg) : NaN, 1)

const findWindow = (kernel: UOp, slot: number): Window | undefined => {
  const nodes = toposort(kernel)
  const isOfSlot = (node: UOp): boolean => {
    const { buffer } = accessOf(node)
    return buffer.op === "PARAM" && slotOf(buffer) === slot
  }
  if (nodes.some((node) => node.op === "LOAD" && isOfSlot(node))) return undefined
  const [end, ...others] = nodes.filter((node) => node.op === "END" && endOf(node).stores.some(isOfSlot))
  if (end === undefined || others.length > 0) return undefined
  const { loops, stores: [store, ...rest] } = endOf(end)
  const { at, gate } = accessOf(store!)
  const words = iterationsOf(loops)
  if (rest.length > 0 || gate !== undefined || Number.isNaN(words)) return undefined
  const terms = termsOf(at)
  const inner = terms.filter((term) => toposort(term).some(({ op }) => op === "RANGE"))
  const outer = terms.filter((term) => !inner.includes(term))
  const base = outer.reduce((a, b) => Expr.add(a, b), Expr.int(kernel.arena, 0))
  const { max, min } = Bounds.of(inner.reduce((a, b) => Expr.add(a, b), Expr.int(kernel.arena, 0)))
  // no two iterations write one element
  const isWhole = min === 0 && max === words - 1
  return isWhole && toposort(base).every(isOfVariables) ? { base, words } : undefined
}

const isOfVariables = ({ op }: UOp): boolean => elementwise.has(op) || op === "CONST" || op === "VAR"

const termsOf = (at: UOp): ReadonlyArray<UOp> => at.op === "ADD" ? at.src.flatMap(termsOf) : [at]

/** Bytes of each slot that has a fixed size. */
export const sizes = (kernel: UOp): ReadonlyMap<number, number> => remembered(sizesOf, kernel, findSizes)

const findSizes = (kernel: UOp): ReadonlyMap<number, number> =>
  new Map(
    toposort(kernel).flatMap((node) => {
      const size = node.op === "PARAM" ? node.src[0] : undefined
      return size?.op === "CONST" ? [[slotOf(node), 4 * Number(size.arg)] as const] : []
    })
  )

/** The dtype of each slot of a kernel. */
export const dtypes = (kernel: UOp): ReadonlyMap<number, DType.ScalarName> => remembered(dtypesOf, kernel, findDtypes)
const dtypesOf = new WeakMap<UOp, ReadonlyMap<number, DType.ScalarName>>()

const findDtypes = (kernel: UOp): ReadonlyMap<number, DType.ScalarName> =>
  new Map(toposort(kernel).flatMap((node) => node.op === "PARAM" ? [[slotOf(node), node.dtype.scalar] as const] : []))

/**
 * The coherent slots of the launch: those that one phase writes and another one touches, and written ones that hold several arguments, which
 * are words of any type.
 */
export const crossing = (phases: ReadonlyArray<Phase>): ReadonlySet<number> => {
  const writers = new Map<number, Set<number>>()
  const users = new Map<number, Set<number>>()
  const note = (map: Map<number, Set<number>>, slot: number, phase: number): void => {
    map.set(slot, (map.get(slot) ?? new Set()).add(phase))
  }
  const noteWrite = (slot: number, phase: number): void => {
    for (const map of [users, writers]) note(map, slot, phase)
  }
  const stretches = stretchesOf(phases).flatMap((stretch, i) => stretch.map(() => i))
  phases.forEach((arg, i) => {
    const { copies = [], kernel, slots } = arg
    const phase = stretches[i]!
    const forwards = forwardsOf(arg)
    const forwarded = new Set(forwards.map(({ slot }) => slot))
    for (const [own, access] of touched(kernel)) {
      if (forwarded.has(own)) continue
      note(users, slots[own]!, phase)
      if (access === "write") note(writers, slots[own]!, phase)
    }
    for (const slot of copies.filter(isCopy)) noteWrite(slot, phase)
    for (const { reader, slot, to } of forwards) {
      noteWrite(to, phase)
      note(users, to, stretches[reader]!)
      noteWrite(slots[slot]!, stretches[reader]!)
    }
  })
  const shared = new Set(phases.flatMap(({ offsets, slots }) => slots.filter((_, i) => offsets[i] !== 0)))
  return new Set([...writers.keys()].filter((slot) => users.get(slot)!.size > 1 || shared.has(slot)))
}

/** Slots of the launch that a phase writes. */
export const written = (phases: ReadonlyArray<Phase>): ReadonlySet<number> =>
  new Set(
    phases.flatMap(({ copies = [], kernel, slots }) => [
      ...[...touched(kernel)].flatMap(([own, access]) => access === "write" ? [slots[own]!] : []),
      ...copies.filter(isCopy)
    ])
  )

/** Whether a place of `copies` names a slot. */
const isCopy = (slot: number): boolean => slot >= 0

/** The slot of the barrier's buffer: behind all others. */
export const meetingSlot = (
  phases: ReadonlyArray<Phase>,
  { awaited }: Pick<PersistentArg, "awaited"> = {}
): number => Math.max(awaited?.[1] ?? -1, ...phases.flatMap(({ copies = [], slots }) => [...slots, ...copies])) + 1
