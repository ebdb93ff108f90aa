import * as DType from "@tg/core-uop/DType"
import { reach } from "@tg/core-uop/Fixpoint"
import { elementwise, movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { reduceArg, type UOp } from "@tg/core-uop/UOp"
import { chain, times } from "./Cost.ts"
import type { Cause, Demand, Home } from "./Explain.ts"

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
  /** Where a value that need not be stored may live, what is taken first of equally cheap homes first. */
  readonly homesOf: (value: UOp) => ReadonlyArray<Home>
  /** The nodes of the body that have a node as a source. */
  readonly users: ReadonlyMap<UOp, ReadonlyArray<UOp>>
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

/** The memory that a STORE writes: under a view chain, or under rows that are chosen from one. */
export const targetOf = (store: UOp): UOp => {
  const target = store.src[0]!
  return storageOf(target.op === "GATHER" ? target.src[0]! : target)
}

/** What a kernel reads to compute a root: of what a STORE writes, which rows are chosen. */
const readBy = (root: UOp): ReadonlyArray<UOp> => {
  if (root.op !== "STORE") return isEffect(root) || isStorage(root) ? [] : root.src
  const target = root.src[0]!
  return target.op === "GATHER" ? [target.src[1]!, ...root.src.slice(1)] : root.src.slice(1)
}

/** The sources that a node's own body reads: a call's function is opaque. */
export const inputs = (node: UOp): ReadonlyArray<UOp> => node.op === "CALL" ? node.src.slice(1) : node.src

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

/** What is being decided about a body. */
interface Deciding {
  readonly nodes: ReadonlyArray<UOp>
  /** Buffers that the kernel which computes a node may read. */
  readonly readsAt: (node: UOp) => number
  readonly users: ReadonlyMap<UOp, ReadonlyArray<UOp>>
  /** The places at which each node is computed, while only what must be stored is. */
  readonly shared: ReadonlyMap<UOp, ReadonlySet<Site>>
  readonly must: Set<UOp>
  readonly stored: Set<UOp>
  /** What stored a value first. */
  readonly causes: Map<UOp, Cause>
  /** Values that are stored for no other reason than that several places want them. */
  readonly onlyShared: Set<UOp>
  readonly work: Map<UOp, Work>
}

const usersOf = (nodes: ReadonlyArray<UOp>): ReadonlyMap<UOp, ReadonlyArray<UOp>> => {
  const users = new Map<UOp, Array<UOp>>()
  for (const node of nodes) {
    for (const s of inputs(node)) {
      const list = users.get(s)
      if (list === undefined) users.set(s, [node])
      else list.push(node)
    }
  }
  return users
}

/** Whether all uses of each value go through one value of its shape, which can be stored in its place. */
const passedOn = ({ nodes, users }: Deciding): (node: UOp) => boolean => {
  const position = new Map(nodes.map((node, i) => [node, i]))
  return (node) => {
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
}

const isLeaf = ({ stored }: Deciding, node: UOp): boolean => isStorage(node) || (stored.has(node) && !isFree(node))

const workOf = (state: Deciding, node: UOp): Work =>
  isLeaf(state, node)
    ? { cost: 1, iterations: 0, transcendental: false, leaves: new Set([node]) }
    : state.work.get(node)!

const store = ({ causes, onlyShared, stored }: Deciding, node: UOp, cause: Cause): void => {
  const target = base(node)
  onlyShared.delete(target)
  if (isStorage(target) || isFree(target)) return
  if (!stored.has(target)) causes.set(target, cause)
  stored.add(target)
}

/** A view of a value that has just been stored reads that value. */
const refresh = (state: Deciding, node: UOp): void => {
  if (isLeaf(state, node) || !bijective.has(node.op)) return
  refresh(state, node.src[0]!)
  state.work.set(node, workOf(state, node.src[0]!))
}

/** One value per block: cheaper to compute where it is used than to store. */
const isBlockScalar = (w: Work): boolean => w.iterations === blockIterations && w.cost <= maxInlineCost
const isHeavy = (w: Work): boolean => w.iterations > 0 || w.cost > maxInlineCost

/** Stores what this node would compute again and again. */
const storeRepeated = (state: Deciding, node: UOp): void => {
  const [x, y] = node.src
  switch (node.op) {
    case "EXPAND": {
      const w = workOf(state, x!)
      const n = repeats(node)
      const expensive = (w.transcendental || base(x!).op === "REDUCE") && n >= expensiveRepeats &&
        elementsPerRow(node) > fewElements
      if (n > 1 && (isHeavy(w) || expensive) && !(isBlockScalar(w) && n <= blockIterations)) {
        store(state, x!, { _tag: "Repeated", times: n })
      }
      return
    }
    case "REDUCE":
      if (workOf(state, x!).iterations > 0) store(state, x!, { _tag: "Reduced", times: reduceLength(node) })
      return
    case "GATHER":
      if (workOf(state, x!).iterations > 0) store(state, x!, { _tag: "Gathered" })
      if (isHeavy(workOf(state, y!))) store(state, y!, { _tag: "Gathered" })
      return
    case "STORE": {
      // what is overwritten while it is read elsewhere in the same kernel is computed first
      const target = targetOf(node)
      if (!isLeaf(state, y!) && [...workOf(state, y!).leaves].some((leaf) => storageOf(leaf) === target)) {
        state.stored.add(y!)
        state.must.add(y!)
        state.causes.set(y!, { _tag: "Required", by: "overwritten" })
      }
      return
    }
    default:
      return
  }
}

/** Stores sources of a node until it reads no more buffers than a kernel may. */
const limitReads = (state: Deciding, node: UOp): void => {
  const maxReads = state.readsAt(node)
  if (node.src.length < 2 || node.op === "AFTER" || node.op === "CALL" || node.op === "SINK") return
  // the target of a store is the output, not one of the reads
  const read = node.op === "STORE" ? readBy(node) : node.src
  for (;;) {
    const leaves = union(read.map((s) => workOf(state, s).leaves))
    if (leaves.size <= maxReads) return
    const leavesOf = (s: UOp): number => workOf(state, s).leaves.size
    const [widest] = read.filter((s) => !isLeaf(state, base(s))).sort((a, b) => leavesOf(b) - leavesOf(a))
    if (widest === undefined) return
    store(state, widest, { _tag: "Bindings", needs: leaves.size + 1, has: maxReads + 1 })
    refresh(state, widest)
  }
}

/** What one element of a node takes, from what its sources take. */
const derived = (state: Deciding, node: UOp): Work => {
  const from = movement.has(node.op) || node.op === "REDUCE"
    ? node.src.slice(0, 1)
    : node.op === "CALL"
    ? []
    : node.src
  const ws = from.map((s) => workOf(state, s))
  const own = movement.has(node.op) ? 0 : node.op === "REDUCE" ? 1 : node.src.length === 0 ? 0 : 1
  const below = Math.max(0, ...ws.map((x) => x.iterations))
  // what is expanded and not stored is a block's scalar: it does not depend on the place in the block
  const shares = node.op === "EXPAND" && below > 0 ? repeats(node) : 1
  const repeated = node.op === "REDUCE" ? reduceLength(node) : 1
  const isReduction = node.op === "REDUCE" && !(DType.isInteger(node.dtype) && repeated <= fewIntegers)
  const cost = times(chain([own, ...ws.map((x) => x.cost)]), repeated / shares)
  const isCheap = isRowScalar(node) && cost <= maxRowCost && !isEffect(node)
  return {
    cost: isCheap ? 1 : cost,
    iterations: isCheap || shares > 1 ? 0 : isReduction ? Math.max(below, 1) * repeated : below,
    transcendental: !isCheap && shares === 1 && (transcendental.has(node.op) || ws.some((x) => x.transcendental)),
    leaves: union(ws.map((x) => x.leaves))
  }
}

/** Goes through the body once, sources first. */
const decide = (state: Deciding, isPassedOn: (node: UOp) => boolean): void => {
  const { causes, nodes, onlyShared, shared, stored, work } = state
  for (const node of nodes) {
    storeRepeated(state, node)
    for (const s of node.src) refresh(state, s)
    limitReads(state, node)
    const w = derived(state, node)
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

/** The roots of the kernels that compute a value inline. */
const kernelsThat = (users: Deciding["users"]): Placement["kernelsOf"] => (value, stored) => {
  const isRoot = (node: UOp): boolean => node !== value && (stored.has(node) || isEffect(node))
  const reached = reach([value], (node) => isRoot(node) ? [] : users.get(node) ?? [])
  return new Set([...reached].filter(isRoot))
}

/** Values stored only because several places wanted them, whose users have since come to share one kernel, are not. */
const dropUnshared = (
  { causes, nodes, onlyShared, readsAt, stored }: Deciding,
  kept: ReadonlyMap<UOp, ReadonlySet<Site>>,
  { kernelsOf, results }: Pick<Placement, "kernelsOf"> & { readonly results: ReadonlyArray<UOp> }
): void => {
  for (const node of [...nodes].reverse()) {
    if (!onlyShared.has(node) || results.includes(node)) continue
    const [site, ...others] = kept.get(node) ?? []
    if (site === undefined || others.length > 0 || !site.once) continue
    stored.delete(node)
    const full = [...kernelsOf(node, stored)].map((root) => ({ needs: readsOf(root, stored).size, has: readsAt(root) }))
      .find(({ has, needs }) => needs > has)
    if (full === undefined) continue
    stored.add(node)
    causes.set(node, { _tag: "Bindings", needs: full.needs + 1, has: full.has + 1 })
  }
}

/**
 * Decides what is stored. A reduction (with the elementwise work after it) is stored where its value would be computed
 * again for every element of an axis that is broadcast later, inside another reduction, or from several places; the
 * rest is inlined. No kernel reads more than `maxReads` buffers, or as many as `tighter` says for what it computes.
 */
export const place = (
  roots: ReadonlyArray<UOp>,
  results: ReadonlyArray<UOp>,
  maxReads: number,
  tighter: ReadonlyMap<UOp, number> = new Map()
): Placement => {
  const nodes = nodesOf(roots)
  const must = new Set<UOp>([...results, ...nodes.flatMap(wanted)])
  const state: Deciding = {
    nodes,
    readsAt: (node) => tighter.get(node) ?? maxReads,
    users: usersOf(nodes),
    shared: sites(nodes, roots, must),
    must,
    stored: new Set(must),
    causes: new Map(),
    onlyShared: new Set(),
    work: new Map()
  }
  const { causes, stored, work } = state
  const isPassedOn = passedOn(state)
  // what is stored for a later user may add a buffer to the kernel of an earlier one: such a kernel is looked at again; what is
  // stored only grows, so this ends
  for (let before = -1; before < stored.size;) {
    before = stored.size
    decide(state, isPassedOn)
    if ([...stored, ...nodes.filter(isEffect)].every((root) => readsOf(root, stored).size <= state.readsAt(root))) break
  }
  const kernelsOf = kernelsThat(state.users)
  dropUnshared(state, sites(nodes, roots, stored), { kernelsOf, results })
  const demandOf = (node: UOp): Demand =>
    isEffect(node) ? "effect" : results.includes(node) ? "output" : node.op === "CONTIGUOUS" ? "contiguous" : "argument"
  return {
    nodes,
    stored,
    movable: new Set([...stored].filter((node) => !must.has(node))),
    users: state.users,
    kernelsOf,
    // a reduction is not repeated by each user
    homesOf: (node) => work.get(node)!.iterations > 0 ? ["global", "workgroup"] : ["global", "inline", "workgroup"],
    causeOf: (node) => causes.get(node) ?? { _tag: "Required", by: demandOf(node) },
    workOf: (node) => work.get(node)!
  }
}

/** Values that must be in memory, whatever it costs. */
const wanted = (node: UOp): ReadonlyArray<UOp> =>
  node.op === "CALL" ? node.src.slice(1).filter((arg) => !isStorage(arg)) : node.op === "CONTIGUOUS" ? [node] : []

/** The nodes that a kernel computes, its root first, and the memory that it reads. */
export const kernelAt = (
  root: UOp,
  stored: ReadonlySet<UOp>
): { readonly computes: ReadonlySet<UOp>; readonly reads: ReadonlySet<UOp> } => {
  const reads = new Set<UOp>()
  const computes = new Set<UOp>([root])
  const visit = (node: UOp): void => {
    if (computes.has(node)) return
    if (isStorage(node)) reads.add(storageOf(node))
    else if (stored.has(node) && !isFree(node)) reads.add(node)
    else {
      computes.add(node)
      for (const s of node.src) visit(s)
    }
  }
  for (const s of readBy(root)) visit(s)
  return { computes, reads }
}

const readsOf = (root: UOp, stored: ReadonlySet<UOp>): ReadonlySet<UOp> => kernelAt(root, stored).reads

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
