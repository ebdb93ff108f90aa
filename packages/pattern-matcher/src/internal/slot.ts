import type { UOp } from "@tg/core-uop/UOp"
import type { Sum } from "../Sum.ts"

/** What the simplifier remembers about a node; all of it follows from the node alone. */
export interface Slot {
  rank: number
  sum: Sum | undefined
  /** The node is a sum or product in normal form. */
  canonical: boolean
}

declare module "@tg/core-uop/UOp" {
  interface Cache {
    symbolic?: Slot
  }
}

export const slot = (node: UOp): Slot => node.cache.symbolic ??= { rank: -1, sum: undefined, canonical: false }
