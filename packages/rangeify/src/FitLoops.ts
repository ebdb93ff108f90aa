/** Strip-mining: splits the loops of a kernel into pieces, each with a smaller footprint in its buffers. */
import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { openRanges, rangeArg, rebuild, reduceArg, slotOf, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { endOf } from "@tg/core-uop/View"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { flatten } from "./Indexing.ts"
import { storageType } from "./Lower.ts"
import type { Ref } from "./Schedule.ts"
import { replaceRanges } from "./SplitRanges.ts"
import { type Access, type Sizes, spanOf, windowFor } from "./Windows.ts"

/** A range program with one store, and the memory of its PARAM slots. */
export interface Kernel {
  readonly ast: UOp
  readonly args: ReadonlyArray<Ref>
}

/** Allocates a temporary of so many words. */
export type Temporary = (words: number) => Ref

/** The loops over outputs. */
export const outputsOf = (kernel: UOp): ReadonlyArray<UOp> => endOf(kernel.src[0]!).loops

/** Iterations of a loop; for a symbolic size, the most there can be. */
const iterations = (range: UOp): number => Bounds.of(range).max + 1

/** An INDEX node where these loops stand at their first iteration. */
export const atFirst = (node: UOp, ranges: ReadonlyArray<UOp>): UOp =>
  reindexed(node, new Map(ranges.map((range) => [range, Expr.int(range.arena, 0)])))

/** An INDEX node in the first `count` iterations of a loop, which shows the width of a piece. */
const inFirst = (node: UOp, range: UOp, count: number): UOp =>
  reindexed(node, new Map([[range, Expr.range(range.arena, count, rangeArg(range).id, rangeArg(range).axis)]]))

const reindexed = (node: UOp, replace: ReadonlyMap<UOp, UOp>): UOp => Symbolic.simplify(substitute(node, replace))

/** Whether one window holds everything that an INDEX node can reach. */
export const fits = (node: UOp, sizes: Sizes): boolean => windowFor(spanOf(node), sizes) !== undefined

const widthOf = (node: UOp): number => spanOf(node).hi - spanOf(node).lo

/** The largest number up to `most` with a monotone property, by bisection; 0 if none has it. */
export const largest = (most: number, holds: (n: number) => boolean): number => {
  let [low, high] = [0, most]
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (holds(middle)) low = middle
    else high = middle - 1
  }
  return low
}

/** A loop and the length of the pieces to cut it into. */
export interface Cut {
  readonly range: UOp
  readonly length: number
}

/** How many pieces a cut makes. */
export const pieces = ({ length, range }: Cut): number => Math.ceil(iterations(range) / length)

/**
 * Even pieces of at most `most` iterations. Multiples of 64 where that is possible: pieces of rows of any size then start
 * where windows do, and differ in nothing but their windows.
 */
const evenly = (range: UOp, most: number): Cut => {
  const count = iterations(range)
  const grain = [64, 16, 4].find((g) => most >= g) ?? 1
  const whole = most - most % grain
  return { range, length: Math.min(whole, Math.ceil(count / Math.ceil(count / whole) / grain) * grain) }
}

/** One piece of a loop: its new loop, unless it has one iteration, and the value of the loop variable. */
interface Piece {
  readonly loops: ReadonlyArray<UOp>
  readonly value: UOp
}

const piecesOf = (cut: Cut, id: (piece: number) => number): ReadonlyArray<Piece> => {
  const { length, range } = cut
  const { arena } = range
  const size = range.src[0]!
  const count = iterations(range)
  return Array.from({ length: pieces(cut) }, (_, i): Piece => {
    const start = i * length
    const left = Expr.min(Expr.sub(size, start), length)
    const own = size.op === "CONST"
      ? Expr.int(arena, Math.min(length, count - start))
      : Symbolic.simplify(start === 0 ? left : Expr.max(left, 0))
    if (own.op === "CONST" && own.arg === 1) return { loops: [], value: Expr.int(arena, start) }
    const loop = Expr.range(arena, own, id(i), rangeArg(range).axis)
    return { loops: [loop], value: Expr.add(loop, start) }
  })
}

/** The output loop whose single iterations have the smallest footprint, and the longest pieces that fit a window. */
export const outputToCut = (kernel: UOp, accesses: ReadonlyArray<Access>, sizes: Sizes): Cut => {
  const candidates = outputsOf(kernel).filter((range) =>
    iterations(range) > 1 && accesses.some(({ node }) => openRanges(node).has(range))
  )
  const score = (range: UOp): number => accesses.reduce((sum, { node }) => sum + widthOf(inFirst(node, range, 1)), 0)
  const best = candidates.map((range) => ({ range, score: score(range) })).reduce((a, b) => b.score < a.score ? b : a)
  const helped = accesses.filter(({ node }) => fits(inFirst(node, best.range, 1), sizes))
  const most = largest(
    iterations(best.range) - 1,
    (n) => helped.length > 0 && helped.every(({ node }) => fits(inFirst(node, best.range, n), sizes))
  )
  return evenly(best.range, Math.max(1, most))
}

