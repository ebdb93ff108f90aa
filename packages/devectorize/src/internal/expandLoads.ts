/** Loads of expanded loops: one vector load where the copies are contiguous. */
import * as Expr from "@tg/core-uop/Expr"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { areNeighbours, stepOf } from "@tg/pattern-matcher/Affine"
import { elementAt, type Env, type Expansion, isWide, lanesRange, perLane, same, stack, width } from "./lanes.ts"

/** A LOAD at a place. */
export const expandLoad = (x: Expansion, node: UOp, env: Env): UOp => {
  const access = accessOf(node)
  const one = (e: Env): UOp => Expr.load(elementAt(x, access, e))
  const range = lanesRange(node, env)
  if (range === undefined) return laneOfCopies(x, node, env, one) ?? one(env)
  const scalars = perLane(range, env, one)
  return !same(scalars) && isContiguous(scalars) ? Expr.load(accessOf(scalars[0]!).element, width) : stack(scalars)
}

/** Whether the loads are contiguous and aligned, with one gate. */
const isContiguous = (loads: ReadonlyArray<UOp>): boolean => {
  const places = loads.map(accessOf)
  return same(places.map((p) => p.gate)) && areNeighbours(places.map((p) => p.at))
}

/**
 * Copies of a load that are contiguous along an expanded loop become lanes of one vector load. Not on a CPU, which has loads that
 * broadcast a scalar.
 */
const laneOfCopies = ({ caps, vectors }: Expansion, node: UOp, env: Env, one: (env: Env) => UOp): UOp | undefined => {
  if (!vectors || !caps.hasGrid) return undefined
  for (const range of openRanges(node)) {
    const copy = env.get(range)
    if (typeof copy !== "number" || !isWide(range) || stepOf(accessOf(node).at, range) !== 1) continue
    const scalars = perLane(range, env, one)
    if (isContiguous(scalars)) return Expr.lane(Expr.load(accessOf(scalars[0]!).element, width), copy)
  }
  return undefined
}
