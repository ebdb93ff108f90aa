import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { type Arena, argOf, openRanges, reduceArg, toposort, transfer, type UOp, varArg } from "@tg/core-uop/UOp"
import { graphRewrite } from "@tg/pattern-matcher/GraphRewrite"
import { make, rule, rules } from "@tg/pattern-matcher/PatternMatcher"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import * as P from "@tg/pattern-matcher/UPat"
import { hoistFactors } from "./HoistFactors.ts"
import { extent, flatten, plus, reshape } from "./Indexing.ts"
import { mergeReductions } from "./MergeReductions.ts"
import { isFree, isStorage, storageOf } from "./Placement.ts"
import { renumberRanges, splitRanges } from "./SplitRanges.ts"

/** A kernel under construction: what it computes and, by PARAM slot, the storage nodes it touches. */
export interface Lowered {
  readonly ast: UOp
  readonly storage: ReadonlyArray<UOp>
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

/**
 * Lowers one stored value (or one STORE effect) to a range program in `arena`: an END for each value it stages in
 * workgroup memory, sources first, then the END that stores the root.
 */
export const lower = (arena: Arena, root: UOp, { staged, stored, together }: Homes): Lowered => {
  const slots = new Map<UOp, UOp>()
  const memo = new Map<string, UOp>()
  let nextRange = 0

  const newRange = (dim: Shape.Dim, axis: "GLOBAL" | "LOOP" | "REDUCE"): UOp =>
    dim === 1 ? Expr.int(arena, 0) : Expr.range(arena, Symbolic.simplify(extent(arena, dim)), nextRange++, axis)

  const slot = (owner: UOp): UOp => {
    const known = slots.get(owner)
    if (known !== undefined) return known
    const length = Math.max(1, Shape.maxElements(Shape.of(owner)))
    const param = arena.make("PARAM", storageType(owner.dtype), [Expr.int(arena, length)], { slot: slots.size })
    slots.set(owner, param)
    return param
  }

  const both = (gate: UOp | undefined, condition: UOp): UOp =>
    gate === undefined ? condition : Expr.and(gate, condition)

  const read = (node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
    const owner = isStorage(node) ? storageOf(node) : node
    const at = flatten(arena, Shape.of(node), index)
    return Expr.cast(Expr.load(Expr.element(slot(owner), at, gate)), node.dtype)
  }

  const value = (node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
    const key = `${node.id}:${index.map((i) => i.id).join()}:${gate?.id}`
    const known = memo.get(key)
    if (known !== undefined) return known
    const result = compute(node, index, gate)
    const label = node.arena.labelOf(node)
    if (label !== undefined) arena.label(result, label)
    memo.set(key, result)
    return result
  }

  /** Reads of each staged value; where they lie in its memory is known when all of them are. */
  const stageReads = new Map<UOp, Array<Read>>()
  const readStage = (node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
    const reads = stageReads.get(node) ?? []
    stageReads.set(node, reads)
    const mark = arena.make("LOCAL", storageType(node.dtype), [], { id: node.id, length: reads.length })
    const load = Expr.load(Expr.element(mark, Expr.int(arena, 0), gate))
    reads.push({ load, index: index.map((at) => Symbolic.simplify(at)), gate })
    return Expr.cast(load, node.dtype)
  }

  let current = root
  const compute = (node: UOp, index: ReadonlyArray<UOp>, gate: UOp | undefined): UOp => {
    if (isStorage(node) || (node !== current && stored.has(node) && !isFree(node))) return read(node, index, gate)
    if (node !== current && staged.has(node)) return readStage(node, index, gate)
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
      case "GATHER": {
        const rank = Shape.of(node.src[1]!).length
        const row = value(node.src[1]!, index.slice(0, rank), gate)
        return value(x, [Expr.cast(row, DType.index), ...index.slice(rank)], gate)
      }
      case "PAD": {
        const inner: Array<UOp> = []
        let inside: UOp | undefined
        Shape.of(x).forEach((dim, axis) => {
          const lo = Shape.fromUOp(node.src[1 + 2 * axis]!)
          const hi = Shape.fromUOp(node.src[2 + 2 * axis]!)
          const at = index[axis]!
          if (lo === 0 && hi === 0) return void inner.push(at)
          if (lo !== 0) inside = both(inside, Expr.not(Expr.lt(at, extent(arena, lo))))
          if (hi !== 0) inside = both(inside, Expr.lt(at, Expr.add(extent(arena, dim), extent(arena, lo))))
          inner.push(Expr.sub(at, extent(arena, lo)))
        })
        if (inside === undefined) return value(x, index, gate)
        const inner_ = value(x, inner, both(gate, inside))
        return Expr.where(inside, inner_, Expr.like(inner_, node.dtype.scalar === "bool" ? false : 0))
      }
      case "REDUCE": {
        const { axes, op } = reduceArg(node)
        const shape = Shape.of(x)
        const ranges: Array<UOp> = []
        let next = 0
        const inner = shape.map((dim, axis) => {
          if (!axes.includes(axis)) return index[next++]!
          const range = newRange(dim, "REDUCE")
          if (range.op === "RANGE") ranges.push(range)
          return range
        })
        return Expr.reduce(op, value(x, inner, gate), ranges)
      }
      default:
        if (elementwise.has(node.op)) {
          return arena.make(node.op, node.dtype, node.src.map((s) => value(s, index, gate)), node.arg)
        }
        return value(x, view(arena, node, index), gate)
    }
  }

