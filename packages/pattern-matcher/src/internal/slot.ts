import type { UOp } from "@tg/core-uop/UOp"
import type { Sum } from "../Sum.ts"

/** What the simplifier remembers about a node; all of it follows from the node alone. */
export interface Slot {
  rank: number
  sum: Sum | undefined
  /** The node is in the normal form of index arithmetic: its rules leave it as it is. */
  canonical: boolean
  /** Operations that bounds may remove, counted with repetition; -1 when not counted yet. */
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

/** Marks a node that the index rules made and would make again. */
export const settled = (node: UOp): UOp => {
  slot(node).canonical = true
  return node
}
