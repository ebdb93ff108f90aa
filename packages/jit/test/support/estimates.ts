import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import * as Reference from "@tg/runtime/Reference"
import { Effect } from "effect"
import * as Estimate from "../../src/Estimate.ts"
import { Pipeline } from "../../src/Pipeline.ts"

/** What a program is estimated to take on a device that is not there. */
export const estimateOn = (sink: UOp, profile: DeviceProfile) =>
  Effect.runSync(
    Effect.gen(function*() {
      const { blocks, launches } = yield* Estimate.estimate(yield* Pipeline, sink)
      return { blocks, launches: (vars: Estimate.Vars) => Effect.runSync(launches(vars)) }
    }).pipe(Effect.provide(Pipeline.layer), Effect.provide([Reference.renderer(), Profile.layer(profile)]))
  )
