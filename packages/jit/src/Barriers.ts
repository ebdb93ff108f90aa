/** How often the threads of a workgroup wait for each other. */
import * as Expr from "@tg/core-uop/Expr"
import { evaluateIndex } from "@tg/core-uop/Program"
import type { Source } from "@tg/core-uop/Custom"
import { rebuild, type UOp } from "@tg/core-uop/UOp"

/** An index expression with the numbers of workgroups and threads in it. */
const firstOf = (size: UOp, vars: Readonly<Record<string, number>>): number =>
  evaluateIndex(rebuild(size, (node, src) => node.op === "SPECIAL" ? Expr.int(node.arena, 0) : node.with(src)), vars)

/**
 * Barriers that one workgroup of a kernel (spec `linear`) comes to, those in loops once for each iteration. Of a joined
 * kernel, one workgroup of each member: their sum. Of a persistent launch, the first workgroup, which has the most to do; barriers across the grid
 * not counted.
 */
export const count = (linear: UOp, vars: Readonly<Record<string, number>>): number => {
  /** Iterations of all open loops together, the innermost ones last. */
  const times = [1]
  let barriers = 0
  for (const node of linear.src) {
    if (node.op === "RANGE") times.push(times.at(-1)! * firstOf(node.src[0]!, vars))
    else if (node.op === "END") times.pop()
    else if (node.op === "BARRIER") barriers += times.at(-1)!
  }
  return barriers
}

const comments = /\/\/.*|\/\*[^]*?\*\//g

/** What WGSL has for it: a load that all threads of the workgroup share waits before and after. */
const waits: ReadonlyArray<readonly [call: RegExp, barriers: number]> = [
  [/\b(?:workgroup|storage|texture)Barrier\s*\(/g, 1],
  [/\bworkgroupUniformLoad\s*(?:<[^>]*>)?\s*\(/g, 2]
]

/**
 * Barriers in the text of a kernel that was written by hand, each counted once: nothing is known of its loops. There are none
 * in the text of a target whose workgroups are no threads.
 */
export const countText = ({ text }: Pick<Source, "text">): number => {
  const code = text.replace(comments, " ")
  return waits.reduce((n, [call, barriers]) => n + barriers * [...code.matchAll(call)].length, 0)
}
