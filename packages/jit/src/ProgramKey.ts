/** Cache key of a compiled program. The compiler's version is the cache's (`CompileCache.layerStore`). */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { digest, key, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Int8 from "@tg/tensor/Int8"

/** The device and the stages a program is compiled for. */
export interface Target {
  readonly profile: DeviceProfile
  /** Ids of the stages and of the form of the plan. */
  readonly stages: string
}

/** Structure, labels, and which products are left to costs. */
const nameOf = (sink: UOp): string => {
  const labels = toposort(sink)
    .map((node) => `${node.arena.labelOf(node) ?? ""}${Int8.hasForms(node) ? " in any form" : ""}`).join("\n")
  return `${key(sink)}-${digest(labels)}`
}

/**
 * Equal for programs that compile to the same plan: of equal structure and labels, which name the kernels, of products in the same forms, for
 * equal profiles and stages.
 */
export const of = (sink: UOp, { profile, stages }: Target): string => {
  const device = Object.entries({ ...profile, stages }).filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} ${value}`).sort().join("\n")
  return [nameOf(sink), digest(device)].join("-")
}
