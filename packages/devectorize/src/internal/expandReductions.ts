/** Reductions over expanded loops: over copies, over lanes, and over threads. */
import type * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { ReduceOp } from "@tg/core-uop/Op"
import { openRanges, reduceArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { stepOf } from "@tg/pattern-matcher/Affine"
import { sum, tree } from "../Sum.ts"
import {
  assignments,
  axisOf,
  bind,
  type Env,
  type Expansion,
  isExpanded,
  isWide,
  type Lane,
  lanesRange,
  perLane,
  same,
  sizeOf,
  stack,
  widened,
  width
} from "./lanes.ts"

/** A REDUCE at a place. */
export const expandReduction = (x: Expansion, node: UOp, env: Env): UOp => {
  const { op, tile } = reduceArg(node)
  if (tile !== undefined) {
    const src = node.src.map((source) => x.expanded(source, env))
    return node.arena.make("REDUCE", src[0]!.dtype, src, node.arg)
  }
  const ranges = node.src.slice(1)
  const inside = x.vectors ? widest(node.src[0]!, ranges.filter(isWide)) : undefined
  const outer = lanesRange(node, env)
  // loads are contiguous along the outputs: vectorise there, and accumulate the copies of the reduction lane by lane
  const own = outer !== undefined && widest(node.src[0]!, [outer]) !== undefined ? undefined : inside
  const groups = ranges.filter((r) => axisOf(r) === "GROUP")
  if (own !== undefined && outer !== undefined) {
    return groups.length > 0
      ? stack(perLane(outer, env, (e) => x.expanded(node, e)))
      : joinAll(op, perLane(outer, env, (e) => partialOf(x, node, e, own)))
  }
  if (own !== undefined && x.caps.hasGrid && heldBy(node, own) > mostHeld) {
    return overThreads(op, partialOf(x, node, env, own, "joined"), groups)
  }
  const reduced = partialOf(x, node, env, own)
  return overThreads(op, own === undefined ? reduced : join(op, reduced), groups)
}

/** Reduces over threads. The loops stay among the sources until they are mapped to threads. */
const overThreads = (op: ReduceOp, own: UOp, groups: ReadonlyArray<UOp>): UOp => {
  const threads = groups.reduce((n, r) => n * sizeOf(r), 1)
  if (threads === 1) return own
  const grouped = (value: UOp): UOp => own.arena.make("GROUP_REDUCE", value.dtype, [value, ...groups], { op, threads })
  return own.dtype.lanes === 1
    ? grouped(own)
    : stack(Array.from({ length: width }, (_, i) => grouped(Expr.lane(own, i))))
}

/**
 * Registers that a thread may hold for accumulators and loads of a reduction, of the 255 that it can have: with vectors of four as accumulators, a float
 * product of 16 tokens that holds 200 takes 25.6 us on an H200, and 17.3 with scalars; one of 8 tokens that holds 144 takes 8.9 and 9.7.
 */
const mostHeld = 160

/** Registers for vectors of lanes of one reduction: an accumulator for each copy of it, and what one iteration loads for all of them. */
const heldBy = (node: UOp, own: UOp): number => {
  const copies = (ranges: Iterable<UOp>): number =>
    [...ranges].filter((range) => isExpanded(range) && range !== own).reduce((n, range) => n * sizeOf(range), 1)
  const loads = toposort(node.src[0]!).filter(({ op }) => op === "LOAD")
    .filter((load) => openRanges(accessOf(load).at).has(own))
  return width * loads.reduce((sum, load) => sum + copies(openRanges(accessOf(load).at)), copies(openRanges(node)))
}

/** The partial result of one thread: with the lanes of `own` not reduced yet, or joined in each iteration. */
const partialOf = (
  { expanded }: Expansion,
  node: UOp,
  env: Env,
  own: UOp | undefined,
  form: "lanes" | "joined" = "lanes"
): UOp => {
  const { op } = reduceArg(node)
  const [x, ...ranges] = node.src as [UOp, ...Array<UOp>]
  const copies = assignments(ranges.filter((r) => isExpanded(r) && r !== own))
  const lane: ReadonlyArray<readonly [UOp, Lane]> = own === undefined ? [] : [[own, "lanes"]]
  const values = copies.map((copy) => expanded(x, bind(bind(env, copy), lane)))
  const lanes = own === undefined ? Math.max(...values.map((v) => v.dtype.lanes)) as DType.Lanes : width
  const parts = values.map((v) => widened(v, lanes))
  // a chain, not a tree: each product is contracted with its addition (fused multiply-add)
  const partial = lanesRange(node, env) !== undefined && own === undefined
    ? parts.reduce((a, b) => Expr.alu(op, a, b))
    : op === "ADD"
    ? sum(parts)
    : tree(parts, (a, b) => Expr.alu(op, a, b))
  const serial = ranges.filter((r) => axisOf(r) === "REDUCE")
  return Expr.reduce(op, form === "joined" ? join(op, partial) : partial, serial)
}

/** The horizontal reduction of a vector, pairwise. */
const join = (op: ReduceOp, x: UOp): UOp =>
  Expr.alu(op, Expr.alu(op, Expr.lane(x, 0), Expr.lane(x, 1)), Expr.alu(op, Expr.lane(x, 2), Expr.lane(x, 3)))

/** The horizontal reductions of four vectors as one vector, by transposing in pairs: the same order as `join`. */
const joinAll = (op: ReduceOp, vectors: ReadonlyArray<UOp>): UOp => {
  if (same(vectors)) return join(op, vectors[0]!)
  const pairs = (a: UOp, b: UOp): UOp => {
    const take = (first: number): UOp =>
      stack([Expr.lane(a, first), Expr.lane(a, first + 2), Expr.lane(b, first), Expr.lane(b, first + 2)])
    return Expr.alu(op, take(0), take(1))
  }
  const [a, b, c, d] = vectors as [UOp, UOp, UOp, UOp]
  return pairs(pairs(a, b), pairs(c, d))
}

/** The unrolled loop along which most of a value's loads are contiguous, if any is. */
export const widest = (value: UOp, candidates: ReadonlyArray<UOp>): UOp | undefined => {
  if (candidates.length === 0) return undefined
  const loads = toposort(value).filter((n) => n.op === "LOAD")
  const score = (range: UOp): number => loads.filter((n) => stepOf(accessOf(n).at, range) === 1).length
  const best = candidates.map((range) => ({ range, score: score(range) })).sort((a, b) => b.score - a.score)[0]!
  return best.score > 0 ? best.range : undefined
}
