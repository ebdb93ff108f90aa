import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { comparison, elementwise } from "@tg/core-uop/Op"
import type { RendererCaps } from "@tg/core-uop/Program"
import { isAccumulating, isCoherent, openRanges, type UOp } from "@tg/core-uop/UOp"
import { accessOf, endOf, storeOf } from "@tg/core-uop/View"
import { areNeighbours } from "@tg/pattern-matcher/Affine"
import { expandLoad } from "./internal/expandLoads.ts"
import { expandReduction, widest } from "./internal/expandReductions.ts"
import {
  assignments,
  bind,
  elementAt,
  type Env,
  type Expansion,
  indexAt,
  isExpanded,
  isWide,
  lanesRange,
  perLane,
  same,
  stack,
  widened,
  width
} from "./internal/lanes.ts"

/**
 * Unrolls UPCAST and UNROLL loops into copies and vector lanes (spec `opted` to `unrolled`). At most one such loop is
 * vectorised at any place: along outputs the one that makes the store contiguous (on a CPU, if none does, the one along which most loads are contiguous, or any of four iterations), in a
 * reduction the one along which most loads are contiguous. All others are copied.
 */
export const expand = (kernel: UOp, caps: Pick<RendererCaps, "lanes" | "hasGrid">): UOp => {
  const memo = new Map<UOp, Map<string, UOp>>()
  const x: Expansion = {
    caps,
    vectors: caps.lanes.includes(width),
    expanded: (node, env) => {
      let byEnv = memo.get(node)
      if (byEnv === undefined) memo.set(node, byEnv = new Map())
      const key = keyOf(node, env)
      const known = byEnv.get(key)
      if (known !== undefined) return known
      const result = compute(x, node, env)
      kernel.arena.inherit(result, node)
      byEnv.set(key, result)
      return result
    }
  }
  return kernel.with(kernel.src.map((end) => expandEnd(x, end)))
}

/** The memo key of a node: the lanes and copies that its value depends on. */
const keyOf = (node: UOp, env: Env): string => {
  let text = ""
  for (const range of openRanges(node)) {
    const lane = env.get(range)
    if (lane !== undefined) text += `${range.id}=${lane};`
  }
  return text
}

const compute = (x: Expansion, node: UOp, env: Env): UOp => {
  switch (node.op) {
    case "RANGE":
      return loopVariable(x, node, env)
    case "LOAD":
      return expandLoad(x, node, env)
    case "REDUCE":
      return expandReduction(x, node, env)
    default:
      break
  }
  if (node.src.length === 0) return node
  const range = lanesRange(node, env)
  // indices stay scalar
  if (range !== undefined && isOfIndices(node)) return stack(perLane(range, env, (e) => indexAt(x, node, e)))
  const src = node.src.map((s) => x.expanded(s, env))
  if (!elementwise.has(node.op)) return node.with(src)
  const lanes = Math.max(...src.map((s) => s.dtype.lanes)) as DType.Lanes
  const dtype = DType.withLanes(node.dtype, lanes)
  return node.arena.make(node.op, dtype, src.map((s) => widened(s, lanes)), node.arg)
}

const isOfIndices = (node: UOp): boolean =>
  node.dtype === DType.index || (comparison.has(node.op) && node.src[0]!.dtype === DType.index)

const loopVariable = (x: Expansion, range: UOp, env: Env): UOp => {
  const lane = env.get(range)
  if (lane === undefined) return range
  return lane === "lanes" ? stack(perLane(range, env, (e) => x.expanded(range, e))) : Expr.int(range.arena, lane)
}

/** The copies of an END's store: vector stores where one loop makes it contiguous. */
const expandEnd = (x: Expansion, end: UOp): UOp => {
  const { loops, stores: [store] } = endOf(end)
  const target = storeOf(store!)
  const zeros = new Map(loops.filter(isExpanded).map((r) => [r, 0]))
  const isContiguous = (range: UOp): boolean => areNeighbours(perLane(range, zeros, (e) => indexAt(x, target.at, e)))
  const wide = x.vectors ? loops.filter(isWide) : []
  // a CPU computes results that are far apart in one vector all the same, of neighbours that it reads if there are any
  const own = wide.find(isContiguous) ?? (x.caps.hasGrid ? undefined : widest(target.value, wide) ?? wide[0])
  const stores = assignments(loops.filter((r) => isExpanded(r) && r !== own)).flatMap((copy) => {
    const env = bind(new Map(), copy)
    if (own === undefined) return [store!.with([elementAt(x, target, env), x.expanded(target.value, env)])]
    const vector = x.expanded(target.value, bind(env, [[own, "lanes"]]))
    return storesOf(store!, perLane(own, env, (e) => elementAt(x, target, e)), vector)
  })
  const body = stores.length === 1 ? stores[0]! : end.arena.make("TUPLE", DType.none, stores)
  return end.arena.make("END", DType.none, [body, ...loops.filter((r) => !isExpanded(r))])
}

/**
 * One vector store where the elements are contiguous and aligned with one gate, else one store for each lane: vectors are not added
 * atomically.
 */
const storesOf = (store: UOp, elements: ReadonlyArray<UOp>, vector: UOp): ReadonlyArray<UOp> =>
  !(isAccumulating(store) && isCoherent(accessOf(store).buffer)) &&
    areNeighbours(elements.map((element) => accessOf(element).at)) &&
    same(elements.map((element) => accessOf(element).gate))
    ? [store.with([elements[0]!, widened(vector, width)])]
    : elements.map((element, i) => store.with([element, Expr.lane(vector, i)]))
