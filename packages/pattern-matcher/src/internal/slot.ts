import type { UOp } from "@tg/core-uop/UOp"
import type { Sum } from "../Sum.ts"

/** The simplifier's memo of a node: a function of the node alone. */
export interface Slot {
  rank: number
  sum: Sum | undefined
  /** The node is in normal form: the index rules leave it as it is. */
  canonical: boolean
  /** The count of `decisions`; -1 when not counted yet. */
  decisions: number
  /** Results of simplifying the node under conditions. */
  under: Map<UOp, UOp> | undefined
}

declare module "@tg/core-uop/UOp" {
  interface Cache {
    symbolic?: Slot
  }
}

export const slot = (node: UOp): Slot =>
  node.cache.symbolic ??= { rank: -1, sum: undefined, canonical: false, decisions: -1, under: undefined }

/** Marks a node as being in normal form: the index rules made it. */
export const settled = (node: UOp): UOp => {
  slot(node).canonical = true
  return node
}
