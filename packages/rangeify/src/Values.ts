/** The nodes of a function body: which are memory, which are computed where, how often. */
import { reach } from "@tg/core-uop/Fixpoint"
import { movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import { reduceArg, type UOp } from "@tg/core-uop/UOp"

/** Values that are recomputed rather than read, even where a call or a result wants them in memory. */
export const isFree = (node: UOp): boolean => node.op === "CONST" || node.op === "IOTA" || node.op === "VAR"

/** Nodes that do something instead of being a value. */
export const isEffect = (node: UOp): boolean => node.dtype.scalar === "void"

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

/** Whether a value is made in its own memory, so that it is always stored. */
export const isMadeInMemory = (node: UOp): boolean => node.op === "SCATTER_ADD"

/** What a kernel reads to compute a root: of what a STORE writes, which rows are chosen. */
export const readBy = (root: UOp): ReadonlyArray<UOp> => {
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

/** Views of the same elements in another order. */
export const bijective: ReadonlySet<string> = new Set(["RESHAPE", "PERMUTE", "FLIP"])

/** The value under reorderings of the same elements: storing it makes every such view free. */
export const base = (node: UOp): UOp => bijective.has(node.op) ? base(node.src[0]!) : node

/** Functions that take several times as long as an addition. */
export const transcendental: ReadonlySet<string> = new Set(["EXP2", "LOG2", "SIN", "SQRT", "FDIV"])

/** How often a broadcast uses each element. */
export const repeats = (expand: UOp): number => {
  const elements = Shape.maxElements(Shape.of(expand.src[0]!))
  return elements === 0 ? 1 : Shape.maxElements(Shape.of(expand)) / elements
}

/** The nodes of a body that have a node as a source. */
export type Users = ReadonlyMap<UOp, ReadonlyArray<UOp>>

export const usersOf = (nodes: ReadonlyArray<UOp>): Users => {
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

/** The roots of the kernels that use a value: that read it if it is stored, else compute it inline. */
export type KernelsOf = (value: UOp, stored: ReadonlySet<UOp>) => ReadonlySet<UOp>

/** `KernelsOf` by forward reachability from the value. */
export const kernelsThat = (users: Users): KernelsOf => (value, stored) => {
  const isRoot = (node: UOp): boolean => node !== value && (stored.has(node) || isEffect(node))
  const reached = reach([value], (node) => isRoot(node) ? [] : users.get(node) ?? [])
  return new Set([...reached].filter(isRoot))
}

/** The nodes that a kernel computes, its root first, and the memory that it reads. */
export const kernelAt = (
  root: UOp,
  stored: ReadonlySet<UOp>,
  sources: ReadonlyArray<UOp> = readBy(root)
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
  for (const s of sources) visit(s)
  return { computes, reads }
}

/** The memory that the kernel of a root reads. */
export const readsOf = (root: UOp, stored: ReadonlySet<UOp>): ReadonlySet<UOp> => kernelAt(root, stored).reads

/** Elements that a reduction combines. */
export const reduceLength = (node: UOp): number => {
  const shape = Shape.of(node.src[0]!)
  return reduceArg(node).axes.reduce((n, axis) => n * Math.max(1, Shape.maxOf(shape[axis]!)), 1)
}

/** Places are counted up to here. */
export const mostPlaces = 4

/** A place where values are computed: a kernel's root and the chain of views and reductions on the way to it. One object each. */
export interface Site {
  /** Each element is computed there once: nothing on the way repeats it. */
  readonly once: boolean
}

/** For each node, the distinct places it is computed at. Users at one place share the value for nothing. */
export const sites = (
  nodes: ReadonlyArray<UOp>,
  roots: ReadonlyArray<UOp>,
  stored: ReadonlySet<UOp>
): ReadonlyMap<UOp, ReadonlySet<Site>> => {
  const rootSites = new Map<UOp, Site>()
  const rootAt = (node: UOp): Site => {
    const site = rootSites.get(node) ?? { once: true }
    rootSites.set(node, site)
    return site
  }
  const found = new Map<UOp, Set<Site>>()
  const addTo = (node: UOp, site: Site): void => {
    const set = found.get(node)
    if (set === undefined) found.set(node, new Set([site]))
    else if (set.size < mostPlaces) set.add(site)
  }
  for (const root of roots) addTo(root, rootAt(root))
  for (const node of [...nodes].reverse()) {
    const own = stored.has(node) || isEffect(node) ? [rootAt(node)] : found.get(node) ?? []
    const changes = movement.has(node.op) || node.op === "REDUCE" || node.op === "GATHER"
    for (const site of own) {
      const once = site.once && bijective.has(node.op)
      const below = changes ? { once } : site
      const chosen = node.op === "GATHER" ? { once: false } : below
      for (const s of inputs(node)) {
        addTo(s, s === node.src[0] ? chosen : below)
      }
    }
  }
  return found
}
