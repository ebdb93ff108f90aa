import * as Bounds from "./Bounds.ts"
import { evaluateScalar, type Vars } from "./EvaluateOps.ts"
import * as Print from "./Print.ts"
import { groupArg, isAccumulating, isThread, openRanges, toposort, type UOp } from "./UOp.ts"

/** A dimension of the values of a kernel: a loop variable or a hardware index. */
export interface Axis {
  readonly node: UOp
  readonly size: number
  /** The threads of a group combine their values, so their axis is never tiled. */
  readonly whole: boolean
}

/** One node to evaluate. */
export interface Step {
  readonly node: UOp
  /** Positions in `Plan.axes`, ascending: the node's value is an array over them. */
  readonly axes: ReadonlyArray<number>
  /** Number of the enclosing block loops whose axis the value depends on, counted from the outside. */
  readonly level: number
}

/** How one END is evaluated: some axes are tiled, and loop-invariant nodes are hoisted to the outermost level that allows them. */
export interface Plan {
  readonly end: UOp
  readonly axes: ReadonlyArray<Axis>
  readonly steps: ReadonlyArray<Step>
  /** Tile length of every axis; the whole size of one that is not tiled. */
  readonly block: ReadonlyArray<number>
  /** Tiled axes, outermost loop first. */
  readonly loops: ReadonlyArray<number>
  readonly axisOf: ReadonlyMap<UOp, number>
}

interface Load {
  readonly axes: ReadonlyArray<number>
  readonly weight: number
}

/** Elements evaluated in all, when the loops over tiles are nested in this order. */
const work = (
  loads: ReadonlyArray<Load>,
  sizes: ReadonlyArray<number>,
  block: ReadonlyArray<number>,
  loops: ReadonlyArray<number>
): number => {
  const trips = loops.map((axis) => Math.ceil(sizes[axis]! / block[axis]!))
  let total = 0
  for (const { axes, weight } of loads) {
    let n = weight
    for (const axis of axes) n *= block[axis]!
    let deepest = -1
    loops.forEach((axis, i) => axes.includes(axis) && (deepest = i))
    for (let i = 0; i <= deepest; i++) n *= trips[i]!
    total += n
  }
  return total
}

const largest = (loads: ReadonlyArray<Load>, block: ReadonlyArray<number>): number =>
  loads.reduce((m, { axes }) => Math.max(m, axes.reduce((n, axis) => n * block[axis]!, 1)), 1)

