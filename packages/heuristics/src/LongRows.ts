/** Reductions along a context of a few rows, such as the largest score of each row: what is read is contiguous, and of a length that is known at launch. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { openRanges } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { usualGroup } from "./Groups.ts"
import { keptThreads } from "./Kinds.ts"
import type { Plan } from "./Plan.ts"
import { iterations, largestPowerOfTwo } from "./Sizes.ts"
import { lanes, loadsOf } from "./Vectors.ts"

/** Threads of a row at most: then each has a few loads in flight behind one another. */
const mostThreads = 256

/** Shares each row among as many threads as saturate the device, if a subgroup for each row would not. */
export const chooseLongRows = (plan: Plan, profile: DeviceProfile): boolean => {
  const { kernel } = plan
  const [reduction, ...others] = Loops.reductions(kernel)
  if (reduction === undefined || others.length > 0) return false
  const [loop, ...more] = Loops.loopsOf(reduction)
  if (more.length > 0 || !loop!.isSymbolic) return false
  const rows = iterations(Loops.outputs(kernel))
  const group = usualGroup(profile)
  const along = loadsOf(reduction).filter((load) => openRanges(load).has(loop!.node))
  const isContiguous = along.length > 0 && along.every((load) => stepOf(accessOf(load).at, loop!.node) === 1)
  if (!isContiguous || rows * group * keptThreads > profile.saturatingThreads) return false
  const threads = Math.min(mostThreads, profile.maxWorkgroupThreads, profile.saturatingThreads / rows)
  plan.try(Opt.unroll(loop!.id, lanes))
  return plan.try(Opt.group(loop!.id, Math.max(group, largestPowerOfTwo(threads))))
}
