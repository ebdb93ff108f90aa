/** Where the values of a function body may live: what must be stored, and which homes are legal for the others. */
import type { UOp } from "@tg/core-uop/UOp"
import type { Cause, Demand, Home } from "./Explain.ts"
import { usual, type Work } from "./Usual.ts"
import {
  isEffect,
  isMadeInMemory,
  isStorage,
  type KernelsOf,
  kernelsThat,
  nodesOf,
  type Users,
  usersOf
} from "./Values.ts"

/** Which values of a function body get memory of their own. Everything else is computed where it is used. */
export interface Placement {
  /** All nodes of the body, sources first; the bodies of calls are not entered. */
  readonly nodes: ReadonlyArray<UOp>
  /** What must be stored, and what is by heuristics (`Usual`): the start of the search. */
  readonly stored: ReadonlySet<UOp>
  /** Values that may live elsewhere: the stored ones that need not be. */
  readonly movable: ReadonlySet<UOp>
  /** Those of them that are stored for the launch that they share: they move when all others have. */
  readonly siblings: ReadonlySet<UOp>
  /** Why a value is stored. */
  readonly causeOf: (value: UOp) => Cause
  /** The work of one element of a value, computed inline. */
  readonly workOf: (node: UOp) => Pick<Work, "cost" | "iterations">
  /** The legal homes of a movable value, in order of preference at equal cost. */
  readonly homesOf: (value: UOp) => ReadonlyArray<Home>
  readonly users: Users
  readonly kernelsOf: KernelsOf
}

/** Places the values of a body. No kernel reads more than `maxReads` buffers, or as many as `tighter` says for what it computes. */
export const place = (
  roots: ReadonlyArray<UOp>,
  results: ReadonlyArray<UOp>,
  maxReads: number,
  tighter: ReadonlyMap<UOp, number> = new Map()
): Placement => {
  const nodes = nodesOf(roots)
  const users = usersOf(nodes)
  const { causes, must, siblings, stored, workOf } = usual({
    roots,
    results,
    nodes,
    users,
    must: [...results, ...nodes.flatMap(wanted)],
    readsAt: (node) => tighter.get(node) ?? maxReads
  })
  const demandOf = (node: UOp): Demand =>
    isEffect(node)
      ? "effect"
      : results.includes(node)
      ? "output"
      : isMadeInMemory(node)
      ? "accumulated"
      : node.op === "CONTIGUOUS"
      ? "contiguous"
      : "argument"
  return {
    nodes,
    stored,
    movable: new Set([...stored].filter((node) => !must.has(node))),
    siblings,
    users,
    kernelsOf: kernelsThat(users),
    // a reduction is not repeated by each user
    homesOf: (node) => workOf(node).iterations > 0 ? ["global", "workgroup"] : ["global", "inline", "workgroup"],
    causeOf: (node) => causes.get(node) ?? { _tag: "Required", by: demandOf(node) },
    workOf
  }
}

/** Values that must be in memory, whatever it costs. */
const wanted = (node: UOp): ReadonlyArray<UOp> =>
  node.op === "CALL"
    ? node.src.slice(1).filter((arg) => !isStorage(arg))
    : node.op === "CONTIGUOUS" || isMadeInMemory(node)
    ? [node]
    : []
