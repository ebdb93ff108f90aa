/** Opts for a CPU: few threads, short vectors. */
import type { UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import type { Plan } from "./Plan.ts"
import { freeOutputs, knownOutputs, upcastAlike } from "./Rows.ts"
import { iterations } from "./Sizes.ts"
import { lanes, unrollShortLoops, vectoriseOutputs, vectoriseReductions } from "./Vectors.ts"

/** The unroll factor of a reduction that still compiles quickly and keeps several loads in flight. */
const maxUnrollCpu = 8

/** Outputs in the register tile of a thread. */
const upcastOf = (kernel: UOp): number => iterations(Loops.outputs(kernel).filter((l) => l.axis === "UPCAST"))

/** Unrolls a long loop by two, within the limit on code size: half the loop overhead. */
const unrollInnermost = (plan: Plan, maxCopies: number): void => {
  const innermost = Loops.all(plan.kernel).filter((l) => l.axis === "REDUCE" && !l.isSymbolic).at(-1)
  if (innermost !== undefined && 2 * Loops.copies(plan.kernel) <= maxCopies) plan.try(Opt.unroll(innermost.id, 2))
}

/** With fewer groups of rows there is too little parallelism for the threads of a CPU. */
const fewestRows = 16

/**
 * Register tiling over rows that are far apart, which reuse the other operand: each row is then one long stream for the prefetcher.
 * Neighbouring rows would be streams of a row's length, which are prefetched at less than half the speed (10 GB/s instead of 25 for
 * four rows of 1 KB, on a server's core).
 */
const spreadRows = (plan: Plan): void => {
  const loops = freeOutputs(plan.kernel)
  for (const amount of [4, 2]) {
    const loop = loops.findLast((l) => l.size % amount === 0)
    if (loop === undefined || knownOutputs(plan.kernel) / amount < fewestRows) continue
    plan.try(Opt.spread(loop.id, amount))
    return
  }
}

/** Short vectors, register tiles of rows, unrolled inner loops. */
export const chooseCpu = (plan: Plan): void => {
  const reduced = vectoriseReductions(plan)
  if (reduced) spreadRows(plan)
  else {
    vectoriseOutputs(plan)
    upcastAlike(plan)
  }
  const maxCopies = lanes * maxUnrollCpu * upcastOf(plan.kernel)
  unrollShortLoops(plan, maxUnrollCpu, maxCopies)
  if (reduced) unrollInnermost(plan, maxCopies)
}
