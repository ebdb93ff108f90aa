/** A persistent launch as one linear kernel. */
import * as Phases from "@tg/core-uop/Phases"
import type { RendererCaps } from "@tg/core-uop/Program"
import { argOf, type UOp } from "@tg/core-uop/UOp"
import * as Linear from "@tg/devectorize/Phases"

/** The launch, of the linear kernels of its phases. */
export const phased = (caps: RendererCaps, launch: UOp, linears: ReadonlyArray<UOp>): UOp => {
  const phases = Phases.phasesOf(launch)
  return Linear.phases(phases.map((phase, i) => ({ ...phase, linear: linears[i]! })), {
    ...argOf(launch, "PERSISTENT"),
    caps,
    coherent: Phases.crossing(phases),
    meeting: Phases.meetingSlot(phases, argOf(launch, "PERSISTENT"))
  })
}
