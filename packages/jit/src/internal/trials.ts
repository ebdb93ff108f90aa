/** Which persistent launches of a `Jit` were tried. */
import type { DeviceShape } from "@tg/runtime/Device"
import { Effect } from "effect"
import type * as Binding from "../Binding.ts"
import type { CompileCacheShape } from "../CompileCache.ts"
import type { Compiler } from "../Compiler.ts"
import type { Prepared } from "../Jit.ts"
import type { Meeting } from "../Meeting.ts"
import type * as Plan from "../Plan.ts"
import * as Trial from "../Trial.ts"

/** A program that was compiled, and its key in the cache of plans. */
export interface Captured extends Binding.Compiled {
  readonly key: string | undefined
  plan: Plan.ExecutionPlan
}

/** Tries the persistent launches of a program that nobody has tried on this device; where one fails, there are none from now on. */
export const make = ({ cache, compiler, device, meeting }: {
  readonly cache: CompileCacheShape
  readonly compiler: Compiler["Service"]
  readonly device: DeviceShape
  readonly meeting: Meeting
}) => {
  /** The code of launches that compute what their kernels do. */
  const trusted = new Set<unknown>()
  return Effect.fn("Jit.tryLaunches")(function*(compiled: Captured, { dispatches }: Prepared) {
    const { key, plan, schedule } = compiled
    if (plan.meeting === undefined || plan.isTried === true) return
    const bound = { ...yield* schedule, plan, dispatches }
    const why = (yield* Trial.failure({ device, compiler, trusted }, bound)) ?? (yield* meeting.timeout)
    if (why !== undefined) return yield* meeting.refuse(why)
    compiled.plan = { ...plan, isTried: true }
    if (key !== undefined) yield* cache.set(key, compiled.plan)
  })
}
