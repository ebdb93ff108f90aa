import { accessOf, storeOf } from "@tg/core-uop/View"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { comparison, elementwise, type ReduceOp } from "@tg/core-uop/Op"
import type { RendererCaps } from "@tg/core-uop/Program"
import { openRanges, rangeArg, reduceArg, toposort, type UOp } from "@tg/core-uop/UOp"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { sum, tree } from "./Sum.ts"

const width = 4

/** What stands for an expanded loop variable: one of its values, or all of them as vector lanes. */
type Lane = number | "lanes"
type Env = ReadonlyMap<UOp, Lane>

const axisOf = (range: UOp): string => rangeArg(range).axis
const isExpanded = (range: UOp): boolean => axisOf(range) === "UPCAST" || axisOf(range) === "UNROLL"
const sizeOf = (range: UOp): number => Number(range.src[0]!.arg)
const isWide = (range: UOp): boolean => isExpanded(range) && range.src[0]!.op === "CONST" && sizeOf(range) === width

/** All assignments of values to the ranges, the last one fastest. */
const assignments = (ranges: ReadonlyArray<UOp>): ReadonlyArray<ReadonlyArray<readonly [UOp, number]>> =>
  ranges.reduce<ReadonlyArray<ReadonlyArray<readonly [UOp, number]>>>(
    (list, range) =>
      list.flatMap((head) => Array.from({ length: sizeOf(range) }, (_, i) => [...head, [range, i] as const])),
    [[]]
  )

const bind = (env: Env, entries: Iterable<readonly [UOp, Lane]>): Env => new Map([...env, ...entries])

const all = <A>(list: ReadonlyArray<A>): boolean => list.every((x) => x === list[0])

/** Whether the indices are neighbours `i, i+1, ...` that start at a multiple of their number. */
const areNeighbours = (at: ReadonlyArray<UOp>): boolean =>
  at.every((x, i) => i === 0 || Symbolic.difference(x, at[0]!) === i) && Symbolic.divisor(at[0]!) % at.length === 0

/**
 * Replaces UPCAST and UNROLL loops by copies and vector lanes (spec `opted` to `expanded`). At most one such loop is
 * open as lanes at any place: along outputs the one that makes the store contiguous, in a reduction the one along which
 * most loads are contiguous. Everything else is copied.
 */
