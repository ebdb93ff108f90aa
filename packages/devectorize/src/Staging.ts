/** Values that other workgroups wrote, copied to workgroup memory in front of a phase that reads them. */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { type PersistentArg, type PhaseArg, veil } from "@tg/core-uop/Phases"
import { slotOf, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Concatenate from "./Concatenate.ts"

/** A linear kernel as a phase. */
export interface Phase extends PhaseArg {
  readonly linear: UOp
}

/** What decides which arguments are copied. */
export interface Rule extends Pick<PersistentArg, "stagedBytes"> {
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

/** A phase with the arguments that it copies: their PARAMs, and the memory before it is overlaid. */
export interface Staged extends PhaseArg {
  readonly staged: ReadonlyMap<UOp, UOp>
}

/** Arguments that a phase copies to workgroup memory: coherent ones that it only reads, and the memory. */
export const stagedOf = (
  { linear, slots }: Phase,
  { coherent, stagedBytes }: Rule
): ReadonlyMap<UOp, UOp> => {
  const { params, written } = usesOf(linear)
  const staged = new Map<UOp, UOp>()
  for (const node of params) {
    if (!coherent.has(slots[slotOf(node)]!) || written.has(slotOf(node))) continue
    const size = node.src[0]
    if (size?.op !== "CONST" || 4 * Number(size.arg) > stagedBytes) continue
    // a number that no memory of the kernel has
    const length = widest * planeOf(Number(size.arg))
    staged.set(node, linear.arena.make("LOCAL", node.dtype, [], { id: -1 - slotOf(node), length }))
  }
  return staged
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

/** A load of a staged argument: word by word, as vectors lie in several planes. */
export const stagedLoad = (
  dtype: DType.DType,
  { at, gate, lowered, memory, words }: {
    readonly at: UOp
    readonly gate: UOp | undefined
    readonly lowered: (x: UOp) => UOp
    readonly memory: UOp
    readonly words: number
  }
): UOp => {
  const whole = standIn(at)
  const each = Array.from({ length: dtype.lanes }, (_, lane) => {
    const made = lowered(stagedAt(Expr.add(whole ?? at, lane), words))
    const place = whole === undefined ? made : substitute(made, new Map([[whole, at]]))
    return at.arena.make("LOAD", DType.scalarOf(dtype), [Expr.element(memory, place, gate)])
  })
  return each.length === 1 ? each[0]! : at.arena.make("STACK", dtype, each)
}

/** Words of an argument that a thread loads at once. */
const mostAtOnce = 16

/**
 * Copies arguments to workgroup memory. All workgroups ask for the same lines of the shared cache at once, so neighbouring threads load
 * neighbouring words; and each thread issues all of its loads before it stores the first word, because each takes as long as half a barrier.
 */
export const stage = (making: Copying, member: Staged, memory: ReadonlyMap<UOp, UOp>): ReadonlyArray<UOp> => {
  const { head } = making
  const made: Array<UOp> = []
  const copies = [...member.staged].map(([param, local]) =>
    copiesOf(making, member, { param, local: memory.get(local)! })
  )
  const loose = copies.flatMap(({ range, stores }) => range === undefined ? stores : [])
  const add = (nodes: ReadonlyArray<UOp>): void => {
    for (const node of nodes) {
      if (node.op === "CONST") head.add(node)
      else if (!head.has(node) && !made.includes(node)) made.push(node)
    }
  }
  const addAll = (stores: ReadonlyArray<UOp>): void => {
    // all loads are on their way before the first word is looked at
    const values = stores.flatMap((store) => toposort(store.src[1]!))
    for (const first of ["LOAD", "AWAIT"] as const) {
      add(values.filter(({ op }) => op === first).flatMap((node) => toposort(node)))
    }
    add(stores.flatMap((store) => toposort(store.src[1]!)))
    add(stores.flatMap((store) => toposort(store)))
  }
  addAll(loose)
  for (const { range, stores } of copies) {
    if (range === undefined) continue
    add([range])
    addAll(stores)
    made.push(range.arena.make("END", DType.none, [range]))
  }
  return made
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

/** The stores of an argument's words to workgroup memory, and the loop around them where they are too many. */
const copiesOf = (
  { argument, awaits, emit, fresh, head, lowered, thread, threads }: Copying,
  { offsets, slots }: Staged,
  { local, param }: { readonly param: UOp; readonly local: UOp }
): { readonly range: UOp | undefined; readonly stores: ReadonlyArray<UOp> } => {
  const { arena } = param
  const words = Number(param.src[0]!.arg)
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
  const stores = Array.from({ length: atOnce }, (_, k) => {
    const own = Expr.add(thread, k * threads)
    const at = range === undefined ? own : Expr.add(own, Expr.mul(range, atOnce * threads))
    const isWhole = range === undefined ? (k + 1) * threads <= words : words % (atOnce * threads) === 0
    const gate = isWhole ? undefined : lowered(Expr.lt(at, words))
    const load = Expr.load(Expr.element(from, lowered(Expr.add(at, offsets[slotOf(param)]!)), gate))
    return Expr.store(
      Expr.element(local, lowered(stagedAt(at, words)), gate),
      awaits ? awaited(load, local.dtype) : load
    )
  })
  return { range, stores }
}
