/** The outputs of a kernel that have no opt yet. */
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import type { Plan } from "./Plan.ts"
import { iterations } from "./Sizes.ts"
import { loadsOf } from "./Vectors.ts"

/** Output loops without an opt yet; a symbolic one is left to workgroups. */
export const freeOutputs = (kernel: UOp): ReadonlyArray<Loops.Loop> =>
  Loops.outputs(kernel).filter((l) => l.axis === "GLOBAL" && !l.isSymbolic)

/** Workgroups so far, with 1 for a symbolic number of rows. */
export const knownOutputs = (kernel: UOp): number => iterations(freeOutputs(kernel))

/** Most outputs of the same loads in one thread, and how many times as many others there are, at least. */
const mostAlike = 16
const othersAlike = 16

/**
 * Upcasts output loops in which all loads are invariant, if many other outputs remain: other threads would load the same values
 * again.
 */
export const upcastAlike = (plan: Plan): void => {
  const loads = loadsOf(plan.kernel).map((load) => openRanges(load.src[0]!))
  for (const loop of freeOutputs(plan.kernel)) {
    const isAlike = loads.length > 0 && loads.every((open) => !open.has(loop.node))
    if (isAlike && loop.size <= mostAlike && knownOutputs(plan.kernel) >= loop.size * othersAlike) {
      plan.try(Opt.upcast(loop.id, loop.size))
    }
  }
}
