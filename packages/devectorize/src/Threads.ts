import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { rangeArg, substitute, toposort, type UOp } from "@tg/core-uop/UOp"

/** A launch grid the device cannot express. */
export interface GridProblem {
  readonly message: string
}

const special = (like: UOp, name: string, size: UOp): UOp =>
  like.arena.make("SPECIAL", DType.index, [size], { name })

/**
 * Maps GLOBAL loops to workgroup numbers and LOCAL and GROUP loops to thread numbers. The threads of a workgroup are one
 * line: `lidx0 = local * group + g`, the last LOCAL loop fastest. Only thread g = 0 of a group stores.
 */
export const addThreads = (kernel: UOp, maxGrid: number): UOp | GridProblem => {
  const { arena } = kernel
  const ranges = [...new Set(toposort(kernel).filter((n) => n.op === "RANGE"))]
  const ofAxis = (axis: string): ReadonlyArray<UOp> =>
    ranges.filter((r) => rangeArg(r).axis === axis).sort((a, b) => rangeArg(a).id - rangeArg(b).id)
  const order = kernel.src.flatMap((end) => end.src.slice(1))
  const globals = order.filter((r, i) => rangeArg(r).axis === "GLOBAL" && order.indexOf(r) === i)
  const locals = order.filter((r, i) => rangeArg(r).axis === "LOCAL" && order.indexOf(r) === i)
  const groups = ofAxis("GROUP")
  const replace = new Map<UOp, UOp>()

  const placed = placeOnGrid(globals, maxGrid)
  if (typeof placed === "string") return { message: placed }
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

  const group = groups.length === 0 ? 1 : sizeOf(groups[0]!)
  const threads = locals.reduce((n, r) => n * sizeOf(r), group)
  let storeGate: UOp | undefined
  if (threads > 1 || locals.length > 0 || groups.length > 0) {
    const thread = special(kernel, "lidx0", Expr.int(arena, threads))
    if (groups.length > 0) {
      const g = Expr.floormod(thread, group)
      for (const r of groups) replace.set(r, g)
      storeGate = Expr.lt(g, 1)
    }
    let rest = Expr.floordiv(thread, group)
    for (const r of [...locals].reverse()) {
      replace.set(r, Expr.floormod(rest, sizeOf(r)))
      rest = Expr.floordiv(rest, sizeOf(r))
    }
  }

  const mapped = substitute(kernel, replace)
  const ends = mapped.src.map((end) => {
    const kept = end.src.slice(1).filter((r) => r.op === "RANGE")
    return arena.make("END", DType.none, [gated(end.src[0]!, storeGate), ...kept])
  })
  return mapped.with(ends)
}

const sizeOf = (range: UOp): number => Number(range.src[0]!.arg)

const gated = (effect: UOp, gate: UOp | undefined): UOp => {
  if (gate === undefined) return effect
  if (effect.op === "TUPLE") return effect.with(effect.src.map((s) => gated(s, gate)))
  const [buffer, at, own] = effect.src[0]!.src
  return Expr.store(Expr.element(buffer!, at!, own === undefined ? gate : Expr.and(own, gate)), effect.src[1]!)
}

/** A run of iterations of one loop on a grid dimension: the loop's value grows by `stride` with it. */
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

/** Puts loops on at most three grid dimensions: symbolic ones alone, constant ones merged as far as the limit allows. */
const placeOnGrid = (ranges: ReadonlyArray<UOp>, maxGrid: number): ReadonlyArray<GridDim> | string => {
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
    const pieces = split(sizeOf(range), maxGrid)
    if (pieces === undefined) return `a loop of ${sizeOf(range)} workgroups does not split into grid dimensions of ${maxGrid}`
    for (const piece of pieces) {
      if (size * piece.size > maxGrid) flush()
      parts.push({ range, size: piece.size, stride: piece.stride, outermost: false })
      size *= piece.size
    }
  }
  flush()
  for (const range of [...ranges].reverse()) {
    if (range.src[0]!.op === "CONST") continue
    dims.push({ size: range.src[0]!, parts: [{ range, size: 0, stride: 1, outermost: true }] })
  }
  return dims.length > 3 ? `${dims.length} grid dimensions are needed, there are 3` : dims
}

const split = (size: number, maxGrid: number): ReadonlyArray<{ readonly size: number; readonly stride: number }> | undefined => {
  if (size <= maxGrid) return [{ size, stride: 1 }]
  for (let inner = maxGrid; inner > 1; inner--) {
    if (size % inner === 0 && size / inner <= maxGrid) {
      return [{ size: inner, stride: 1 }, { size: size / inner, stride: inner }]
    }
  }
  return undefined
}
