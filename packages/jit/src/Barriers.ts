/** Barriers a workgroup executes. */
import * as Expr from "@tg/core-uop/Expr"
import { evaluateIndex } from "@tg/core-uop/Program"
import type { Source } from "@tg/core-uop/Custom"
import { rebuild, type UOp } from "@tg/core-uop/UOp"

/** An index expression at workgroup 0, thread 0. */
const firstOf = (size: UOp, vars: Readonly<Record<string, number>>): number =>
  evaluateIndex(rebuild(size, (node, src) => node.op === "SPECIAL" ? Expr.int(node.arena, 0) : node.with(src)), vars)

/**
 * Barriers that one workgroup of a kernel (spec `linear`) executes; in a loop, each iteration counts. For a joined kernel, the sum
 * over one workgroup of each member. For a persistent launch, those of workgroup 0, which has the most work, without grid barriers.
 */
export const count = (linear: UOp, vars: Readonly<Record<string, number>>): number => {
  /** Product of the trip counts of the open loops, innermost last. */
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

/** WGSL's barriers; `workgroupUniformLoad` has one before and one after the load. */
const waits: ReadonlyArray<readonly [call: RegExp, barriers: number]> = [
  [/\b(?:workgroup|storage|texture)Barrier\s*\(/g, 1],
  [/\bworkgroupUniformLoad\s*(?:<[^>]*>)?\s*\(/g, 2]
]

/**
 * Barriers in the text of a hand-written kernel, each counted once, because trip counts are unknown. 0 for targets without
 * threads in a workgroup.
 */
export const countText = ({ text }: Pick<Source, "text">): number => {
  const code = text.replace(comments, " ")
  return waits.reduce((n, [call, barriers]) => n + barriers * [...code.matchAll(call)].length, 0)
}
