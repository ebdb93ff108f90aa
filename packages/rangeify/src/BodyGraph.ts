/** The kernel graph of a body: which kernels compute a value, and which depend on another one. */
import { reach } from "@tg/core-uop/Fixpoint"
import type { UOp } from "@tg/core-uop/UOp"
import type { Placement } from "./Placement.ts"
import { inputs, isEffect } from "./Values.ts"

/** The kernels of a body for every placement of its candidates. */
export interface BodyGraph {
  /** Movable values, in their order. */
  readonly candidates: ReadonlyArray<UOp>
  /** Roots of the kernels that exist under every placement. */
  readonly fixed: ReadonlyArray<UOp>
  /** The roots of the kernels that compute a value, or read it. */
  readonly kernelsOf: (value: UOp, stored: ReadonlySet<UOp>) => ReadonlySet<UOp>
  /** The candidates that a kernel computes itself, in their order. */
  readonly insideOf: (root: UOp, stored: ReadonlySet<UOp>) => ReadonlyArray<UOp>
  /**
   * As soon and as late as possible: the first and the last launch in which each kernel may be, equal on the critical path. Kernels that have a
   * launch already, by their numbers, leave less room to those that they need, and that need them.
   */
  readonly levelsOf: (roots: ReadonlyArray<UOp>) => LevelsOf
}

/** The levels of some roots, of which some are placed already. */
export type LevelsOf = (placed?: ReadonlyMap<number, number>) => ReadonlyArray<Level>

/** Launches are counted from 0. */
export interface Level {
  readonly first: number
  readonly last: number
}

/** Bit sets. */
const setBit = (set: Uint32Array, i: number): void => {
  set[i >>> 5]! |= 1 << (i & 31)
}
const hasBit = (set: Uint32Array, i: number): boolean => (set[i >>> 5]! & (1 << (i & 31))) !== 0

/** The transitive dependencies of these nodes among `points`. */
const needsOf = (nodes: ReadonlyArray<UOp>, points: ReadonlyMap<UOp, number>): ReadonlyMap<UOp, Uint32Array> => {
  const words = Math.ceil(points.size / 32)
  const below = new Map<UOp, Uint32Array>()
  for (const node of nodes) {
    const own = new Uint32Array(words)
    for (const source of inputs(node)) {
      const set = below.get(source)
      if (set !== undefined) { for (let i = 0; i < words; i++) own[i]! |= set[i]! }
      const number = points.get(source)
      if (number !== undefined) setBit(own, number)
    }
    below.set(node, own)
  }
  return below
}

/** The kernel graph of a body, for the search. */
export const bodyGraph = ({ movable, nodes, stored, users }: Placement): BodyGraph => {
  const candidates = nodes.filter((node) => movable.has(node))
  const fixed = nodes.filter((node) => node.op === "STORE" || (stored.has(node) && !movable.has(node)))
  const isPoint = (node: UOp): boolean => stored.has(node) || movable.has(node) || isEffect(node)
  // from one value to the next ones that may be roots
  const next = new Map(candidates.map((value) => {
    const reached = reach([value], (node) => node !== value && isPoint(node) ? [] : users.get(node) ?? [])
    return [value, [...reached].filter((node) => node !== value && isPoint(node))] as const
  }))
  const before = new Map<UOp, Array<UOp>>()
  for (const value of candidates) {
    for (const user of next.get(value)!) {
      const known = before.get(user)
      if (known === undefined) before.set(user, [value])
      else known.push(value)
    }
  }
  const isComputed = (node: UOp, stored: ReadonlySet<UOp>): boolean => movable.has(node) && !stored.has(node)
  const order = new Map(candidates.map((value, i) => [value, i]))
  const points = new Map(nodes.filter(isPoint).map((node, i) => [node, i]))
  const needs = needsOf(nodes, points)
  return {
    candidates,
    fixed,
    kernelsOf: (value, stored) => {
      const reached = reach(next.get(value) ?? [], (node) => isComputed(node, stored) ? next.get(node)! : [])
      return new Set([...reached].filter((node) => !isComputed(node, stored)))
    },
    insideOf: (root, stored) => {
      const computed = (node: UOp): ReadonlyArray<UOp> => (before.get(node) ?? []).filter((b) => isComputed(b, stored))
      return [...reach(computed(root), computed)].sort((a, b) => order.get(a)! - order.get(b)!)
    },
    levelsOf: (roots) => levelsOf(roots, { points, needs })
  }
}

const levelsOf = (
  roots: ReadonlyArray<UOp>,
  { needs, points }: {
    readonly points: ReadonlyMap<UOp, number>
    readonly needs: ReadonlyMap<UOp, Uint32Array>
  }
): LevelsOf => {
  const numbers = roots.map((root) => points.get(root)!)
  // sources first
  const ordered = [...roots.keys()].sort((a, b) => numbers[a]! - numbers[b]!)
  const needed = ordered.map((own, k) => {
    const set = needs.get(roots[own]!)!
    return { own, sources: ordered.slice(0, k).filter((i) => hasBit(set, numbers[i]!)) }
  })
  return (placed) => {
    const first = roots.map((_, i) => placed?.get(i) ?? 0)
    for (const { own, sources } of needed) {
      for (const source of sources) first[own] = Math.max(first[own]!, first[source]! + 1)
    }
    const depth = Math.max(0, ...first)
    const last = roots.map((_, i) => placed?.get(i) ?? depth)
    for (const { own, sources } of needed.toReversed()) {
      for (const source of sources) last[source] = Math.min(last[source]!, last[own]! - 1)
    }
    return first.map((level, i) => ({ first: level, last: last[i]! }))
  }
}
