/** The arguments and launch shape of a persistent launch. */
import * as Phases from "./Phases.ts"
import type { Binding, Program, VarBounds } from "./Program.ts"
import { argOf, type UOp } from "./UOp.ts"

/** What a kernel declares. */
type Signature = Pick<Program, "workgroup" | "grid" | "bindings" | "vars"> & {
  readonly bounds: ReadonlyArray<VarBounds>
}

/** The signature of a persistent launch: all that its phases touch, of those that run in its variant, by the signature of each, and the barrier's buffer. */
export const signatureOfPhases = (launch: UOp, signature: (kernel: UOp) => Signature): Signature => {
  const phases = Phases.runningIn(launch)
  const slots = new Map<number, Binding>()
  const vars = new Map<string, VarBounds>()
  for (const phase of phases) {
    const own = signature(phase.kernel)
    own.vars.forEach((name, i) => {
      const { max, min } = own.bounds[i]!
      const known = vars.get(name) ?? { min, max }
      vars.set(name, { min: Math.max(known.min, min), max: Math.min(known.max, max) })
    })
    for (const binding of own.bindings) {
      const slot = phase.slots[binding.slot]!
      const known = slots.get(slot)
      const bytes = Math.max(known?.bytes ?? 0, 4 * phase.offsets[binding.slot]! + (binding.bytes ?? 0))
      const access = known?.access === "write" ? known.access : binding.access
      slots.set(slot, { slot, access, ...(bytes === 0 ? {} : { bytes }) })
      const copy = phase.copies?.[binding.slot] ?? -1
      if (copy >= 0) slots.set(copy, { ...binding, slot: copy })
    }
    for (const { offset, slot, to } of Phases.forwardsOf(phase)) {
      const { words } = Phases.windowOf(phase.kernel, slot)!
      slots.set(to, { slot: to, access: "write", bytes: Math.max(slots.get(to)?.bytes ?? 0, 4 * (offset + words)) })
    }
  }
  const arg = argOf(launch, "PERSISTENT")
  const written = (slot: number, words: number): void =>
    void slots.set(slot, { slot, access: "write", bytes: 4 * words })
  if (arg.awaited !== undefined) written(arg.awaited[1], arg.awaited[2])
  written(Phases.meetingSlot(phases, arg), Phases.meetingWords.count)
  const names = [...vars.keys()].sort()
  return {
    workgroup: [1, 1, 1],
    grid: [arg.workgroups, 1, 1],
    bindings: [...slots.values()].sort((a, b) => a.slot - b.slot),
    vars: names,
    bounds: names.map((name) => vars.get(name)!)
  }
}
