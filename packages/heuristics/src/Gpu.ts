/** Opts for a GPU. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Opt from "@tg/postrange/Opt"
import { upcastTokens } from "./Few.ts"
import { loopsOffGrid } from "./Grid.ts"
import { groupReductions, longestReduction, shortReduction, usualGroup } from "./Groups.ts"
import { chooseContext } from "./Contexts.ts"
import { chooseMatrix } from "./Matrix.ts"
import { gatherRows } from "./Order.ts"
import { upcastAlike } from "./Outputs.ts"
import type { Place } from "./Place.ts"
import type { Plan } from "./Plan.ts"
import { localOutputs, shareRows } from "./Rows.ts"
import { chooseStaged } from "./Staged.ts"
import { chooseTiles } from "./Tiles.ts"
import { fewestTerms, lanes, maxUnrollGpu, unrollShortLoops, vectoriseOutputs, vectoriseReductions } from "./Vectors.ts"

/** Threads of a workgroup that computes rows, and elements. */
const rowThreads = 128
const maxLocal = 64
/** Threads that compute elements at least: with fewer, lanes of a subgroup are idle. */
const fewestLocal = 16
/** For a kernel that stages nothing and has no tiles of tokens. */
const chooseUsual = (plan: Plan, profile: DeviceProfile): void => {
  if (chooseContext(plan, profile)) return
  upcastAlike(plan)
  const tile = upcastTokens(plan, profile)
  const reduced = vectoriseReductions(plan, { fewest: fewestTerms(profile) })
  if (!reduced) vectoriseOutputs(plan)
  const group = usualGroup(profile)
  if (longestReduction(plan.kernel) < shortReduction) {
    localOutputs(plan, Math.min(maxLocal, profile.maxWorkgroupThreads), fewestLocal, profile.subgroupSize)
  } else {
    // loads are contiguous along the outputs: threads go there first, for coalescing
    if (!reduced) localOutputs(plan, Math.floor(group / 2))
    if (reduced) shareRows(plan, profile, { group, threads: Math.min(rowThreads, profile.maxWorkgroupThreads), tile })
    else groupReductions(plan, group)
  }
  unrollShortLoops(plan, maxUnrollGpu, () => tile.tokens * lanes * maxUnrollGpu)
}

/** Moves loops into the threads until the others fit the grid. */
const fitGrid = (plan: Plan, { maxGrid }: DeviceProfile): void => {
  const moves = (): boolean => loopsOffGrid(plan.kernel, maxGrid).some(({ id, size }) => plan.try(Opt.loop(id, size)))
  while (moves());
}

/** Chooses for a kernel on a GPU. */
export const chooseGpu = (plan: Plan, profile: DeviceProfile, place: Place): void => {
  if (chooseMatrix(plan, profile)) return
  if (plan.kernel.src.length > 1) chooseStaged(plan, profile, place)
  else if (!chooseTiles(plan, profile)) chooseUsual(plan, profile)
  gatherRows(plan)
  fitGrid(plan, profile)
}
