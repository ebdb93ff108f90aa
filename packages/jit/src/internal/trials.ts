/** Programs whose persistent launches are tried before they are used. */
import { digest } from "@tg/core-uop/UOp"
import type { DeviceError } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import type * as Binding from "../Binding.ts"
import type { CompileCacheShape } from "../CompileCache.ts"
import type { Prepared } from "../Jit.ts"
import type { Meeting } from "../Meeting.ts"
import * as Persistent from "../Persistent.ts"
import type * as Pipeline from "../Pipeline.ts"
import type * as Plan from "../Plan.ts"
import * as Trial from "../Trial.ts"

/** What a `Jit` tries with. */
export interface Means extends Trial.Means {
  readonly cache: CompileCacheShape
  readonly meeting: Meeting
  readonly pipeline: Pipeline.Stages
}

/**
 * A program, bound to memory. Its persistent launches are tried before, where nobody has; if one fails, there are none from now on, and it is compiled again, to launches one by one.
 */
export const bound = Effect.fnUntraced(function*<E>(
  means: Means,
  compile: Effect.Effect<Binding.Compiled, E>,
  bind: (compiled: Binding.Compiled) => Effect.Effect<Prepared, DeviceError, Scope.Scope>
) {
  const compiled = yield* compile
  const untried = yield* Effect.filter(persistentIn(compiled.plan), (launch) => isUntried(means, compiled.plan, launch))
  if (untried.length === 0) return yield* bind(compiled)
  yield* yield* Persistent.Ready
  yield* Effect.scoped(Effect.flatMap(bind(compiled), (prepared) => tryLaunches(means, prepared, untried)))
  return yield* bind(yield* compile)
})

/** The numbers of launches that bind the counters of barriers, one for each program. */
const persistentIn = ({ launches, meeting }: Plan.ExecutionPlan): ReadonlyArray<number> => {
  if (meeting === undefined) return []
  const ofPrograms = new Map(launches.map(({ program, slots }, i) => [program, { i, slots }]))
  return [...ofPrograms.values()].flatMap(({ i, slots }) =>
    slots.some((slot) => slot.kind === "block" && slot.block === meeting) ? [i] : []
  )
}

/** What is tried: the code, of which each variant is another one. */
const codeOf = ({ launches, programs }: Plan.ExecutionPlan, launch: number): unknown => {
  const program = programs[launches[launch]!.program]!
  const { code, given } = program
  if (given === undefined) return code
  return typeof code === "string" ? `${code}\n${JSON.stringify(given)}` : program
}

/** The key of a launch that was tried on a device, in the cache of plans: what lies there is empty. */
const keyOf = ({ device: { profile } }: Means, code: unknown): string =>
  `tried ${digest([profile.name, profile.adapter, String(code)].join("\n"))}`

const isUntried = Effect.fnUntraced(function*(means: Means, plan: Plan.ExecutionPlan, launch: number) {
  const code = codeOf(plan, launch)
  const { trusted } = means.meeting
  if (!trusted.has(code) && typeof code === "string" && (yield* means.cache.get(keyOf(means, code))) !== undefined) {
    trusted.add(code)
  }
  return !trusted.has(code)
})

const tryLaunches = Effect.fn("Jit.tryLaunches")(
  function*(means: Means, { dispatches, plan, schedule }: Prepared, untried: ReadonlyArray<number>) {
    const { cache, meeting, pipeline: { persistent } } = means
    const { steps } = yield* schedule
    // words that readers await are 0 before each launch, and behind the last one
    yield* meeting.clear
    for (const launch of untried) {
      const step = steps[launch]!
      // kernels that are written by hand have no counters
      if (step.kind === "custom") continue
      const tried = { step, launch: plan.launches[launch]!, dispatch: dispatches[launch]! }
      const failure = yield* Trial.failure(means, tried)
      const why = (yield* meeting.timeout) ?? failure
      yield* meeting.clear
      if (why !== undefined) return yield* Persistent.refuse(persistent, why)
      const code = codeOf(plan, launch)
      meeting.trusted.add(code)
      if (typeof code === "string") yield* cache.set(keyOf(means, code), { programs: [], launches: [], blocks: [] })
    }
  }
)
