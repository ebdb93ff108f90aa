import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { given } from "@tg/core-uop/Given"
import type * as Opt from "@tg/postrange/Opt"
import { type Legal, legal as usualLegal, Postrange } from "@tg/postrange/Postrange"
import { Context, Effect, Layer } from "effect"
import { addRowsCpu, addsRows } from "./Additions.ts"
import { chooseCpu } from "./Cpu.ts"
import { chooseGpu } from "./Gpu.ts"
import type { Place } from "./Place.ts"
import { Plan } from "./Plan.ts"
import { chooseTilesCpu } from "./TilesCpu.ts"

/** Legal opts for a kernel (spec `kernel`) on a device. Depends on nothing else: same kernel, same profile, same place, same list. */
export const choose = (
  kernel: UOp,
  profile: DeviceProfile,
  { legal = usualLegal, place = "launch" }: { readonly legal?: Legal; readonly place?: Place | undefined } = {}
): ReadonlyArray<Opt.Opt> => {
  const plan = new Plan(kernel, profile, legal)
  if (profile.kind === "cpu") {
    if (addsRows(kernel)) addRowsCpu(plan)
    else if (!chooseTilesCpu(plan)) chooseCpu(plan)
    return plan.opts
  }
  chooseGpu(plan, profile, place)
  return plan.opts
}

export type { Place } from "./Place.ts"

/** The heuristics stage: kernel and device profile to a list of opts. */
export class Heuristics extends Context.Service<Heuristics, {
  /** For cache keys: equal for services that choose alike. */
  readonly id?: string | undefined
  /** For a launch of its own, if nothing else is said. */
  readonly choose: (kernel: UOp, place?: Place) => Effect.Effect<ReadonlyArray<Opt.Opt>>
  /** Microseconds that a kernel's opts, as a launch of its own, were measured to take less than the usual ones: 0 if nobody measured. */
  readonly gain?: ((kernel: UOp) => number) | undefined
}>()("@tg/heuristics/Heuristics") {
  /** Chooses for the device of the `DeviceProfile` service what `Postrange` allows: the context's, the usual one if it has none. */
  static readonly layer = Layer.effect(
    Heuristics,
    Effect.gen(function*() {
      const profile = yield* Profile
      const { id, legal } = yield* Postrange
      return Heuristics.of({
        id: id === undefined ? undefined : `@tg/heuristics ${id}`,
        choose: Effect.fn("Heuristics.choose")(function*(kernel, place) {
          return yield* Effect.sync(() => choose(kernel, profile, { legal, place }))
        })
      })
    })
  ).pipe(Layer.provide(given(Postrange, Postrange.layer)))

  /** Never optimises: for bisecting a miscompile, and as a mock. */
  static readonly layerNone = Layer.succeed(Heuristics, { id: "none", choose: () => Effect.succeed([]) })
}
