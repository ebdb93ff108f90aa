/** Reductions along a context, whose length is known at launch, and nothing else: the largest score of each row, the sum of the chunks of a mix. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { stepOf } from "@tg/pattern-matcher/Affine"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { usualGroup } from "./Groups.ts"
import { keptThreads } from "./Kinds.ts"
import type { Plan } from "./Plan.ts"
import { iterations, largestPower, largestPowerOfTwo } from "./Sizes.ts"
import { lanes, loadsOf } from "./Vectors.ts"

/** Threads of a row at most: then each has a few loads in flight behind one another. */
const mostThreads = 256
const columnThreads = 128

/** The one loop of the one reduction of a kernel, if its size is symbolic, and what is loaded in each iteration. */
const contextOf = (kernel: UOp) => {
  const [reduction, ...others] = Loops.reductions(kernel)
  if (reduction === undefined || others.length > 0) return undefined
  const [loop, ...more] = Loops.loopsOf(reduction)
  if (more.length > 0 || !loop!.isSymbolic) return undefined
  const loads = loadsOf(reduction).filter((load) => openRanges(load).has(loop!.node))
  return loads.length === 0 ? undefined : { loop: loop!, loads }
}

/** Shares each row among as many threads as saturate the device, if a subgroup for each row would not and neighbours in memory are terms. */
const shareRow = (plan: Plan, profile: DeviceProfile): boolean => {
  const { loads, loop } = contextOf(plan.kernel)!
  const rows = iterations(Loops.outputs(plan.kernel))
  const group = usualGroup(profile)
  const isContiguous = loads.every((load) => stepOf(accessOf(load).at, loop.node) === 1)
  if (!isContiguous || rows * group * keptThreads > profile.saturatingThreads) return false
  const threads = Math.min(mostThreads, profile.maxWorkgroupThreads, profile.saturatingThreads / rows)
  plan.try(Opt.unroll(loop.id, lanes))
  return plan.try(Opt.group(loop.id, Math.max(group, largestPowerOfTwo(threads))))
}

/** A thread for each vector of results, if these saturate the device: its loads are coalesced, which those of threads that share a sum are not. */
const sumColumns = (plan: Plan, profile: DeviceProfile): boolean => {
  const { loads, loop } = contextOf(plan.kernel)!
  const outputs = Loops.outputs(plan.kernel)
  const steps = (own: Loops.Loop) => loads.map((load) => stepOf(accessOf(load).at, own.node))
  // others are the same for all neighbours
  const across = outputs.find((own) => steps(own).includes(1) && steps(own).every((step) => step === 0 || step === 1))
  const isWhole = across !== undefined && across.size % lanes === 0 && outputs.every(({ isSymbolic }) => !isSymbolic)
  if (!isWhole || iterations(outputs) / lanes * keptThreads < profile.saturatingThreads) return false
  if (!plan.try(Opt.upcast(across.id, lanes))) return false
  let left = columnThreads
  for (const { id, size } of outputs.toReversed()) {
    const amount = largestPower(id === across.id ? size / lanes : size, left)
    if (plan.try(Opt.local(id, amount))) left /= amount
  }
  plan.try(Opt.unroll(loop.id, lanes))
  return true
}

/** Chooses for a kernel that reduces along a context alone. */
export const chooseContext = (plan: Plan, profile: DeviceProfile): boolean =>
  contextOf(plan.kernel) !== undefined && (shareRow(plan, profile) || sumColumns(plan, profile))
