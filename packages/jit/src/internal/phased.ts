/** A persistent launch as one linear kernel. */
import * as Phases from "@tg/core-uop/Phases"
import { type Program, type RendererCaps, signature } from "@tg/core-uop/Program"
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

/** The program of a kernel. A persistent launch may share its code with other variants: it says which one it is, and needs what that one does. */
export const ofVariant = (launch: UOp, program: Program): Program => {
  const { variant } = Phases.isPersistent(launch) ? argOf(launch, "PERSISTENT") : {}
  if (variant === undefined) return program
  const needed = new Map(signature(launch).bindings.map(({ bytes, slot }) => [slot, bytes]))
  return {
    ...program,
    given: { [Phases.variantName]: variant[0] },
    bindings: program.bindings.map((binding) => ({ ...binding, bytes: needed.get(binding.slot) }))
  }
}
