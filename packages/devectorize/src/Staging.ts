/** Values that other workgroups wrote, copied to workgroup memory in front of a phase that reads them. */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { type PersistentArg, type PhaseArg, veil, type Window } from "@tg/core-uop/Phases"
import { slotOf, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { type Shape, sideOf } from "./Beside.ts"
import * as Concatenate from "./Concatenate.ts"
import { windowOf } from "./internal/windows.ts"

/** A linear kernel as a phase. */
export interface Phase extends PhaseArg {
  readonly linear: UOp
  /** What it was before `linear`: needed where something is forwarded from it. */
  readonly kernel?: UOp
}

/** What decides which arguments are copied. */
export interface Rule extends Pick<PersistentArg, "stagedBytes">, Shape {
  /** Slots that one phase writes and another one touches. */
  readonly coherent: ReadonlySet<number>
}

/** The launch that copies. */
export interface Copying extends Concatenate.Launch {
  /** Whether what was written in front of a barrier may come later. */
  readonly awaits: boolean
  readonly threads: number
  readonly thread: UOp
  readonly emit: (x: UOp) => UOp
  /** The argument of the launch with the elements of a dtype. */
  readonly argument: (slot: number, dtype: DType.DType) => UOp
}

/** An argument that a phase copies: the memory before it is overlaid, and how many words. */
export interface Copy {
  readonly local: UOp
  readonly words: number
  /** Where workgroups that run side by side each copy the words that they read: these, and the memory that each has for them. */
  readonly window?: Window & { readonly length: number }
}

/** A phase with the arguments that it copies, by their PARAMs. */
export interface Staged extends PhaseArg {
  readonly staged: ReadonlyMap<UOp, Copy>
}

/** Arguments that a phase copies to workgroup memory: coherent ones that it only reads, as a whole or, where they are too large, what each workgroup reads of them. */
export const stagedOf = (
  { linear, slots }: Phase,
  rule: Rule
): Staged["staged"] => {
  const { coherent, stagedBytes } = rule
  const { params, written } = usesOf(linear)
  const staged = new Map<UOp, Copy>()
  for (const node of params) {
    if (!coherent.has(slots[slotOf(node)]!) || written.has(slotOf(node))) continue
    const size = node.src[0]
    // a number that no memory of the kernel has
    const memory = (length: number): UOp =>
      linear.arena.make("LOCAL", node.dtype, [], { id: -1 - slotOf(node), length })
    const words = size?.op === "CONST" ? Number(size.arg) : Infinity
    if (4 * words <= stagedBytes) staged.set(node, { local: memory(widest * planeOf(words)), words })
    else {
      const part = partOf(linear, node, rule)
      if (part !== undefined) staged.set(node, { ...part, local: memory(part.window.length * part.beside) })
    }
  }
  return staged
}

/** What each workgroup of a phase reads of an argument, if it has room in workgroup memory. Those that take turns have to meet in each of them. */
const partOf = (linear: UOp, param: UOp, { stagedBytes, threads, workgroups }: Rule) => {
  const member = Concatenate.memberOf(linear)
  const { beside } = sideOf(member, { threads, workgroups })
  const count = Bounds.of(Concatenate.workgroupsOf(member)).max
  const window = count > beside * workgroups && !member.hasBarriers ? undefined : windowOf(linear, param)
  if (window === undefined || 4 * beside * window.words > stagedBytes) return undefined
  return { words: window.words, beside, window: { ...window, length: widest * planeOf(window.words) } }
}

/** Slots that a phase copies to workgroup memory before it reads them. */
export const slotsStaged = (part: Phase, rule: Rule): ReadonlySet<number> =>
  new Set([...stagedOf(part, rule).keys()].map(slotOf))

/** Words of the widest vectors. */
export const widest = 4
/** Banks of workgroup memory. */
const banks = 32

/**
 * A staged argument of so many words lies in four planes, one for each place in a vector: neighbouring threads store neighbouring words,
 * and load neighbouring vectors, from different banks. This is the distance of planes.
 */
const planeOf = (words: number): number => banks * Math.ceil(words / widest / banks) + banks / widest

/** Where a word of an argument is staged. */
const stagedAt = (at: UOp, words: number): UOp =>
  Expr.add(Expr.mul(Expr.floormod(at, widest), planeOf(words)), Expr.floordiv(at, widest))

/** What a linear kernel uses. */
interface Uses {
  readonly params: ReadonlyArray<UOp>
  readonly written: ReadonlySet<number>
}

const uses = new WeakMap<UOp, Uses>()

/** A kernel is asked for each launch that it may be in. */
const usesOf = (linear: UOp): Uses => {
  const { src } = linear
  const found = uses.get(linear) ?? {
    params: src.filter(({ op }) => op === "PARAM"),
    written: new Set(src.flatMap((node) => node.op === "STORE" ? [slotNumber(accessOf(node).buffer)] : []))
  }
  uses.set(linear, found)
  return found
}

const slotNumber = (buffer: UOp): number => buffer.op === "PARAM" ? slotOf(buffer) : -1

/**
 * A variable for a place that follows from values, not from indices alone: what computes it is an instruction already, which simplification would make again in another form
 * (a choice of experts, with its reductions).
 */
const standIn = (at: UOp): UOp | undefined => {
  if (toposort(at).every(Concatenate.isOfIndices)) return undefined
  const { max, min } = Bounds.of(at)
  return at.arena.make("VAR", DType.index, [], { name: "staged", min, max })
}

/** Where what a workgroup reads of an argument begins: there, and in the memory that it is copied to. */
export interface Beginning {
  readonly base: UOp
  readonly own: UOp | undefined
}

/** A load of a staged argument: word by word, as vectors lie in several planes. */
export const stagedLoad = (
  dtype: DType.DType,
  { at, beginning, gate, lowered, memory, words }: {
    readonly at: UOp
    readonly gate: UOp | undefined
    readonly lowered: (x: UOp) => UOp
    readonly memory: UOp
    readonly words: number
    readonly beginning?: Beginning | undefined
  }
): UOp => {
  const whole = standIn(at)
  const first = whole ?? at
  const each = Array.from({ length: dtype.lanes }, (_, lane) => {
    const inside = beginning === undefined ? first : Expr.sub(first, beginning.base)
    const made = lowered(withOwn(stagedAt(Expr.add(inside, lane), words), beginning))
    const place = whole === undefined ? made : substitute(made, new Map([[whole, at]]))
    return at.arena.make("LOAD", DType.scalarOf(dtype), [Expr.element(memory, place, gate)])
  })
  return each.length === 1 ? each[0]! : at.arena.make("STACK", dtype, each)
}

const withOwn = (at: UOp, beginning: Beginning | undefined): UOp =>
  beginning?.own === undefined ? at : Expr.add(at, beginning.own)

/** Words of an argument that a thread loads at once. */
const mostAtOnce = 16

/** How a workgroup of the launch copies for those of the phase that it runs side by side. */
export interface Parts {
  /** The number of the thread in its workgroup of the phase, how many threads that has, and, where not all do, whether this one works. */
  readonly thread: UOp
  readonly threads: number
  readonly isThread: UOp | undefined
  /** Where the part of an argument begins that a workgroup of the phase reads. */
  readonly beginnings: ReadonlyMap<UOp, Beginning>
}

/** Words of the launch that each workgroup of a phase stores where they belong before it loads them there (`Phases.Forward`). */
export interface Restored {
  readonly slot: number
  /** Where they belong. */
  readonly base: UOp
  readonly words: number
  readonly from: { readonly slot: number; readonly offset: number }
  /** The workgroup memory that they are copied to before. */
  readonly local: UOp
}

/** What a phase copies in front of its instructions, and where to. */
export interface Copied extends Staged {
  readonly memory: ReadonlyMap<UOp, UOp>
  readonly parts: Parts
  readonly restored: ReadonlyArray<Restored>
  /** Instructions in front of it besides the head. */
  readonly before?: ReadonlySet<UOp>
  /** Whether it is the turn in which forwarded words are copied; always, if it is not said. */
  readonly isFirst?: UOp | undefined
}

/** The stores of what is copied, and the loop around them where they are too many. */
interface Stores {
  readonly range: UOp | undefined
  readonly stores: ReadonlyArray<UOp>
}

/**
 * Copies arguments to workgroup memory. All workgroups ask for the same lines of the shared cache at once, so neighbouring threads load
 * neighbouring words; and each thread issues all of its loads before it stores the first word, because each takes as long as half a barrier.
 */
export const stage = (making: Copying, copied: Copied): ReadonlyArray<UOp> => {
  const { head } = making
  const copies = [
    ...[...copied.staged].map(([param, copy]) => copiesOf(making, copied, { param, copy })),
    ...copied.restored.map((restored) => ({ range: undefined, stores: forwardedOf(making, restored, copied.isFirst) }))
  ]
  const loose = copies.flatMap(({ range, stores }) => range === undefined ? stores : [])
  const everywhere = new Set<UOp>()
  /** The instructions of stores, and what they need that is not seen from here. */
  const instructionsOf = (stores: ReadonlyArray<UOp>, range?: UOp): ReadonlyArray<UOp> => {
    const own = new Set<UOp>(range === undefined ? [] : [range])
    const add = (nodes: ReadonlyArray<UOp>): void => {
      for (const node of nodes) {
        if (node.op === "CONST") head.add(node)
        else if (!head.has(node) && copied.before?.has(node) !== true && !everywhere.has(node)) own.add(node)
      }
    }
    // all loads are on their way before the first word is looked at
    const values = stores.flatMap((store) => toposort(store.src[1]!))
    for (const first of ["LOAD", "AWAIT"] as const) {
      add(values.filter(({ op }) => op === first).flatMap((node) => toposort(node)))
    }
    add(stores.flatMap((store) => toposort(store.src[1]!)))
    add(stores.flatMap((store) => toposort(store)))
    return [...own]
  }
  for (const node of instructionsOf(loose)) everywhere.add(node)
  const loops = copies.flatMap(({ range, stores }) =>
    range === undefined
      ? []
      : [...instructionsOf(stores, range), range.arena.make("END", DType.none, [range])]
  )
  return [...everywhere, ...loops]
}

/** A word that another workgroup has written, as soon as it is there. */
const awaited = (load: UOp, dtype: DType.DType): UOp => {
  const { arena } = load
  const word = arena.make("XOR", DType.u32, [
    arena.make("AWAIT", DType.u32, [load]),
    arena.make("CONST", DType.u32, [], veil)
  ])
  return dtype.scalar === "u32" ? word : arena.make("BITCAST", dtype, [word])
}

/** The stores of an argument's words to workgroup memory: by all threads, or by those of each workgroup of the phase. */
const copiesOf = (
  { argument, awaits, emit, fresh, head, lowered, ...all }: Copying,
  { memory, offsets, parts, slots }: Copied,
  { copy: { local: before, window, words }, param }: { readonly param: UOp; readonly copy: Copy }
): Stores => {
  const { arena } = param
  const local = memory.get(before)!
  const { isThread, thread, threads } = window === undefined ? { ...all, isThread: undefined } : parts
  const beginning = window === undefined ? undefined : parts.beginnings.get(param)!
  const turns = Math.ceil(words / threads)
  const from = argument(slots[slotOf(param)]!, awaits ? DType.u32 : param.dtype)
  for (const node of [...toposort(from), local]) head.add(node)
  const atOnce = Math.min(turns, mostAtOnce)
  const range = turns === atOnce
    ? undefined
    : arena.make("RANGE", DType.index, [emit(Expr.int(arena, Math.ceil(turns / atOnce)))], {
      id: fresh(),
      axis: "LOOP"
    })
  const first = Expr.add(beginning?.base ?? Expr.int(arena, 0), offsets[slotOf(param)]!)
  const stores = Array.from({ length: atOnce }, (_, k) => {
    const own = Expr.add(thread, k * threads)
    const at = range === undefined ? own : Expr.add(own, Expr.mul(range, atOnce * threads))
    const isWhole = range === undefined ? (k + 1) * threads <= words : words % (atOnce * threads) === 0
    const gates = [...isThread === undefined ? [] : [isThread], ...isWhole ? [] : [Expr.lt(at, words)]]
    const gate = gates.length === 0 ? undefined : lowered(gates.reduce((a, b) => Expr.and(a, b)))
    const load = Expr.load(Expr.element(from, lowered(Expr.add(at, first)), gate))
    return Expr.store(
      Expr.element(local, lowered(withOwn(stagedAt(at, words), beginning)), gate),
      awaits ? awaited(load, local.dtype) : load
    )
  })
  return { range, stores }
}

/** The stores of forwarded words to workgroup memory, by neighbouring threads. */
const forwardedOf = (
  { argument, head, lowered, thread, threads }: Copying,
  { from, local, words }: Restored,
  isFirst: UOp | undefined
): ReadonlyArray<UOp> => {
  const source = argument(from.slot, DType.u32)
  for (const node of [...toposort(source), local]) head.add(node)
  return shared(thread, threads, words).map(({ at, gate: inside }) => {
    const gate = gateOf(lowered, inside, isFirst)
    const load = Expr.load(Expr.element(source, lowered(Expr.add(at, from.offset)), gate))
    return Expr.store(Expr.element(local, lowered(at), gate), awaited(load, local.dtype))
  })
}

/** The stores of forwarded words where they belong, as vectors, behind a barrier: each workgroup of the launch stores all of them, and so reads what it wrote itself. */
export const restoresOf = (
  { argument, head, lowered, thread, threads }: Copying,
  { base, local, slot, words }: Restored,
  { before, isFirst }: Pick<Copied, "before" | "isFirst">
): ReadonlyArray<UOp> => {
  const target = argument(slot, local.dtype)
  for (const node of toposort(target)) head.add(node)
  const made = new Set<UOp>()
  for (const { at: vector, gate: inside } of shared(thread, threads, words / widest)) {
    const gate = gateOf(lowered, inside, isFirst)
    const at = Expr.mul(vector, widest)
    const each = Array.from(
      { length: widest },
      (_, lane) => Expr.load(Expr.element(local, lowered(Expr.add(at, lane)), gate))
    )
    const value = local.arena.make("STACK", DType.withLanes(local.dtype, widest), each)
    for (const node of toposort(Expr.store(Expr.element(target, lowered(Expr.add(at, base)), gate), value))) {
      if (node.op === "CONST") head.add(node)
      else if (!head.has(node) && before?.has(node) !== true) made.add(node)
    }
  }
  return [...made]
}

/** Whether a thread has an element, and its turn is the first one. */
const gateOf = (lowered: Copying["lowered"], inside: UOp | undefined, isFirst: UOp | undefined): UOp | undefined => {
  const gate = isFirst === undefined ? inside : Expr.gated(inside, isFirst)
  return gate && lowered(gate)
}

/** So many elements shared by threads, neighbours by neighbours: the one of each turn, and where not all threads have one, whether this one does. */
const shared = (
  thread: UOp,
  threads: number,
  count: number
): ReadonlyArray<{ readonly at: UOp; readonly gate: UOp | undefined }> =>
  Array.from({ length: Math.ceil(count / threads) }, (_, k) => {
    const at = Expr.add(thread, k * threads)
    return { at, gate: (k + 1) * threads <= count ? undefined : Expr.lt(at, count) }
  })
