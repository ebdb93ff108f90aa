import * as DType from "@tg/core-uop/DType"
import { elementwise, movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { reduceArg, type UOp } from "@tg/core-uop/UOp"
import { chain, times } from "./Cost.ts"
import type { Cause, Demand } from "./Explain.ts"

/** Values that are recomputed rather than read, even where a call or a result wants them in memory. */
export const isFree = (node: UOp): boolean => node.op === "CONST" || node.op === "IOTA" || node.op === "VAR"

/** Which values of a function body get memory of their own. Everything else is computed where it is used. */
export interface Placement {
  /** All nodes of the body, sources first; the bodies of calls are not entered. */
  readonly nodes: ReadonlyArray<UOp>
  readonly stored: ReadonlySet<UOp>
  /** Those of the stored values that need not be: they would only be computed more often. */
  readonly movable: ReadonlySet<UOp>
  /** Why a value is stored. */
  readonly causeOf: (value: UOp) => Cause
  /** What one element of a value takes, where it is computed. */
  readonly workOf: (node: UOp) => Pick<Work, "cost" | "iterations">
  /** The roots of the kernels that compute a value, or read it. */
  readonly kernelsOf: (value: UOp, stored: ReadonlySet<UOp>) => ReadonlySet<UOp>
}

const isEffect = (node: UOp): boolean => node.dtype.scalar === "void"

/** Nodes that are memory already. */
export const isStorage = (node: UOp): boolean =>
  node.op === "BUFFER" || node.op === "PARAM" || node.op === "AFTER" || (node.op === "GETTUPLE" && !isEffect(node))

/** The memory under a view chain: the node that owns it. */
export const storageOf = (node: UOp): UOp =>
  node.op === "AFTER" || (movement.has(node.op) && node.op !== "PAD") ? storageOf(node.src[0]!) : node

/** The sources that a node's own body reads: a call's function is opaque. */
const inputs = (node: UOp): ReadonlyArray<UOp> => node.op === "CALL" ? node.src.slice(1) : node.src

/** All nodes under the roots without entering the bodies of calls, sources first. */
export const nodesOf = (roots: ReadonlyArray<UOp>): ReadonlyArray<UOp> => {
  const done = new Set<UOp>()
  const order: Array<UOp> = []
  const stack: Array<{ readonly node: UOp; next: number }> = []
  for (const root of roots) {
    stack.push({ node: root, next: 0 })
    while (stack.length > 0) {
      const top = stack[stack.length - 1]!
      const src = inputs(top.node)
      if (done.has(top.node) || top.next === src.length) {
        stack.pop()
        if (!done.has(top.node)) {
          done.add(top.node)
          order.push(top.node)
        }
        continue
      }
      const child = src[top.next++]!
      if (!done.has(child)) stack.push({ node: child, next: 0 })
    }
  }
  return order
}

const bijective: ReadonlySet<string> = new Set(["RESHAPE", "PERMUTE", "FLIP"])

/** The value under reorderings of the same elements: storing it makes every such view free. */
const base = (node: UOp): UOp => bijective.has(node.op) ? base(node.src[0]!) : node

/** Functions that take several times as long as an addition. */
export const transcendental: ReadonlySet<string> = new Set(["EXP2", "LOG2", "SIN", "SQRT", "FDIV"])

/** Recomputing a transcendental this many times costs more than a kernel that stores it, unless there are few in all. */
const expensiveRepeats = 8
const fewElements = 4096
/** Inlined operations per element beyond which a repeated value is stored, whatever it is made of. */
const maxInlineCost = 4096

const repeats = (expand: UOp): number => {
  const elements = Shape.maxElements(Shape.of(expand.src[0]!))
  return elements === 0 ? 1 : Shape.maxElements(Shape.of(expand)) / elements
}

/** Elements of a value, for one row where the number of rows is symbolic. */
const elementsPerRow = (node: UOp): number => {
  const shape = Shape.of(node)
  return Shape.maxElements(typeof shape[0] === "number" ? shape : shape.slice(1))
}

/** What computing one element inline takes, given what is stored below. */
interface Work {
  readonly cost: number
  /** Iterations of the reductions in it, 0 without any. */
  readonly iterations: number
  readonly transcendental: boolean
  readonly leaves: ReadonlySet<UOp>
}

/** A sum of so few integers is arithmetic like any other: straight code, also inside of a reduction. */
const fewIntegers = 16

/** A reduction over a block of this size, as quantisations have them, is computed again for the elements of the block. */
const blockIterations = 32

/** Operations per element up to which a row's scalar is computed again by whoever needs it. */
const maxRowCost = 2 ** 16

/**
 * One value per row (a norm's scale, a sum of weights): all axes of fixed size are 1. Each thread group that uses it
 * computes it in front of its own loops, which costs less than a kernel of its own and a trip through memory.
 */
const isRowScalar = (node: UOp): boolean => Shape.of(node).every((dim) => typeof dim !== "number" || dim === 1)

const nothing: ReadonlySet<UOp> = new Set()

const union = (sets: ReadonlyArray<ReadonlySet<UOp>>): ReadonlySet<UOp> => {
  const nonEmpty = sets.filter((s) => s.size > 0)
  if (nonEmpty.length === 0) return nothing
  if (nonEmpty.length === 1) return nonEmpty[0]!
  return new Set(nonEmpty.flatMap((s) => [...s]))
}

/**
 * Decides what is stored. A reduction (with the elementwise work after it) is stored where its value would be computed
 * again for every element of an axis that is broadcast later, inside another reduction, or from several places; the
 * rest is inlined. No kernel reads more than `maxReads` buffers.
 */
export const place = (
  roots: ReadonlyArray<UOp>,
  results: ReadonlyArray<UOp>,
  maxReads: number
): Placement => {
  const nodes = nodesOf(roots)
  const must = new Set<UOp>([...results, ...nodes.flatMap(wanted)])
  const stored = new Set<UOp>(must)
  /** What stored a value first. */
  const causes = new Map<UOp, Cause>()
  const onlyShared = new Set<UOp>()
  const work = new Map<UOp, Work>()
  const shared = sites(nodes, roots, must)

  const position = new Map(nodes.map((node, i) => [node, i]))
  const users = new Map<UOp, Array<UOp>>()
  for (const node of nodes) {
    for (const s of inputs(node)) {
      const list = users.get(s)
      if (list === undefined) users.set(s, [node])
      else list.push(node)
    }
  }
  /** Whether all uses of a value go through one value of its shape, which can be stored in its place. */
  const isPassedOn = (node: UOp): boolean => {
    const pending = new Set(users.get(node))
    for (;;) {
      const [first] = [...pending].sort((a, b) => position.get(a)! - position.get(b)!)
      if (first === undefined || !elementwise.has(first.op) || !Shape.equal(Shape.of(first), Shape.of(node))) {
        return false
      }
      if (pending.size === 1) return true
      pending.delete(first)
      for (const user of users.get(first) ?? []) pending.add(user)
    }
  }

  const isLeaf = (node: UOp): boolean => isStorage(node) || (stored.has(node) && !isFree(node))
  const leafWork = (node: UOp): Work => ({
    cost: 1,
    iterations: 0,
    transcendental: false,
    leaves: new Set([node])
  })
  const workOf = (node: UOp): Work => isLeaf(node) ? leafWork(node) : work.get(node)!
  const store = (node: UOp, cause: Cause): void => {
    const target = base(node)
    onlyShared.delete(target)
    if (isStorage(target) || isFree(target)) return
    if (!stored.has(target)) causes.set(target, cause)
    stored.add(target)
  }
  /** One value per block: cheaper to compute where it is used than to store. */
  const isBlockScalar = (w: Work): boolean => w.iterations === blockIterations && w.cost <= maxInlineCost
  const isHeavy = (w: Work): boolean => w.iterations > 0 || w.cost > maxInlineCost

  const viaEdges = (node: UOp): void => {
    const [x, y] = node.src
    switch (node.op) {
      case "EXPAND": {
        const w = workOf(x!)
        const n = repeats(node)
        const expensive = (w.transcendental || base(x!).op === "REDUCE") && n >= expensiveRepeats &&
          elementsPerRow(node) > fewElements
        if (n > 1 && (isHeavy(w) || expensive) && !(isBlockScalar(w) && n <= blockIterations)) {
          store(x!, { _tag: "Repeated", times: n })
        }
        return
      }
      case "REDUCE":
        if (workOf(x!).iterations > 0) store(x!, { _tag: "Reduced", times: reduceLength(node) })
        return
      case "GATHER":
        if (workOf(x!).iterations > 0) store(x!, { _tag: "Gathered" })
        if (isHeavy(workOf(y!))) store(y!, { _tag: "Gathered" })
        return
      case "STORE": {
        // what is overwritten while it is read elsewhere in the same kernel is computed first
        const target = storageOf(x!)
        if (!isLeaf(y!) && [...workOf(y!).leaves].some((leaf) => storageOf(leaf) === target)) {
          stored.add(y!)
          must.add(y!)
          causes.set(y!, { _tag: "Required", by: "overwritten" })
        }
        return
      }
      default:
        return
    }
  }

  const limitReads = (node: UOp): void => {
    if (node.src.length < 2 || node.op === "AFTER" || node.op === "CALL" || node.op === "SINK") return
    // the target of a store is the output, not one of the reads
    const read = node.op === "STORE" ? node.src.slice(1) : node.src
    for (;;) {
      const leaves = union(read.map((s) => workOf(s).leaves))
      if (leaves.size <= maxReads) return
      const widest = read.filter((s) =>
        !isLeaf(base(s))
      ).sort((a, b) => workOf(b).leaves.size - workOf(a).leaves.size)[0]
      if (widest === undefined) return
      store(widest, { _tag: "Bindings", needs: leaves.size + 1, has: maxReads + 1 })
      refresh(widest)
    }
  }

  // a view of a value that has just been stored reads that value
  const refresh = (node: UOp): void => {
    if (isLeaf(node) || !bijective.has(node.op)) return
    refresh(node.src[0]!)
    work.set(node, workOf(node.src[0]!))
  }

  const decide = (): void => {
    for (const node of nodes) {
      viaEdges(node)
      for (const s of node.src) refresh(s)
      limitReads(node)
      const from = movement.has(node.op) || node.op === "REDUCE"
        ? node.src.slice(0, 1)
        : node.op === "CALL"
        ? []
        : node.src
      const ws = from.map(workOf)
      const own = movement.has(node.op) ? 0 : node.op === "REDUCE" ? 1 : node.src.length === 0 ? 0 : 1
      const below = Math.max(0, ...ws.map((x) => x.iterations))
      // what is expanded and not stored is a block's scalar: it does not depend on the place in the block
      const shares = node.op === "EXPAND" && below > 0 ? repeats(node) : 1
      const repeated = node.op === "REDUCE" ? reduceLength(node) : 1
      const isReduction = node.op === "REDUCE" && !(DType.isInteger(node.dtype) && repeated <= fewIntegers)
      const cost = times(chain([own, ...ws.map((x) => x.cost)]), repeated / shares)
      const isCheap = isRowScalar(node) && cost <= maxRowCost && !isEffect(node)
      const w: Work = {
        cost: isCheap ? 1 : cost,
        iterations: isCheap || shares > 1 ? 0 : isReduction ? Math.max(below, 1) * repeated : below,
        transcendental: !isCheap && shares === 1 && (transcendental.has(node.op) || ws.some((x) => x.transcendental)),
        leaves: union(ws.map((x) => x.leaves))
      }
      work.set(node, w)
      const uses = shared.get(node)?.size ?? 0
      if (
        uses > 1 && isHeavy(w) && !isBlockScalar(w) && !movement.has(node.op) && !isStorage(node) && !isEffect(node) &&
        !stored.has(node) && !isPassedOn(node)
      ) {
        stored.add(node)
        onlyShared.add(node)
        causes.set(node, { _tag: "Shared", places: uses })
      }
    }
  }
  // what is stored for a later user may add a buffer to the kernel of an earlier one: such a kernel is looked at again
  for (let before = -1; before < stored.size;) {
    before = stored.size
    decide()
    if ([...stored, ...nodes.filter(isEffect)].every((root) => readsOf(root, stored).size <= maxReads)) break
  }

  // values stored only because several places wanted them, whose users have since come to share one kernel
  const kept = sites(nodes, roots, stored)
  /** The roots of the kernels that compute a value inline. */
  const kernelsOf = (value: UOp, stored: ReadonlySet<UOp>): ReadonlySet<UOp> => {
    const found = new Set<UOp>()
    const above = new Set<UOp>([value])
    for (const node of above) {
      for (const user of users.get(node) ?? []) (stored.has(user) || isEffect(user) ? found : above).add(user)
    }
    return found
  }
  for (const node of [...nodes].reverse()) {
    if (!onlyShared.has(node) || results.includes(node)) continue
    const [site, ...others] = kept.get(node) ?? []
    if (site === undefined || others.length > 0 || !site.once) continue
    stored.delete(node)
    const most = Math.max(...[...kernelsOf(node, stored)].map((root) => readsOf(root, stored).size))
    if (most <= maxReads) continue
    stored.add(node)
    causes.set(node, { _tag: "Bindings", needs: most + 1, has: maxReads + 1 })
  }
  const movable = new Set([...stored].filter((node) => !must.has(node)))
  const demandOf = (node: UOp): Demand =>
    isEffect(node) ? "effect" : results.includes(node) ? "output" : node.op === "CONTIGUOUS" ? "contiguous" : "argument"
  const causeOf = (node: UOp): Cause => causes.get(node) ?? { _tag: "Required", by: demandOf(node) }
  return { nodes, stored, movable, kernelsOf, causeOf, workOf: (node) => work.get(node)! }
}

/** Values that must be in memory, whatever it costs. */
const wanted = (node: UOp): ReadonlyArray<UOp> =>
  node.op === "CALL" ? node.src.slice(1).filter((arg) => !isStorage(arg)) : node.op === "CONTIGUOUS" ? [node] : []

/** The memory that a kernel reads, its root not counted. */
const readsOf = (root: UOp, stored: ReadonlySet<UOp>): ReadonlySet<UOp> => {
  const reads = new Set<UOp>()
  const seen = new Set<UOp>([root])
  const visit = (node: UOp): void => {
    if (seen.has(node)) return
    seen.add(node)
    if (isStorage(node)) reads.add(storageOf(node))
    else if (stored.has(node) && !isFree(node)) reads.add(node)
    else for (const s of node.src) visit(s)
  }
  const computed = root.op === "STORE" ? root.src.slice(1) : isEffect(root) || isStorage(root) ? [] : root.src
  for (const s of computed) visit(s)
  return reads
}

const reduceLength = (node: UOp): number => {
  const shape = Shape.of(node.src[0]!)
  return reduceArg(node).axes.reduce((n, axis) => n * Math.max(1, Shape.maxOf(shape[axis]!)), 1)
}

/** Places are counted up to here. */
export const mostPlaces = 4

/** A place where values are computed: a kernel's root and the chain of views and reductions on the way to it. */
interface Site {
  readonly text: string
  /** Each element is computed there once: nothing on the way repeats it. */
  readonly once: boolean
}

/** For each node, the distinct places it is computed at. Users at one place share the value for nothing. */
const sites = (
  nodes: ReadonlyArray<UOp>,
  roots: ReadonlyArray<UOp>,
  stored: ReadonlySet<UOp>
): ReadonlyMap<UOp, ReadonlySet<Site>> => {
  const known = new Map<string, Site>()
  const intern = (text: string, once: boolean): Site => {
    const site = known.get(text)
    if (site !== undefined) return site
    const made = { text: String(known.size), once }
    known.set(text, made)
    return made
  }
  const found = new Map<UOp, Set<Site>>()
  const addTo = (node: UOp, site: Site): void => {
    const set = found.get(node)
    if (set === undefined) found.set(node, new Set([site]))
    else if (set.size < mostPlaces) set.add(site)
  }
  for (const root of roots) addTo(root, intern(`root ${root.id}`, true))
  for (const node of [...nodes].reverse()) {
    const own = stored.has(node) || isEffect(node) ? [intern(`root ${node.id}`, true)] : [...found.get(node) ?? []]
    const changes = movement.has(node.op) || node.op === "REDUCE" || node.op === "GATHER"
    for (const site of own) {
      const once = site.once && bijective.has(node.op)
      const below = changes ? intern(`${node.id} at ${site.text}`, once) : site
      for (const s of inputs(node)) {
        addTo(s, node.op === "GATHER" && s === node.src[0] ? intern(`x ${node.id} at ${site.text}`, false) : below)
      }
    }
  }
  return found
}