export const expand = (kernel: UOp, caps: Pick<RendererCaps, "lanes" | "hasGrid">): UOp => {
  const { arena } = kernel
  const memo = new Map<UOp, Map<string, UOp>>()
  const vectors = caps.lanes.includes(width)

  const keyOf = (node: UOp, env: Env): string => {
    let text = ""
    for (const range of openRanges(node)) {
      const lane = env.get(range)
      if (lane !== undefined) text += `${range.id}=${lane};`
    }
    return text
  }

  /** The open range that stands for lanes at this node. */
  const lanesRange = (node: UOp, env: Env): UOp | undefined => {
    for (const range of openRanges(node)) if (env.get(range) === "lanes") return range
    return undefined
  }

  const expanded = (node: UOp, env: Env): UOp => {
    let byEnv = memo.get(node)
    if (byEnv === undefined) memo.set(node, byEnv = new Map())
    const key = keyOf(node, env)
    const known = byEnv.get(key)
    if (known !== undefined) return known
    const result = compute(node, env)
    arena.inherit(result, node)
    byEnv.set(key, result)
    return result
  }

  const index = (node: UOp, env: Env): UOp => Symbolic.simplify(expanded(node, env))

  /** The node once for each lane. */
  const perLane = <A>(range: UOp, env: Env, f: (env: Env) => A): ReadonlyArray<A> =>
    Array.from({ length: width }, (_, i) => f(bind(env, [[range, i]])))

  const stack = (lanes: ReadonlyArray<UOp>): UOp =>
    all(lanes) ? lanes[0]! : arena.make("STACK", DType.withLanes(lanes[0]!.dtype, width), lanes)

  const compute = (node: UOp, env: Env): UOp => {
    switch (node.op) {
      case "RANGE": {
        const lane = env.get(node)
        if (lane === undefined) return node
        return lane === "lanes" ? stack(perLane(node, env, (e) => expanded(node, e))) : Expr.int(arena, lane)
      }
      case "LOAD":
        return load(node, env)
      case "REDUCE":
        return reduction(node, env)
      default:
        break
    }
    if (node.src.length === 0) return node
    const range = lanesRange(node, env)
    if (
      range !== undefined &&
      (node.dtype === DType.index || (comparison.has(node.op) && node.src[0]!.dtype === DType.index))
    ) {
      return stack(perLane(range, env, (e) => index(node, e)))
    }
    const src = node.src.map((s) => expanded(s, env))
    if (!elementwise.has(node.op)) return node.with(src)
    const lanes = Math.max(...src.map((s) => s.dtype.lanes)) as DType.Lanes
    return arena.make(
      node.op,
      DType.withLanes(node.dtype, lanes),
      src.map((s) => s.dtype.lanes === lanes ? s : Expr.splat(s, lanes)),
      node.arg
    )
  }

  const load = (node: UOp, env: Env): UOp => {
    const { at, buffer, gate } = accessOf(node)
    const range = lanesRange(node, env)
    const one = (e: Env): UOp =>
      Expr.load(Expr.element(buffer, index(at, e), gate === undefined ? undefined : index(gate, e)))
    if (range === undefined) return laneOfCopies(node, env, one) ?? one(env)
    const scalars = perLane(range, env, one)
    const element = scalars[0]!.src[0]!
    const places = scalars.map(accessOf)
    if (all(places.map((p) => p.gate)) && !all(scalars) && areNeighbours(places.map((p) => p.at))) {
      return Expr.load(element, width)
    }
    return stack(scalars)
  }

  /**
   * Where the copies of a load along an expanded loop are neighbours, they are lanes of one load. Not on a CPU, which
   * loads a single value into all lanes.
   */
  const laneOfCopies = (node: UOp, env: Env, one: (env: Env) => UOp): UOp | undefined => {
    if (!vectors || !caps.hasGrid) return undefined
    for (const range of openRanges(node)) {
      const copy = env.get(range)
      if (typeof copy !== "number" || !isWide(range) || stepOf(accessOf(node).at, range) !== 1) continue
      const scalars = perLane(range, env, one)
      const places = scalars.map(accessOf)
      if (!all(places.map((p) => p.gate)) || !areNeighbours(places.map((p) => p.at))) continue
      return Expr.lane(Expr.load(scalars[0]!.src[0]!, width), copy)
    }
    return undefined
  }

  const reduction = (node: UOp, env: Env): UOp => {
    const { op } = reduceArg(node)
    const ranges = node.src.slice(1)
    const inside = vectors ? widest(node, ranges.filter(isWide)) : undefined
    const outer = lanesRange(node, env)
    // lanes along the outputs stay where loads are contiguous there: copies of the body are added to each lane's sum
    const own = outer !== undefined && widest(node, [outer]) !== undefined ? undefined : inside
    const groups = ranges.filter((r) => axisOf(r) === "GROUP")
    if (own !== undefined && outer !== undefined) {
      return groups.length > 0
        ? stack(perLane(outer, env, (e) => expanded(node, e)))
        : joinAll(op, perLane(outer, env, (e) => partialOf(node, e, own)))
    }
    const reduced = partialOf(node, env, own)
    const joined = own === undefined ? reduced : join(op, reduced)
    const threads = groups.reduce((n, r) => n * sizeOf(r), 1)
    if (threads === 1) return joined
    // the loops stay among the sources until they are mapped to threads
    const grouped = (value: UOp): UOp => arena.make("GROUP_REDUCE", value.dtype, [value, ...groups], { op, threads })
    return joined.dtype.lanes === 1
      ? grouped(joined)
      : stack(Array.from({ length: width }, (_, i) => grouped(Expr.lane(joined, i))))
  }

  /** A reduction of this thread, with the lanes of `own` not joined yet. */
  const partialOf = (node: UOp, env: Env, own: UOp | undefined): UOp => {
    const { op } = reduceArg(node)
    const [x, ...ranges] = node.src as [UOp, ...Array<UOp>]
    const copies = assignments(ranges.filter((r) => isExpanded(r) && r !== own))
    const lane: ReadonlyArray<readonly [UOp, Lane]> = own === undefined ? [] : [[own, "lanes"]]
    const values = copies.map((copy) => expanded(x, bind(bind(env, copy), lane)))
    const lanes = own === undefined ? Math.max(...values.map((v) => v.dtype.lanes)) as DType.Lanes : width
    const parts = values.map((v) => v.dtype.lanes === lanes ? v : Expr.splat(v, lanes))
    // products with lanes of outputs are added one by one: a product and a sum are one instruction
    const partial = lanesRange(node, env) !== undefined && own === undefined
      ? parts.reduce((a, b) => Expr.alu(op, a, b))
      : op === "ADD"
      ? sum(parts)
      : tree(parts, (a, b) => Expr.alu(op, a, b))
    const serial = ranges.filter((r) => axisOf(r) === "REDUCE")
    return Expr.reduce(op, partial, serial)
  }

  /** Combines the lanes of a vector, pairwise. */
  const join = (op: ReduceOp, x: UOp): UOp =>
    Expr.alu(op, Expr.alu(op, Expr.lane(x, 0), Expr.lane(x, 1)), Expr.alu(op, Expr.lane(x, 2), Expr.lane(x, 3)))

  /** The joins of four vectors, as a vector: the same pairs, of all four at once. */
  const joinAll = (op: ReduceOp, vectors: ReadonlyArray<UOp>): UOp => {
    if (all(vectors)) return join(op, vectors[0]!)
    const pairs = (a: UOp, b: UOp): UOp => {
      const take = (first: number): UOp =>
        stack([Expr.lane(a, first), Expr.lane(a, first + 2), Expr.lane(b, first), Expr.lane(b, first + 2)])
      return Expr.alu(op, take(0), take(1))
    }
    const [a, b, c, d] = vectors as [UOp, UOp, UOp, UOp]
    return pairs(pairs(a, b), pairs(c, d))
  }

  const ends = kernel.src.map((end) => {
    const store = end.src[0]!
    const { at, buffer, gate, value } = storeOf(store)
    const ranges = end.src.slice(1)
    const contiguous = (range: UOp): boolean =>
      areNeighbours(perLane(range, new Map(ranges.filter(isExpanded).map((r) => [r, 0])), (e) => index(at, e)))
    const wide = vectors ? ranges.filter(isWide) : []
    // a CPU computes results that are far apart in one vector all the same
    const own = wide.find(contiguous) ?? (caps.hasGrid ? undefined : wide[0])
    const stores = assignments(ranges.filter((r) => isExpanded(r) && r !== own)).flatMap((copy) => {
      const env = bind(new Map(), copy)
      const element = (e: Env): UOp =>
        Expr.element(buffer, index(at, e), gate === undefined ? undefined : index(gate, e))
      if (own === undefined) return [Expr.store(element(env), expanded(value, env))]
      const vector = expanded(value, bind(env, [[own, "lanes"]]))
      const elements = perLane(own, env, element)
      return areNeighbours(elements.map((x) => x.src[1]!)) && all(elements.map((x) => x.src[2]))
        ? [Expr.store(elements[0]!, vector.dtype.lanes === 1 ? Expr.splat(vector, width) : vector)]
        : elements.map((x, i) => Expr.store(x, Expr.lane(vector, i)))
    })
    const body = stores.length === 1 ? stores[0]! : arena.make("TUPLE", DType.none, stores)
    return arena.make("END", DType.none, [body, ...ranges.filter((r) => !isExpanded(r))])
  })
  return kernel.with(ends)
}

/** The unrolled loop along which most of the reduction's loads are contiguous, if any is. */
const widest = (reduction: UOp, candidates: ReadonlyArray<UOp>): UOp | undefined => {
  if (candidates.length === 0) return undefined
  const loads = toposort(reduction.src[0]!).filter((n) => n.op === "LOAD")
  const score = (range: UOp): number => loads.filter((n) => stepOf(accessOf(n).at, range) === 1).length
  const best = candidates.map((range) => ({ range, score: score(range) })).sort((a, b) => b.score - a.score)[0]!
  return best.score > 0 ? best.range : undefined
}
