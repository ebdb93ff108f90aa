import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { given } from "@tg/core-uop/Given"
import * as Opt from "@tg/postrange/Opt"
import { type Legal, legal as usualLegal, Postrange } from "@tg/postrange/Postrange"
import { Context, Effect, Layer } from "effect"
import { addRowsCpu, addsRows } from "./Additions.ts"
import { chooseCpu } from "./Cpu.ts"
import { upcastTokens } from "./Few.ts"
import { loopsOffGrid } from "./Grid.ts"
import { groupReductions, longestReduction, shortReduction, usualGroup } from "./Groups.ts"
import { gatherRows } from "./Order.ts"
import { Plan } from "./Plan.ts"
import { localOutputs, shareRows, upcastAlike } from "./Rows.ts"
import { chooseStaged } from "./Staged.ts"
import { chooseTiles, chooseTilesCpu } from "./Tiles.ts"
import { fewestTerms, lanes, maxUnrollGpu, unrollShortLoops, vectoriseOutputs, vectoriseReductions } from "./Vectors.ts"

/** Threads of a workgroup that computes rows, and elements. */
const rowThreads = 128
const maxLocal = 64
/** Opts for a GPU, for a kernel that stages nothing. */
const chooseGpu = (plan: Plan, profile: DeviceProfile): void => {
  upcastAlike(plan)
  const tokens = upcastTokens(plan, profile)
  const reduced = vectoriseReductions(plan, { fewest: fewestTerms(profile) })
  if (!reduced) vectoriseOutputs(plan)
  const group = usualGroup(profile)
  if (longestReduction(plan.kernel) < shortReduction) {
    localOutputs(plan, Math.min(maxLocal, profile.maxWorkgroupThreads))
  } else {
    // loads are contiguous along the outputs: threads go there first, for coalescing
    if (!reduced) localOutputs(plan, Math.floor(group / 2))
    if (reduced) shareRows(plan, profile, { group, threads: Math.min(rowThreads, profile.maxWorkgroupThreads), tokens })
    else groupReductions(plan, group)
  }
  unrollShortLoops(plan, maxUnrollGpu, tokens * lanes * maxUnrollGpu)
}

/** Legal opts for a kernel (spec `kernel`) on a device. Depends on nothing else: same kernel, same profile, same list. */
export const choose = (kernel: UOp, profile: DeviceProfile, legal: Legal = usualLegal): ReadonlyArray<Opt.Opt> => {
  const plan = new Plan(kernel, profile, legal)
  if (profile.kind === "cpu") {
    if (addsRows(kernel)) addRowsCpu(plan)
    else if (!chooseTilesCpu(plan)) chooseCpu(plan)
    return plan.opts
  }
  if (kernel.src.length > 1) chooseStaged(plan, profile)
  else if (!chooseTiles(plan, profile)) chooseGpu(plan, profile)
  gatherRows(plan)
  fitGrid(plan, profile)
  return plan.opts
}

/** Moves loops into the threads until the others fit the grid. */
const fitGrid = (plan: Plan, { maxGrid }: DeviceProfile): void => {
  const moves = (): boolean => loopsOffGrid(plan.kernel, maxGrid).some(({ id, size }) => plan.try(Opt.loop(id, size)))
  while (moves());
}

/** The heuristics stage: kernel and device profile to a list of opts. */
export class Heuristics extends Context.Service<Heuristics, {
  /** For cache keys: equal for services that choose alike. */
  readonly id?: string | undefined
  readonly choose: (kernel: UOp) => Effect.Effect<ReadonlyArray<Opt.Opt>>
}>()("@tg/heuristics/Heuristics") {
  /** Chooses for the device of the `DeviceProfile` service what `Postrange` allows: the context's, the usual one if it has none. */
  static readonly layer = Layer.effect(
    Heuristics,
    Effect.gen(function*() {
      const profile = yield* Profile
      const { id, legal } = yield* Postrange
      return Heuristics.of({
        id: id === undefined ? undefined : `@tg/heuristics ${id}`,
        choose: Effect.fn("Heuristics.choose")((kernel) => Effect.sync(() => choose(kernel, profile, legal)))
      })
    })
  ).pipe(Layer.provide(given(Postrange, Postrange.layer)))

  /** Never optimises: for bisecting a miscompile, and as a mock. */
  static readonly layerNone = Layer.succeed(Heuristics, { id: "none", choose: () => Effect.succeed([]) })
}