  // the output is slot 0
  const isStore = root.op === "STORE"
  const target = isStore ? storageOf(root.src[0]!) : root
  const out = slot(target)
  const computed = isStore ? root.src[1]! : root
  const shape = Shape.of(computed)
  const ranges = shape.map((dim) => newRange(dim, "GLOBAL"))
  const at = isStore
    ? destination(arena, root.src[0]!, ranges)
    : flatten(arena, shape, ranges)
  const element = Expr.element(out, at)
  const stores = Expr.store(element, Expr.cast(value(computed, ranges, undefined), out.dtype))
  const end = (store: UOp, loops: ReadonlyArray<UOp>): UOp =>
    arena.make("END", DType.none, [store, ...loops.filter((r) => r.op === "RANGE")])
  const ends = [end(stores, ranges)]

  // a stage is lowered when all its readers are: sources have smaller numbers
  const apart = ranges.filter((_, axis) => axis !== together?.get(root))
  const filled = new Map<UOp, UOp>()
  const replaced = new Map<UOp, UOp>()
  let workgroupBytes = 0
  for (;;) {
    const node = [...stageReads.keys()].filter((n) => !filled.has(n)).sort((a, b) => b.id - a.id)[0]
    if (node === undefined) break
    const reads = stageReads.get(node)!
    const own = new Set(apart)
    const windows = Shape.of(node).map((dim, axis) => windowOf(reads, axis, dim, own))
    const loops = windows.map(({ size }) => newRange(size, "LOOP"))
    const kept = windows.flatMap(({ size }, axis) => size === 1 ? [] : [axis])
    const sizes = kept.map((axis) => windows[axis]!.size)
    const inMemory = (index: ReadonlyArray<UOp>): UOp => flatten(arena, sizes, kept.map((axis) => index[axis]!))
    const length = Shape.maxElements(sizes)
    workgroupBytes += sizes.every((size) => typeof size === "number") ? 4 * length : Infinity
    const shared = windows.flatMap(({ start }) => start.op === "CONST" ? [] : [start])
    const memory = arena.make("LOCAL", storageType(node.dtype), shared, { id: filled.size, length })
    current = node
    const place = windows.map(({ start }, axis) => plus(start, loops[axis]!))
    const computed = Expr.cast(compute(node, place, undefined), memory.dtype)
    const outer = apart.filter((r) => shared.some((at) => openRanges(at).has(r)))
    ends.unshift(end(Expr.store(Expr.element(memory, inMemory(loops)), computed), [
      ...outer,
      ...kept.map((axis) => loops[axis]!)
    ]))
    filled.set(node, memory)
    for (const { gate, index, load } of reads) {
      const inside = index.map((at) => sumOf(arena, termsOf(at).filter((term) => !dependsOnlyOn(term, own))))
      const at = index.map((whole, axis) => windows[axis]!.isWhole ? whole : inside[axis]!)
      replaced.set(load, Expr.load(Expr.element(memory, inMemory(at), gate)))
    }
  }
  return {
    // an index may itself be read from a stage
    ast: graphRewrite(arena.make("SINK", DType.none, ends), undefined, { pre: stageReading, context: replaced }),
    storage: [...slots.keys()],
    sizes: shape.map(Shape.maxOf),
    workgroupBytes
  }
}

/** Reads of staged values, from where these lie. */
const stageReading = make(rules("stage", [
  rule("read", P.node("LOAD"), (_, load, places: ReadonlyMap<UOp, UOp>) => places.get(load))
]))

/** A lowered kernel with its loops split, shared and numbered. */
export const finish = (kernel: UOp): UOp => {
  const split = Symbolic.simplify(splitRanges(hoistFactors(Symbolic.simplify(kernel))))
  const last = split.src.length - 1
  // a workgroup that needs only r // 6 stages nothing for each r % 6
  const ends = split.src.map((end, i) => {
    const open = openRanges(end.src[0]!)
    return i === last ? end : end.with([end.src[0]!, ...end.src.slice(1).filter((r) => open.has(r))])
  })
  return renumberRanges(mergeReductions(split.with(ends)))
}

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
 * What of an axis the readers of one workgroup want: if all of them index it by the same sum over output loops (`own`) and
 * a rest that is small, then from that sum on as much as the rest spans; else all of it.
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
  // readers behind a gate may name places that do not exist
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
const destination = (arena: Arena, target: UOp, index: ReadonlyArray<UOp>): UOp =>
  isStorage(target)
    ? flatten(arena, Shape.of(target), index)
    : destination(arena, target.src[0]!, view(arena, target, index))
