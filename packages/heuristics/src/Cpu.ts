/** Opts for threads that are few and have short vectors. */
import type { UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import type { Plan } from "./Plan.ts"
import { freeOutputs, knownOutputs, upcastAlike } from "./Rows.ts"
import { iterations } from "./Sizes.ts"
import { lanes, unrollShortLoops, vectoriseOutputs, vectoriseReductions } from "./Vectors.ts"

/** Copies of a reduction's body that still compile quickly and keep several loads in flight. */
const maxUnrollCpu = 8

/** Outputs that one thread computes at once. */
const upcastOf = (kernel: UOp): number => iterations(Loops.outputs(kernel).filter((l) => l.axis === "UPCAST"))

/** Two iterations of a long loop at once, where that is not too much code: what a loop costs is then paid half as often. */
const unrollInnermost = (plan: Plan, maxCopies: number): void => {
  const innermost = Loops.all(plan.kernel).filter((l) => l.axis === "REDUCE" && !l.isSymbolic).at(-1)
  if (innermost !== undefined && 2 * Loops.copies(plan.kernel) <= maxCopies) plan.try(Opt.unroll(innermost.id, 2))
}

/** With fewer groups of rows than this, threads of a CPU have too little to divide. */
const fewestRows = 16

/**
 * Rows that share what else they read, each far from the others: then each is read as one long stream. Neighbouring rows
 * would be streams of a row's length, which processors fetch ahead at less than half the speed (10 GB/s instead of 25 for
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

/** Few threads: short vectors, rows that share what they load, straight inner loops. */
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
