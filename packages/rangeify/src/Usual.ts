/**
 * The values that a body stores by heuristics. Without a cost model they decide; with one they are where the search starts. They also
 * store what must be stored, and enforce the limit on the buffers that a kernel reads.
 */
import * as DType from "@tg/core-uop/DType"
import { elementwise, movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { reduceArg, type UOp } from "@tg/core-uop/UOp"
import { chain, times } from "./Cost.ts"
import type { Cause, Demand } from "./Explain.ts"
import {
  base,
  bijective,
  isEffect,
  isFree,
  isStorage,
  kernelsThat,
  readBy,
  readsOf,
  reduceLength,
  repeats,
  type Site,
  sites,
  storageOf,
  targetOf,
  transcendental,
  type Users
} from "./Values.ts"

/** Recomputing a transcendental so often costs more than a kernel that stores it, unless the elements are few. */
const expensiveRepeats = 8
const fewElements = 4096
/** Inlined operations per element beyond which a repeated value is stored, whatever it is made of. */
const maxInlineCost = 4096

/** Elements of a value, for one row where the number of rows is symbolic. */
const elementsPerRow = (node: UOp): number => {
  const shape = Shape.of(node)
  return Shape.maxElements(typeof shape[0] === "number" ? shape : shape.slice(1))
}

/** The work of computing one element inline, given the stored values below it. */
export interface Work {
  readonly cost: number
  /** Iterations of the reductions in it, 0 without any. */
  readonly iterations: number
  /** Whether how many there are is known at launch alone. */
  readonly isSymbolic?: boolean | undefined
  readonly transcendental: boolean
  readonly leaves: ReadonlySet<UOp>
}

/** A sum of so few integers is unrolled like any other arithmetic, also inside of a reduction. */
const fewIntegers = 16

/** A reduction over a block of this size, as quantisations have them, is computed again for the elements of the block. */
const blockIterations = 32

/** Operations up to which a row's scalar is recomputed by each user. */
const maxRowCost = 2 ** 16

/**
 * One value per row (a norm's scale, a sum of weights): all axes of fixed size are 1. Each workgroup that uses it recomputes it in
 * front of its own loops, which costs less than a kernel of its own and a round trip through memory.
 */
const isRowScalar = (node: UOp): boolean => Shape.of(node).every((dim) => typeof dim !== "number" || dim === 1)

const nothing: ReadonlySet<UOp> = new Set()

const union = (sets: ReadonlyArray<ReadonlySet<UOp>>): ReadonlySet<UOp> => {
  const nonEmpty = sets.filter((s) => s.size > 0)
  return nonEmpty.length < 2 ? nonEmpty[0] ?? nothing : new Set(nonEmpty.flatMap((s) => [...s]))
}

/** A body, and what it must respect. */
export interface Asked {
  /** Its effects and results. */
  readonly roots: ReadonlyArray<UOp>
  readonly results: ReadonlyArray<UOp>
  /** All of its nodes, sources first. */
  readonly nodes: ReadonlyArray<UOp>
  readonly users: Users
  /** Values that must be in memory. */
  readonly must: Iterable<UOp>
  /** Buffers that the kernel which computes a node may read. */
  readonly readsAt: (node: UOp) => number
}

/** What a body stores by these rules. */
export interface Usual {
  readonly stored: ReadonlySet<UOp>
  /** Those of them that must be: as asked, and what a kernel would overwrite while it reads it elsewhere. */
  readonly must: ReadonlySet<UOp>
  /** Those of them that share a launch. */
  readonly siblings: ReadonlySet<UOp>
  /** What stored a value first, of those that need not be stored. */
  readonly causes: ReadonlyMap<UOp, Cause>
  /** What one element of a value takes, where it is computed. */
  readonly workOf: (node: UOp) => Work
}

/** What is being decided about a body. */
interface Deciding extends Pick<Asked, "nodes" | "readsAt" | "users"> {
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

/** Whether all uses of a value go through one later value of its shape (a post-dominator), which can be stored in its place. */
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

/** Stores a value that a kernel must not compute itself. */
const storeFirst = (state: Deciding, node: UOp, by: Demand = "accumulated"): void => {
  if (isLeaf(state, node)) return
  state.stored.add(node)
  state.must.add(node)
  state.causes.set(node, { _tag: "Required", by })
}

/** A view of a value that has just been stored reads that value. */
const refresh = (state: Deciding, node: UOp): void => {
  if (isLeaf(state, node) || !bijective.has(node.op)) return
  refresh(state, node.src[0]!)
  state.work.set(node, workOf(state, node.src[0]!))
}

/** One value per block: cheaper to compute where it is used than to store. */
const isBlockScalar = (w: Work): boolean => w.iterations === blockIterations && !w.isSymbolic && w.cost <= maxInlineCost
const isHeavy = (w: Work): boolean => w.iterations > 0 || w.cost > maxInlineCost

/** Stores a source that this node would recompute. */
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
    case "SCATTER_ADD":
      // the kernel that adds may have few threads, and it computes the index for each column
      for (const s of [y!, node.src[2]!]) if (isHeavy(workOf(state, s))) storeFirst(state, base(s))
      return
    case "STORE": {
      // a kernel that reads the buffer it overwrites: the value is computed first
      const target = targetOf(node)
      if ([...workOf(state, y!).leaves].some((leaf) => storageOf(leaf) === target)) storeFirst(state, y!, "overwritten")
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

/** Whether a reduction is over an axis whose size is known at launch alone. */
const reducesSymbolic = (node: UOp): boolean =>
  reduceArg(node).axes.some((axis) => typeof Shape.of(node.src[0]!)[axis] !== "number")

/** The work of one element of a node, from that of its sources. */
const derived = (state: Deciding, node: UOp): Work => {
  const from = movement.has(node.op) || node.op === "REDUCE"
    ? node.src.slice(0, 1)
    : node.op === "CALL"
    ? []
    : node.src
  const ws = from.map((s) => workOf(state, s))
  const own = movement.has(node.op) || node.src.length === 0 ? 0 : 1
  const below = Math.max(0, ...ws.map((x) => x.iterations))
  // an expanded value that is not stored is a block's scalar: it is computed once for the block
  const shares = node.op === "EXPAND" && below > 0 ? repeats(node) : 1
  const repeated = node.op === "REDUCE" ? reduceLength(node) : 1
  const isReduction = node.op === "REDUCE" && !(DType.isInteger(node.dtype) && repeated <= fewIntegers)
  const cost = times(chain([own, ...ws.map((x) => x.cost)]), repeated / shares)
  const isCheap = isRowScalar(node) && cost <= maxRowCost && !isEffect(node)
  const alone = {
    cost: isCheap ? 1 : cost,
    iterations: 0,
    transcendental: false,
    leaves: union(ws.map((x) => x.leaves))
  }
  return isCheap || shares > 1 ? alone : {
    ...alone,
    iterations: isReduction ? Math.max(below, 1) * repeated : below,
    isSymbolic: isReduction && reducesSymbolic(node) || ws.some((x) => x.isSymbolic),
    transcendental: transcendental.has(node.op) || ws.some((x) => x.transcendental)
  }
}

/** One pass over the body, sources first. */
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

/** Inlines values again that were stored only as shared, and whose users are now in one kernel. */
const dropUnshared = (
  { causes, nodes, onlyShared, readsAt, stored, users }: Deciding,
  kept: ReadonlyMap<UOp, ReadonlySet<Site>>,
  results: ReadonlyArray<UOp>
): void => {
  const kernelsOf = kernelsThat(users)
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

/** What is done with a value up to the write to memory that is all that reads it; nothing if something else does. */
const wayToWrite = ({ must, users }: Deciding, value: UOp): ReadonlyArray<UOp> => {
  const way: Array<UOp> = []
  for (let at = value; at.op !== "STORE";) {
    const [user, ...others] = users.get(at) ?? []
    const isPassing = user !== undefined && others.length === 0 && !must.has(at) &&
      (user.op === "STORE" || elementwise.has(user.op) || movement.has(user.op) ||
        user.op === "REDUCE" && !DType.isFloat(user.dtype))
    if (!isPassing) return []
    way.push(user)
    at = user
  }
  return way
}

/** The last value of its shape that is computed from one alone, element by element. */
const lastOf = (users: Users, value: UOp): UOp => {
  const [user, ...others] = users.get(value) ?? []
  return user !== undefined && others.length === 0 && elementwise.has(user.op) && DType.isFloat(user.dtype) &&
      Shape.equal(Shape.of(user), Shape.of(value))
    ? lastOf(users, user)
    : value
}

/**
 * Reductions that are only written to memory, together with what is made of stored ones that read the same: and these. Stored all of them
 * share a launch. The write waits for those, and would compute the others behind them.
 */
const siblingsIn = (state: Deciding): ReadonlySet<UOp> => {
  const { nodes, stored, users, work } = state
  const leavesOf = (node: UOp) => work.get(node)!.leaves
  const readSame = (a: UOp, b: UOp): boolean => [...leavesOf(a)].some((leaf) => leavesOf(b).has(leaf))
  const all = nodes.flatMap((node) => {
    const w = work.get(node)!
    const isLong = node.op === "REDUCE" && DType.isFloat(node.dtype) && w.iterations > 0 && !isBlockScalar(w)
    return isLong ? [lastOf(users, node)] : []
  })
  return new Set(all.flatMap((one) => {
    const way = stored.has(one) ? [] : wayToWrite(state, one)
    const others = all.filter((other) =>
      stored.has(other) && readSame(other, one) && !leavesOf(one).has(other) &&
      way.some((node) => leavesOf(node).has(other))
    )
    return others.length === 0 ? [] : [one, ...others]
  }))
}

/**
 * Stores a reduction (with the elementwise work after it) whose value would be recomputed: for every element of an axis that is
 * broadcast later, inside another reduction, or at several places. The rest is inlined.
 */
export const usual = (asked: Asked): Usual => {
  const { nodes, results, roots } = asked
  const alone = decided(asked, [])
  const siblings = siblingsIn(alone)
  // with them in memory less is stored of what reads them
  const state = siblings.size === 0 ? alone : decided(asked, [...siblings].filter((node) => !alone.stored.has(node)))
  const { causes, must, stored, work } = state
  dropUnshared(state, sites(nodes, roots, stored), results)
  return { stored, must, siblings, causes, workOf: (node) => work.get(node)! }
}

/** What is stored, beside what is in memory for some reason. */
const decided = ({ must: asked, nodes, readsAt, roots, users }: Asked, siblings: ReadonlyArray<UOp>): Deciding => {
  const must = new Set(asked)
  const state: Deciding = {
    nodes,
    readsAt,
    users,
    shared: sites(nodes, roots, must),
    must,
    stored: new Set([...must, ...siblings]),
    causes: new Map(siblings.map((node) => [node, { _tag: "Sibling" }])),
    onlyShared: new Set(),
    work: new Map()
  }
  const { stored } = state
  const isPassedOn = passedOn(state)
  // a value that is stored for a later user adds a buffer to the kernel of an earlier one, so iterate to a fixpoint; `stored` only
  // grows, so this terminates
  for (let before = -1; before < stored.size;) {
    before = stored.size
    decide(state, isPassedOn)
    if ([...stored, ...nodes.filter(isEffect)].every((root) => readsOf(root, stored).size <= readsAt(root))) break
  }
  return state
}
