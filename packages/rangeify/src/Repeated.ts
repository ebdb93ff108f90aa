/** Values that the heuristics recompute, as candidates of the search for being stored or staged. */
import { elementwise, movement } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import type { Cause } from "./Explain.ts"
import type { Usual } from "./Usual.ts"
import { inputs, isEffect, isFree, isStorage, readBy, reduceLength, repeats, type Users } from "./Values.ts"

/**
 * Candidates of a body, those with most recomputation first: weighing a value lowers the kernels that compute it, which dominates the
 * time of the search.
 */
export const mostAsked = 4

/** The least cost of storing a word, in operations: it is written, and read again. */
const operationsOfKeeping = 8

const elements = (node: UOp): number => Shape.maxElements(Shape.of(node))

/** A value that is computed again. */
export interface Repeated {
  readonly value: UOp
  readonly cause: Cause
  /** Operations that storing it would save, as far as that is known before it is lowered. */
  readonly saved: number
}

/** Elements that the kernel of a root computes; nothing for what is no kernel. */
const computedBy = (root: UOp): number =>
  root.op === "STORE" ? elements(root.src[1]!) : isEffect(root) ? 0 : elements(root)

/** The values that a node computes with. */
const operands = (node: UOp): ReadonlyArray<UOp> =>
  movement.has(node.op) ? node.src.slice(0, 1) : node.op === "STORE" ? readBy(node) : inputs(node)

/** How many elements of each node are computed, by the kernel that computes most of them. */
const evaluations = (nodes: ReadonlyArray<UOp>, { stored, workOf }: Usual): ReadonlyMap<UOp, number> => {
  const found = new Map<UOp, number>()
  for (const node of nodes.toReversed()) {
    const isRoot = stored.has(node) || isEffect(node)
    // a row's scalar is computed in front of the loops
    const own = isRoot ? computedBy(node) : workOf(node).isRowScalar ? elements(node) : found.get(node) ?? 0
    for (const source of operands(node)) {
      const times = node.op === "REDUCE"
        ? reduceLength(node)
        // a block's scalar is computed once for the block
        : node.op === "EXPAND" && !stored.has(source) && workOf(source).iterations > 0
        ? 1 / repeats(node)
        : 1
      found.set(source, Math.max(found.get(source) ?? 0, own * times))
    }
  }
  return found
}

/** What repeats a value, if anything does: a broadcast, or several places. */
const causeOf = (value: UOp, users: Users, places: number): Cause | undefined => {
  const times = Math.max(1, ...(users.get(value) ?? []).filter((user) => user.op === "EXPAND").map(repeats))
  return times > 1 ? { _tag: "Repeated", times } : places > 1 ? { _tag: "Shared", places } : undefined
}

/** The values that a body recomputes, those with most operations first. */
export const repeated = (nodes: ReadonlyArray<UOp>, users: Users, usual: Usual): ReadonlyArray<Repeated> => {
  const counts = evaluations(nodes, usual)
  const candidates = nodes.flatMap((value): ReadonlyArray<Repeated> => {
    if (!elementwise.has(value.op) && value.op !== "REDUCE") return []
    if (usual.stored.has(value) || isEffect(value) || isFree(value) || isStorage(value)) return []
    const { leaves, whole } = usual.workOf(value)
    const cause = leaves.size === 0 ? undefined : causeOf(value, users, usual.placesOf(value))
    if (cause === undefined) return []
    const size = elements(value)
    const saved = whole * ((counts.get(value) ?? 0) - size) - operationsOfKeeping * size
    return saved > 0 ? [{ value, cause, saved }] : []
  })
  const values = new Set(candidates.map(({ value }) => value))
  // of a chain of elementwise operations the last one is asked about
  const isPassedOn = (value: UOp): boolean =>
    (users.get(value) ?? []).some((user) =>
      values.has(user) && elementwise.has(user.op) && elements(user) === elements(value)
    )
  return candidates.filter(({ value }) => !isPassedOn(value)).sort((a, b) => b.saved - a.saved).slice(0, mostAsked)
}