const permutations = <A>(items: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> =>
  items.length <= 1
    ? [items]
    : items.flatMap((x, i) => permutations(items.filter((_, j) => j !== i)).map((rest) => [x, ...rest]))

/** All orders of a few axes; rotations and reversed rotations of many. */
const orders = (items: ReadonlyArray<number>): ReadonlyArray<ReadonlyArray<number>> => {
  if (items.length <= 4) return permutations(items)
  return items.flatMap((_, i) => {
    const turned = [...items.slice(i), ...items.slice(0, i)]
    return [turned, turned.toReversed()]
  })
}

/** Tiles axes, in this order, until no value has more than `limit` elements. */
const cut = (
  loads: ReadonlyArray<Load>,
  sizes: ReadonlyArray<number>,
  order: ReadonlyArray<number>,
  limit: number
): Array<number> => {
  const block = [...sizes]
  for (const axis of order) {
    const over = loads.filter((load) => load.axes.includes(axis))
    const size = largest(over, block)
    if (largest(loads, block) <= limit) break
    if (size > limit) block[axis] = Math.max(1, Math.floor(block[axis]! * limit / size))
  }
  return block
}

/** The cheapest tiling and order of the loops over tiles. */
const chooseBlocks = (
  loads: ReadonlyArray<Load>,
  sizes: ReadonlyArray<number>,
  candidates: ReadonlyArray<number>,
  limit: number
): Pick<Plan, "block" | "loops"> => {
  if (largest(loads, sizes) <= limit) return { block: sizes, loops: [] }
  let best: Pick<Plan, "block" | "loops"> | undefined
  let bestWork = Infinity
  let bestLargest = Infinity
  for (const order of orders(candidates)) {
    const block = cut(loads, sizes, order, limit)
    const size = Math.max(limit, largest(loads, block))
    for (const loops of orders(candidates.filter((axis) => block[axis]! < sizes[axis]!))) {
      const cost = work(loads, sizes, block, loops)
      if (size < bestLargest || (size === bestLargest && cost < bestWork)) {
        best = { block, loops }
        bestWork = cost
        bestLargest = size
      }
    }
  }
  return best ?? { block: sizes, loops: [] }
}

/** Adds the SPECIALs to `openRanges`: every thread has its own value, which nothing closes. */
const dependencies = (nodes: ReadonlyArray<UOp>): ReadonlyMap<UOp, ReadonlySet<UOp>> => {
  const specials = new Map<UOp, Set<UOp>>()
  const lidx0 = nodes.find(isThread)
  for (const node of nodes) {
    const found = new Set<UOp>()
    if (node.op === "SPECIAL") found.add(node)
    else for (const s of node.src) for (const special of specials.get(s)!) found.add(special)
    if (node.op === "GROUP_REDUCE" && groupArg(node).threads > 1) {
      if (lidx0 === undefined) throw new Error(`${Print.line(node)}: the kernel has no thread index lidx0`)
      found.add(lidx0)
    }
    specials.set(node, found)
  }
  return new Map(nodes.map((node) => [node, new Set([...specials.get(node)!, ...openRanges(node)])]))
}

/** One more than the largest value of an index expression. */
export const extentOf = (index: UOp, vars: Vars): number =>
  index.op === "RANGE" ? Math.max(0, evaluateScalar(index.src[0]!, vars)) : Bounds.of(index).max + 1

/** Plans `END(STORE or TUPLE of STOREs, ...ranges)`; undefined when a loop around the stores has no iterations. */
export const make = (end: UOp, vars: Vars, limit: number): Plan | undefined => {
  const stores = end.src[0]?.op === "TUPLE" ? end.src[0].src : end.src.slice(0, 1)
  if (end.op !== "END" || stores.some((store) => store.op !== "STORE")) {
    throw new Error(`${Print.line(end)}: a kernel's roots are END of STORE`)
  }
  const nodes = toposort(...stores)
  const open = dependencies(nodes)
  const name = (n: UOp): string => n.is("SPECIAL") ? n.arg.name : ""
  const special = nodes.filter((n) => n.op === "SPECIAL").toSorted((a, b) => name(a) < name(b) ? -1 : 1)
  const outer = [...special, ...end.src.slice(1)]
  const inner = nodes.filter((n) => n.op === "RANGE" && !outer.includes(n))
  const accumulates = stores.some(isAccumulating)
  const around = new Set(stores.flatMap((store) => [...open.get(store)!]))
  for (const node of around) {
    if (!outer.includes(node)) throw new Error(`${Print.line(node)}: a loop variable is used outside its loop`)
  }
  const axes = [...outer, ...inner].map((node): Axis => ({
    node,
    size: Math.max(0, evaluateScalar(node.src[0]!, vars)),
    whole: name(node).startsWith("lidx")
  }))
  if (axes.some((axis, i) => i < outer.length && axis.size === 0)) return undefined
  const axisOf = new Map(axes.map((axis, i) => [axis.node, i]))
  const axesOf = (of: Iterable<UOp>): ReadonlyArray<number> =>
    [...of].map((n) => axisOf.get(n)!).toSorted((a, b) => a - b)

  const loads: Array<Load> = []
  const evaluated: Array<{ readonly node: UOp; readonly axes: ReadonlyArray<number> }> = []
  for (const node of nodes) {
    if (node.op === "PARAM" || node.op === "LOCAL" || node.op === "INDEX") continue
    // what does not depend on a loop is added in each of its iterations
    const own = axesOf(isAccumulating(node) ? new Set([...open.get(node)!, ...end.src.slice(1)]) : open.get(node)!)
    evaluated.push({ node, axes: own })
    const touched = node.op === "REDUCE" ? axesOf(new Set([...open.get(node)!, ...node.src.slice(1)])) : own
    loads.push({ axes: touched, weight: node.dtype.lanes })
  }
  const sizes = axes.map((axis) => axis.size)
  const candidates = axesOf(around).filter((axis) => !axes[axis]!.whole && sizes[axis]! > 1)
  // tiles would be added in another order
  const { block, loops } = chooseBlocks(loads, sizes, candidates, accumulates ? Infinity : limit)
  const steps = evaluated.map((step): Step => {
    let level = 0
    loops.forEach((axis, i) => step.axes.includes(axis) && (level = i + 1))
    return { ...step, level }
  })
  return { end, axes, steps, block, loops, axisOf }
}
