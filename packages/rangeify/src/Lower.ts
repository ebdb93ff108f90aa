import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import {
  type Arena,
  argOf,
  openRanges,
  type ParamArg,
  reduceArg,
  toposort,
  transfer,
  type UOp,
  varArg
} from "@tg/core-uop/UOp"
import { graphRewrite } from "@tg/pattern-matcher/GraphRewrite"
import { make, rule, rules } from "@tg/pattern-matcher/PatternMatcher"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import * as P from "@tg/pattern-matcher/UPat"
import { additionsOf, type AddLimits } from "./Additions.ts"
import { endAt, extent, flatten, plus, reshape } from "./Indexing.ts"
import { isFree, isMadeInMemory, isStorage, readBy, storageOf, targetOf } from "./Values.ts"

/** A kernel under construction: what it computes and, by PARAM slot, the storage nodes it touches. */
export interface Lowered {
  readonly ast: UOp
  readonly storage: ReadonlyArray<UOp>
  /** The nodes that it is computed from: the sources of its root, or some of them. */
  readonly sources: ReadonlyArray<UOp>
  /** Upper bounds of the output loops. */
  readonly sizes: ReadonlyArray<number>
  /** Bytes that a workgroup stages; infinite if their number is not known. */
  readonly workgroupBytes: number
}

/** The dtype a value has in memory: booleans and indices are widened to 32 bits. */
export const storageType = (dtype: DType.DType): DType.DType =>
  dtype.scalar === "bool" ? DType.u32 : dtype.scalar === "index" ? DType.i32 : dtype

/** Where the values that are not computed inline live: in a buffer, or in the memory of each workgroup that reads them. */
export interface Homes {
  readonly stored: ReadonlySet<UOp>
  readonly staged: ReadonlySet<UOp>
  /** By stored value or effect: an axis of its output that one workgroup computes as a whole. It stages for all of it. */
  readonly together?: ReadonlyMap<UOp, number> | undefined
}

/** Computes values of a tensor graph, element by element, in the arena of a kernel. */
export interface Reader {
  readonly arena: Arena
  /** The value that this kernel or stage computes, so a use of it is not a load. */
  current: UOp
  /** The PARAM of each storage node that has been touched, in the order of the slots. */
  readonly slots: ReadonlyMap<UOp, UOp>
  /** Reads of each staged value; where they lie in its memory is known when all of them are. */
  readonly stageReads: ReadonlyMap<UOp, ReadonlyArray<Read>>
  readonly newRange: (dim: Shape.Dim, axis: "GLOBAL" | "LOOP" | "REDUCE") => UOp
  readonly slot: (owner: UOp, arg?: Partial<ParamArg>) => UOp
  /** The value at an index, under a gate: computed once, or loaded. */
  readonly value: (node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined) => UOp
  /** The same without the memo. */
  readonly compute: (node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined) => UOp
}

/** A value at an index, under a gate. */
interface Value {
  readonly node: UOp
  readonly index: ReadonlyArray<UOp>
  readonly gate: UOp | undefined
  readonly result: UOp
}

/** Values that are known, by a hash of what they are values of. */
class Values {
  private readonly byHash = new Map<number, Array<Value>>()

  private static hashOf(node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): number {
    let hash = Math.imul(node.id, 0x9e3779b1) ^ (gate === undefined ? 0 : gate.id + 1)
    for (let i = 0; i < index.length; i++) hash = Math.imul(hash ^ index[i]!.id, 0x9e3779b1)
    return hash
  }