/** The kernel once for each piece of an output loop. */
export const cutOutput = ({ args, ast }: Kernel, cut: Cut): ReadonlyArray<Kernel> =>
  piecesOf(cut, () => rangeArg(cut.range).id).map(({ loops, value }) => ({
    ast: Symbolic.simplify(replaceRanges(ast, new Map([[cut.range, loops]]), new Map([[cut.range, value]]))),
    args
  }))

/** A reduction loop, strip-mined so that one of these accesses fits a window; undefined if there is none. */
export const reductionToCut = (kernel: UOp, accesses: ReadonlyArray<Access>, sizes: Sizes): Cut | undefined => {
  const outputs = outputsOf(kernel)
  for (const { node } of accesses) {
    const ranges = [...openRanges(node)].filter((range) => rangeArg(range).axis === "REDUCE" && iterations(range) > 1)
    const inOne = (range: UOp): UOp => atFirst(inFirst(node, range, 1), outputs)
    const best = ranges.filter((range) => fits(inOne(range), sizes))
      .sort((a, b) => widthOf(inOne(a)) - widthOf(inOne(b)))[0]
    if (best === undefined) continue
    const most = (of: (n: number) => UOp): number => largest(iterations(best) - 1, (n) => fits(of(n), sizes))
    const free = most((n) => inFirst(node, best, n))
    return evenly(best, Math.max(1, free === 0 ? most((n) => atFirst(inFirst(node, best, n), outputs)) : free))
  }
  return undefined
}

/** The reductions over a loop, and numbers for new loops. */
const reductionsOver = (kernel: UOp, range: UOp) => {
  const nodes = toposort(kernel)
  return {
    reductions: nodes.filter((node) => node.op === "REDUCE" && node.src.indexOf(range) > 0),
    nextId: 1 + Math.max(...nodes.filter((node) => node.op === "RANGE").map((node) => rangeArg(node).id))
  }
}

const reducedIn = (reduction: UOp, x: UOp, range: UOp, { loops, value }: Piece): UOp =>
  Expr.reduce(
    reduceArg(reduction).op,
    substitute(x, new Map([[range, value]])),
    reduction.src.slice(1).flatMap((r) => r === range ? loops : [r])
  )

/** Splits each reduction over the loop into one for each piece, and combines their results. */
export const cutReduction = (kernel: Kernel, cut: Cut): Kernel => {
  const { ast, args } = kernel
  const { nextId, reductions } = reductionsOver(ast, cut.range)
  const parts = piecesOf(cut, (i) => nextId + i)
  const cutUp = rebuild(ast, (node, src) =>
    reductions.includes(node)
      ? parts.map((piece) => reducedIn(node, src[0]!, cut.range, piece))
        .reduce((a, b) => Expr.alu(reduceArg(node).op, a, b))
      : node.with(src))
  return { ast: Symbolic.simplify(cutUp), args }
}

/**
 * A split reduction over several kernels: each piece adds its part to the partial result of the one before, in a temporary; the
 * last piece is computed in the original kernel. Only the first of several reductions over the loop is split.
 */
export const chainReduction = (
  { args, ast }: Kernel,
  cut: Cut,
  temporary: Temporary
): ReadonlyArray<Kernel> => {
  const { arena } = ast
  const { nextId, reductions: [reduction] } = reductionsOver(ast, cut.range)
  const { op } = reduceArg(reduction!)
  const [x] = reduction!.src
  const stored = storageType(x!.dtype)
  const parts = piecesOf(cut, () => nextId)
  const open = [...openRanges(reduction!)].sort((a, b) => rangeArg(a).id - rangeArg(b).id)
  const words = open.reduce((n, range) => n * iterations(range), 1)
  const slots = 1 + Math.max(...toposort(ast).filter((n) => n.op === "PARAM").map(slotOf))
  const memory = (slot: number): UOp => arena.make("PARAM", stored, [Expr.int(arena, words)], { slot })
  const partial = (slot: number): UOp => Expr.element(memory(slot), flatten(arena, open.map(iterations), open))
  const combined = (piece: Piece, before: number | undefined): UOp => {
    const own = reducedIn(reduction!, x!, cut.range, piece)
    return before === undefined ? own : Expr.alu(op, Expr.cast(Expr.load(partial(before)), x!.dtype), own)
  }
  // loops around the reduction, whatever they are in the kernel, are outputs of its parts
  const asOutputs = new Map(
    open.map((r) => [r, arena.make("RANGE", r.dtype, r.src, { ...rangeArg(r), axis: "GLOBAL" })])
  )
  const all: Array<Ref> = [...args]
  const kernels: Array<Kernel> = []
  for (const [i, piece] of parts.entries()) {
    const before = i === 0 ? undefined : slots + i - 1
    const value = combined(piece, before)
    if (i === parts.length - 1) {
      kernels.push({ ast: Symbolic.simplify(substitute(ast, new Map([[reduction!, value]]))), args: [...all] })
      break
    }
    all[slots + i] = temporary(words)
    const store = Expr.store(partial(slots + i), Expr.cast(value, stored))
    const end = substitute(arena.make("END", DType.none, [store, ...open]), asOutputs)
    kernels.push({ ast: Symbolic.simplify(arena.make("SINK", DType.none, [end])), args: [...all] })
  }
  return kernels
}
