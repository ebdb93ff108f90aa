/** What a compiled program depends on, apart from the compiler. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { digest, key, toposort, type UOp } from "@tg/core-uop/UOp"

/** A device as programs are made for it. */
export interface Target {
  readonly profile: DeviceProfile
  /** Names the stages of the compiler and what they were given. */
  readonly stages: string
}

/**
 * Equal for programs that compile to the same plan: of equal structure, for equal devices, and with the same labels in the
 * same places, for kernels are named after them.
 */
export const of = (sink: UOp, { profile, stages }: Target): string => {
  const labels = toposort(sink).map((node) => node.arena.labelOf(node) ?? "").join("\n")
  const device = Object.entries({ ...profile, stages }).filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} ${value}`).sort().join("\n")
  return [key(sink), digest(labels), digest(device)].join("-")
}
