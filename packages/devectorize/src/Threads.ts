import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { groupArg, rangeArg, rebuild, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { isStage } from "@tg/core-uop/Workgroup"
import { GridProblem } from "./GridProblem.ts"

export { GridProblem } from "./GridProblem.ts"

const special = (like: UOp, name: string, size: UOp): UOp => like.arena.make("SPECIAL", DType.index, [size], { name })

/**
 * Maps GLOBAL loops to workgroup indices and LOCAL and GROUP loops to thread indices. Workgroups are one-dimensional:
 * `lidx0 = local * group + g`, the last loop fastest; a reduction with smaller groups uses the low digits of g. Only thread g = 0 of a
 * group stores. Each END maps its loops to the same threads; surplus threads store nothing.
 */
export const addThreads = (kernel: UOp, maxGrid: number): UOp | GridProblem => {
  const { arena } = kernel
  const order = kernel.src.flatMap((end) => end.src.slice(1))
  const globals = order.filter((r, i) => rangeArg(r).axis === "GLOBAL" && order.indexOf(r) === i)
  const replace = new Map<UOp, UOp>(globals.filter(isOnce).map((r) => [r, Expr.int(arena, 0)]))

  const placed = placeOnGrid(globals.filter((r) => !isOnce(r)), maxGrid)
  if (placed instanceof GridProblem) return placed
  let storeGate: UOp | undefined
  placed.forEach((dim, axis) => {
    const number = special(kernel, `gidx${axis}`, dim.size)
    let rest = number
    for (const part of [...dim.parts].reverse()) {
      const value = part.outermost ? rest : Expr.floormod(rest, part.size)
      if (!part.outermost) rest = Expr.floordiv(rest, part.size)
      const known = replace.get(part.range)
      const term = part.stride === 1 ? value : Expr.mul(value, part.stride)
      replace.set(part.range, known === undefined ? term : Expr.add(known, term))
    }
  })
  for (const range of globals.filter((r) => isPadded(r, maxGrid))) {
    // surplus workgroups repeat the last iteration and store nothing
    const [size, value] = [range.src[0]!, replace.get(range)!]
    storeGate = Expr.gated(storeGate, Expr.lt(value, size))
    replace.set(range, Expr.min(value, Expr.sub(size, Expr.int(arena, 1))))
  }

  const phases = kernel.src.map((end): Phase => {
    const groups = toposort(end).filter((n) => n.op === "GROUP_REDUCE").map((n) => groupArg(n).threads)
    const locals = end.src.slice(1).filter((r) => rangeArg(r).axis === "LOCAL")
    const group = Math.max(1, ...groups)
    return { end, locals, group, threads: locals.reduce((n, r) => n * sizeOf(r), group) }
  })
  const group = Math.max(...phases.map((phase) => phase.group))
  const most = Math.max(...phases.map((phase) => phase.threads))
  const threads = Math.ceil(most / group) * group
  const thread = special(kernel, "lidx0", Expr.int(arena, threads))
  for (const reduction of toposort(kernel).filter((n) => n.op === "GROUP_REDUCE")) {
    spread(reduction.src.slice(1), Expr.floormod(thread, groupArg(reduction).threads), replace)
  }
  for (const phase of phases) spread(phase.locals, Expr.floordiv(thread, phase.group), replace)

  const mapped = withoutLoops(substitute(kernel, replace))
  const ends = mapped.src.map((end, i) => {
    const phase = phases[i]!
    const kept = end.src.slice(1).filter((r) => r.op === "RANGE")
    let gate = isStage(phase.end) ? undefined : phase.end.src.slice(1).filter(isOnce).reduce(isRun, storeGate)
    if (phase.group > 1) gate = Expr.gated(gate, Expr.lt(Expr.floormod(thread, phase.group), 1))
    if (phase.threads < threads) gate = Expr.gated(gate, Expr.lt(thread, phase.threads))
    return arena.make("END", DType.none, [gated(end.src[0]!, gate), ...kept])
  })
  return mapped.with(ends)
}

/** One END and the threads that it has work for. */
interface Phase {
  readonly end: UOp
  readonly locals: ReadonlyArray<UOp>
  readonly group: number
  readonly threads: number
}

/** Decomposes a thread index into one digit for each loop, the last one fastest. */
const spread = (loops: ReadonlyArray<UOp>, number: UOp, replace: Map<UOp, UOp>): void => {
  let rest = number
  for (const loop of [...loops].reverse()) {
    replace.set(loop, Expr.floormod(rest, sizeOf(loop)))
    rest = Expr.floordiv(rest, sizeOf(loop))
  }
}

/**
 * Whether a loop of symbolic size has at most one iteration. Nothing depends on its variable, which is 0, so it would not be in the
 * grid, and its body would run even where the size is 0: the store is predicated instead.
 */
const isOnce = (range: UOp): boolean =>
  rangeArg(range).axis === "GLOBAL" && range.src[0]!.op !== "CONST" && Bounds.of(range.src[0]!).max <= 1

const isRun = (gate: UOp | undefined, range: UOp): UOp =>
  Expr.gated(gate, Expr.lt(Expr.int(range.arena, 0), range.src[0]!))

/** Drops the loops that have become threads from the sources of GROUP_REDUCE. */
const withoutLoops = (kernel: UOp): UOp =>
  rebuild(kernel, (node, src) => node.with(node.op === "GROUP_REDUCE" ? src.slice(0, 1) : src))

const sizeOf = (range: UOp): number => Number(range.src[0]!.arg)

const gated = (effect: UOp, gate: UOp | undefined): UOp => {
  if (gate === undefined) return effect
  if (effect.op === "TUPLE") return effect.with(effect.src.map((s) => gated(s, gate)))
  return Expr.storeIf(effect, gate)
}

/** A part of one loop on a grid dimension, with its stride in the loop's value. */
interface Part {
  readonly range: UOp
  readonly size: number
  readonly stride: number
  readonly outermost: boolean
}

interface GridDim {
  readonly size: UOp
  readonly parts: ReadonlyArray<Part>
}

/** Puts loops on at most three grid dimensions: symbolic ones alone, constant ones collapsed as far as the limit allows. */
const placeOnGrid = (ranges: ReadonlyArray<UOp>, maxGrid: number): ReadonlyArray<GridDim> | GridProblem => {
  const dims: Array<GridDim> = []
  let parts: Array<Part> = []
  let size = 1
  const flush = (): void => {
    if (parts.length === 0) return
    const arena = parts[0]!.range.arena
    const [first, ...others] = [...parts].reverse()
    dims.push({ size: Expr.int(arena, size), parts: [{ ...first!, outermost: true }, ...others] })
    parts = []
    size = 1
  }
  for (const range of [...ranges].reverse()) {
    if (range.src[0]!.op !== "CONST") continue
    for (const piece of split(sizeOf(range), maxGrid)) {
      if (piece.size > maxGrid) {
        return new GridProblem({
          message: `a loop of ${sizeOf(range)} workgroups does not fit a grid of ${maxGrid} squared`
        })
      }
      if (size * piece.size > maxGrid) flush()
      parts.push({ range, size: piece.size, stride: piece.stride, outermost: false })
      size *= piece.size
    }
  }
  flush()
  for (const range of [...ranges].reverse()) {
    const dim = range.src[0]!
    if (dim.op === "CONST") continue
    const whole = { range, size: 0, stride: 1, outermost: true }
    if (Bounds.of(dim).max <= maxGrid) dims.push({ size: dim, parts: [whole] })
    else {
      const rows = Expr.floordiv(Expr.add(dim, maxGrid - 1), maxGrid)
      dims.push({ size: Expr.min(dim, maxGrid), parts: [whole] }, {
        size: rows,
        parts: [{ ...whole, stride: maxGrid }]
      })
    }
  }
  return dims.length > 3 ? new GridProblem({ message: `${dims.length} grid dimensions are needed, there are 3` }) : dims
}

interface Piece {
  readonly size: number
  readonly stride: number
}

/** Splits a loop over two dimensions: exactly if a divisor fits, else with the least surplus. */
const split = (size: number, maxGrid: number): ReadonlyArray<Piece> => {
  if (size <= maxGrid) return [{ size, stride: 1 }]
  const inner = divisor(size, maxGrid) ?? Math.ceil(size / Math.ceil(size / maxGrid))
  return [{ size: inner, stride: 1 }, { size: Math.ceil(size / inner), stride: inner }]
}

/** The largest number within the limit that splits the loop into two grid dimensions. */
const divisor = (size: number, maxGrid: number): number | undefined => {
  for (let inner = maxGrid; inner > 1; inner--) if (size % inner === 0 && size / inner <= maxGrid) return inner
  return undefined
}

/** Whether the grid has more workgroups than the loop has iterations. */
const isPadded = (range: UOp, maxGrid: number): boolean => {
  const size = range.src[0]!
  if (size.op !== "CONST") return Bounds.of(size).max > maxGrid
  return sizeOf(range) > maxGrid && divisor(sizeOf(range), maxGrid) === undefined
}
