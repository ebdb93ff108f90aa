/** How often the threads of a workgroup wait for each other. */
import { evaluateIndex } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"

/**
 * Barriers that one workgroup of a kernel (spec `linear`) comes to, those in loops once for each iteration. Of a joined
 * kernel, one workgroup of each member: their sum.
 */
export const count = (linear: UOp, vars: Readonly<Record<string, number>>): number => {
  /** Iterations of all open loops together, the innermost ones last. */
  const times = [1]
  let barriers = 0
  for (const node of linear.src) {
    if (node.op === "RANGE") times.push(times.at(-1)! * evaluateIndex(node.src[0]!, vars))
    else if (node.op === "END") times.pop()
    else if (node.op === "BARRIER") barriers += times.at(-1)!
  }
  return barriers
}