  get(node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp | undefined {
    const same = (value: Value): boolean =>
      value.node === node && value.gate === gate && value.index.length === index.length &&
      value.index.every((at, axis) => at === index[axis])
    return this.byHash.get(Values.hashOf(node, index, gate))?.find(same)?.result
  }

  set(value: Value): void {
    const hash = Values.hashOf(value.node, value.index, value.gate)
    const others = this.byHash.get(hash)
    if (others === undefined) this.byHash.set(hash, [value])
    else others.push(value)
  }
}

const readerOf = (arena: Arena, root: UOp, { staged, stored }: Homes): Reader => {
  const slots = new Map<UOp, UOp>()
  const stageReads = new Map<UOp, Array<Read>>()
  const memo = new Values()
  let nextRange = 0

  const slot = (owner: UOp, arg: Partial<ParamArg> = {}): UOp => {
    const known = slots.get(owner)
    if (known !== undefined) return known
    const length = Math.max(1, Shape.maxElements(Shape.of(owner)))
    const param = arena.make("PARAM", storageType(owner.dtype), [Expr.int(arena, length)], { slot: slots.size, ...arg })
    slots.set(owner, param)
    return param
  }

  const read = (node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
    const owner = isStorage(node) ? storageOf(node) : node
    const at = flatten(arena, Shape.of(node), index)
    return Expr.cast(Expr.load(Expr.element(slot(owner), at, gate)), node.dtype)
  }

  const readStage = (node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
    const reads = stageReads.get(node) ?? []
    stageReads.set(node, reads)
    const mark = arena.make("LOCAL", storageType(node.dtype), [], { id: node.id, length: reads.length })
    const load = Expr.load(Expr.element(mark, Expr.int(arena, 0), gate))
    reads.push({ load, index: index.map((at) => Symbolic.simplify(at)), gate })
    return Expr.cast(load, node.dtype)
  }

  const reader: Reader = {
    arena,
    current: root,
    slots,
    stageReads,
    slot,
    newRange: (dim, axis) =>
      dim === 1 ? Expr.int(arena, 0) : Expr.range(arena, Symbolic.simplify(extent(arena, dim)), nextRange++, axis),
    value: (node, index, gate) => {
      const known = memo.get(node, index, gate)
      if (known !== undefined) return known
      const result = reader.compute(node, index, gate)
      const label = node.arena.labelOf(node)
      if (label !== undefined) arena.label(result, label)
      memo.set({ node, index, gate, result })
      return result
    },
    compute: (node, index, gate) => {
      const isElsewhere = node !== reader.current
      if (isStorage(node) || (isElsewhere && stored.has(node) && !isFree(node))) return read(node, index, gate)
      return isElsewhere && staged.has(node) ? readStage(node, index, gate) : computedAt(reader, node, index, gate)
    }
  }
  return reader
}

/** An element of what an operation computes. */
const computedAt = (reader: Reader, node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
  const { arena, value } = reader
  const x = node.src[0]!
  switch (node.op) {
    case "CONST":
      return Expr.constant(arena, node.dtype, argOf(node, "CONST"))
    case "VAR":
      return Expr.variable(arena, varArg(node).name, varArg(node).min, varArg(node).max)
    case "IOTA":
      return index[0]!
    case "CONTIGUOUS":
      return value(x, index, gate)
    case "GATHER":
      return value(x, chosen(reader, node, index, gate), gate)
    case "PAD":
      return paddedAt(reader, node, index, gate)
    case "REDUCE":
      return reducedAt(reader, node, index, gate)
    default:
      return elementwise.has(node.op)
        ? arena.make(node.op, node.dtype, node.src.map((s) => value(s, index, gate)), node.arg)
        : value(x, view(arena, node, index), gate)
  }
}

/** The index of a gathered element in the gather's source. */
const chosen = ({ value }: Reader, node: UOp, index: ReadonlyArray<UOp>, gate?: UOp): ReadonlyArray<UOp> => {
  const rank = Shape.of(node.src[1]!).length
  const row = value(node.src[1]!, index.slice(0, rank), gate)
  return [Expr.cast(row, DType.index), ...index.slice(rank)]
}

const paddedAt = ({ arena, value }: Reader, node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
  const x = node.src[0]!
  const inner: Array<UOp> = []
  let inside: UOp | undefined
  Shape.of(x).forEach((dim, axis) => {
    const lo = Shape.fromUOp(node.src[1 + 2 * axis]!)
    const hi = Shape.fromUOp(node.src[2 + 2 * axis]!)
    const at = index[axis]!
    if (lo === 0 && hi === 0) return void inner.push(at)
    if (lo !== 0) inside = Expr.gated(inside, Expr.not(Expr.lt(at, extent(arena, lo))))
    if (hi !== 0) inside = Expr.gated(inside, Expr.lt(at, Expr.add(extent(arena, dim), extent(arena, lo))))
    inner.push(Expr.sub(at, extent(arena, lo)))
  })
  if (inside === undefined) return value(x, index, gate)
  const there = value(x, inner, Expr.gated(gate, inside))
  return Expr.where(inside, there, Expr.like(there, node.dtype.scalar === "bool" ? false : 0))
}

const reducedAt = ({ newRange, value }: Reader, node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
  const { axes, op } = reduceArg(node)
  const ranges: Array<UOp> = []
  let next = 0
  const inner = Shape.of(node.src[0]!).map((dim, axis) => {
    if (!axes.includes(axis)) return index[next++]!
    const range = newRange(dim, "REDUCE")
    if (range.op === "RANGE") ranges.push(range)
    return range
  })
  return Expr.reduce(op, value(node.src[0]!, inner, gate), ranges)
}

/** The range programs of a stored value or a STORE effect, in order: what is added in memory has one that stores the initial value. */
export const lowerAll = (arena: Arena, root: UOp, homes: Homes, limits: AddLimits): ReadonlyArray<Lowered> =>
  isMadeInMemory(root)
    ? [lower(arena, root, homes), additions(readerOf(arena, root, homes), root, limits)]
    : [lower(arena, root, homes)]

/**
 * Lowers one stored value (or one STORE effect) to a range program in `arena`: an END for each value it stages in
 * workgroup memory, sources first, then the END that stores the root. Of a SCATTER_ADD the initial value.
 */
export const lower = (arena: Arena, root: UOp, homes: Homes): Lowered => {
  const reader = readerOf(arena, root, homes)
  // the output is slot 0
  const isStore = root.op === "STORE"
  const out = reader.slot(isStore ? targetOf(root) : root)
  const computed = isStore ? root.src[1]! : isMadeInMemory(root) ? root.src[0]! : root
  const shape = Shape.of(computed)
  const ranges = shape.map((dim) => reader.newRange(dim, "GLOBAL"))
  const at = isStore ? destination(reader, root.src[0]!, ranges) : flatten(arena, shape, ranges)
  const value = Expr.cast(reader.value(computed, ranges, undefined), out.dtype)
  return lowered(reader, endAt(Expr.store(Expr.element(out, at), value), ranges), {
    apart: ranges.filter((_, axis) => axis !== homes.together?.get(root)),
    shape,
    sources: isMadeInMemory(root) ? [computed] : readBy(root)
  })
}

const additions = (reader: Reader, root: UOp, limits: AddLimits): Lowered => {
  const { end, ...made } = additionsOf(reader, root, limits)
  return lowered(reader, end, made)
}

/** The kernel of an END and of what it stages. */
const lowered = (
  reader: Reader,
  end: UOp,
  { apart, shape, sources }: Pick<Lowered, "sources"> & {
    readonly apart: ReadonlyArray<UOp>
    readonly shape: Shape.Shape
  }
): Lowered => {
  const { ends, places, workgroupBytes } = stagesOf(reader, apart)
  const sink = end.arena.make("SINK", DType.none, [...ends, end])
  return {
    // an index may itself be read from a stage
    ast: places.size === 0 ? sink : graphRewrite(sink, undefined, { pre: stageReading, context: places }),
    storage: [...reader.slots.keys()],
    sources,
    sizes: shape.map(Shape.maxOf),
    workgroupBytes
  }
}

/** What fills the memory of workgroups. */
interface Stages {
  readonly ends: ReadonlyArray<UOp>
  /** What each load of a staged value reads, now that its place is known. */
  readonly places: ReadonlyMap<UOp, UOp>
  readonly workgroupBytes: number
}

/** Stages values, users first: all reads of a value must be known. Workgroups differ in the loops `apart`. */
const stagesOf = (reader: Reader, apart: ReadonlyArray<UOp>): Stages => {
  const filled = new Set<UOp>()
  const places = new Map<UOp, UOp>()
  const ends: Array<UOp> = []
  let workgroupBytes = 0
  for (;;) {
    const node = [...reader.stageReads.keys()].filter((n) => !filled.has(n)).sort((a, b) => b.id - a.id)[0]
    if (node === undefined) return { ends, places, workgroupBytes }
    const stage = stageOf(reader, node, { apart, id: filled.size })
    filled.add(node)
    ends.unshift(stage.end)
    for (const [load, place] of stage.places) places.set(load, place)
    workgroupBytes += stage.bytes
  }
}

/** One staged value: the END that fills its memory, its bytes, and what its readers load. */
const stageOf = (
  reader: Reader,
  node: UOp,
  { apart, id }: { readonly apart: ReadonlyArray<UOp>; readonly id: number }
): { readonly end: UOp; readonly bytes: number; readonly places: ReadonlyArray<readonly [UOp, UOp]> } => {
  const { arena } = reader
  const reads = reader.stageReads.get(node)!
  const own = new Set(apart)
  const windows = Shape.of(node).map((dim, axis) => windowOf(reads, axis, dim, own))
  const loops = windows.map(({ size }) => reader.newRange(size, "LOOP"))
  const kept = windows.flatMap(({ size }, axis) => size === 1 ? [] : [axis])
  const sizes = kept.map((axis) => windows[axis]!.size)
  const inMemory = (index: ReadonlyArray<UOp>): UOp => flatten(arena, sizes, kept.map((axis) => index[axis]!))
  const length = Shape.maxElements(sizes)
  const shared = windows.flatMap(({ start }) => start.op === "CONST" ? [] : [start])
  const memory = arena.make("LOCAL", storageType(node.dtype), shared, { id, length })
  reader.current = node
  const start = windows.map(({ start }, axis) => plus(start, loops[axis]!))
  const computed = Expr.cast(reader.compute(node, start, undefined), memory.dtype)
  const outer = apart.filter((r) => shared.some((at) => openRanges(at).has(r)))
  const end = endAt(Expr.store(Expr.element(memory, inMemory(loops)), computed), [
    ...outer,
    ...kept.map((axis) => loops[axis]!)
  ])
  const places = reads.map(({ gate, index, load }) => {
    const inside = index.map((at) => sumOf(arena, termsOf(at).filter((term) => !dependsOnlyOn(term, own))))
    const at = index.map((whole, axis) => windows[axis]!.isWhole ? whole : inside[axis]!)
    return [load, Expr.load(Expr.element(memory, inMemory(at), gate))] as const
  })
  return { end, bytes: sizes.every((size) => typeof size === "number") ? 4 * length : Infinity, places }
}

/** Reads of staged values, from where these lie. */
const stageReading = make(rules("stage", [
  rule("read", P.node("LOAD"), (_, load, places: ReadonlyMap<UOp, UOp>) => places.get(load))
]))

/** A use of a staged value: the load that stands for it, and which element it wants. */
interface Read {
  readonly load: UOp
  readonly index: ReadonlyArray<UOp>
  readonly gate: UOp | undefined
}

/** The part of an axis that one workgroup computes. */
interface Window {
  readonly start: UOp
  readonly size: Shape.Dim
  /** It is the whole axis. */
  readonly isWhole: boolean
}

const termsOf = (at: UOp): ReadonlyArray<UOp> => at.op === "ADD" ? at.src.flatMap(termsOf) : [at]

const sumOf = (arena: Arena, terms: ReadonlyArray<UOp>): UOp =>
  terms.length === 0 ? Expr.int(arena, 0) : terms.reduce((a, b) => Expr.add(a, b))

/** Whether an index depends on no loop but these, and on no memory. */
const dependsOnlyOn = (at: UOp, own: ReadonlySet<UOp>): boolean =>
  [...openRanges(at)].every((r) => own.has(r)) && !toposort(at).some((n) => n.op === "LOAD")

/**
 * The part of an axis that one workgroup reads. If all reads index it by the same base (a sum over the output loops `own`) plus an
 * offset, a window from that base with the range of the offset; else the whole axis.
 */
const windowOf = (reads: ReadonlyArray<Read>, axis: number, dim: Shape.Dim, own: ReadonlySet<UOp>): Window => {
  const { arena } = reads[0]!.load
  const whole: Window = { start: Expr.int(arena, 0), size: dim, isWhole: true }
  if (dim === 1) return whole
  const parts = reads.map(({ index }) => {
    const terms = termsOf(index[axis]!)
    return {
      start: sumOf(arena, terms.filter((term) => dependsOnlyOn(term, own))),
      rest: Bounds.of(sumOf(arena, terms.filter((term) => !dependsOnlyOn(term, own))))
    }
  })
  const { start } = parts[0]!
  const size = 1 + Math.max(...parts.map(({ rest }) => rest.max))
  if (parts.some((part) => part.start !== start || part.rest.min < 0)) return whole
  if (start.op === "CONST" || !(size < Shape.maxOf(dim))) return whole
  const bounds = Bounds.of(start)
  // predicated reads may have indices out of bounds
  const exists = bounds.min >= 0 && bounds.max + size <= Shape.maxOf(dim)
  return exists || reads.every((read) => read.gate === undefined) ? { start, size, isWhole: false } : whole
}

/** The index into a movement operation's source of element `index` of its result. */
const view = (arena: Arena, node: UOp, index: ReadonlyArray<UOp>): ReadonlyArray<UOp> => {
  const from = Shape.of(node.src[0]!)
  switch (node.op) {
    case "RESHAPE":
      return reshape(arena, from, Shape.of(node), index)
    case "EXPAND":
      return from.map((dim, axis) => dim === 1 ? Expr.int(arena, 0) : index[axis]!)
    case "PERMUTE": {
      const order = argOf(node, "PERMUTE")
      return from.map((_, axis) => index[order.indexOf(axis)]!)
    }
    case "SHRINK":
      return from.map((_, axis) => {
        const start = transfer(node.src[1 + 2 * axis]!, arena)
        return start.op === "CONST" && start.arg === 0 ? index[axis]! : Expr.add(index[axis]!, start)
      })
    case "FLIP": {
      const axes = argOf(node, "FLIP")
      return from.map((dim, axis) =>
        axes.includes(axis)
          ? Expr.sub(Expr.sub(extent(arena, dim), Expr.int(arena, 1)), index[axis]!)
          : index[axis]!
      )
    }
    default:
      throw new Error(`${node.op} cannot be lowered`)
  }
}

/** The flat place in memory of element `index` of a view that is written. */
const destination = (reader: Reader, target: UOp, index: ReadonlyArray<UOp>): UOp => {
  const { arena } = reader
  if (isStorage(target)) return flatten(arena, Shape.of(target), index)
  const from = target.op === "GATHER" ? chosen(reader, target, index) : view(arena, target, index)
  return destination(reader, target.src[0]!, from)
}
