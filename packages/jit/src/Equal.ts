/** What the compiler makes kernels of: an equal program that takes less time than what was written, by the costs that place values. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Pass from "@tg/core-uop/Pass"
import type { UOp } from "@tg/core-uop/UOp"
import type { BodyReport, Weigh, Weight } from "@tg/egraph/Bodies"
import type { Equality } from "@tg/egraph/Equality"
import type { SplitReport } from "@tg/egraph/Split"
import type { Split } from "@tg/egraph/SplitStage"
import { chain } from "@tg/rangeify/Cost"
import * as Fusion from "@tg/rangeify/Fusion"
import { members } from "@tg/rangeify/Horizontal"
import type { Limits, Rangeify, RangeifyError } from "@tg/rangeify/Rangeify"
import type { Step } from "@tg/rangeify/Schedule"
import * as ScheduleCache from "@tg/rangeify/ScheduleCache"
import { Duration, Effect } from "effect"
import * as EqualTimes from "./EqualTimes.ts"

/** An equal program, and why it is that one. */
export interface Chosen {
  readonly sink: UOp
  /** What became of each body. */
  readonly bodies: ReadonlyArray<BodyReport>
  /** Of reductions that read each other, in pieces or whole. */
  readonly pieces: ReadonlyArray<SplitReport>
}

/** The stages that find equal programs, and those that say what they take. */
export interface Stages {
  readonly equality: Equality["Service"]
  readonly split: Split["Service"]
  readonly rangeify: Rangeify["Service"]
  readonly profile: DeviceProfile
  readonly limits: Limits
}

/** Forms of bodies first, by what they are with their reductions in pieces. */
export const chosen = (stages: Stages) =>
  Effect.fnUntraced(function*(program: UOp) {
    const { equality, profile, split } = stages
    const told = yield* EqualTimes.Listener
    let weighMillis = 0
    const weigh: Weigh<RangeifyError> = (form, name) =>
      Effect.map(Effect.timed(weighIn(stages)(form, name)), ([time, weight]) => {
        weighMillis += Duration.toMillis(time)
        return weight
      })
    const { bodies, sink } = yield* equality.optimise(program, { profile, weigh })
    told?.({
      bodies: bodies.length,
      weighed: bodies.filter(({ weighed }) => weighed !== undefined).length,
      searchMillis: bodies.reduce((millis, body) => millis + body.millis, 0),
      weighMillis
    })
    const { reports, sink: cut } = split.split(sink, profile)
    const found: Chosen = { sink: cut, bodies, pieces: reports }
    return found
  })

const weighIn = (stages: Stages): Weigh<RangeifyError> => (program, name) => {
  const { limits, profile, rangeify, split } = stages
  const { reports, sink } = split.split(program, profile)
  return rangeify.schedule(sink, limits).pipe(
    Effect.map(({ steps }): Weight => {
      const own = steps.filter(({ body }) => body === name)
      return {
        launches: own.length,
        stages: chain(own.flatMap(kernelsOf).map((kernel) => kernel.src.length)),
        pieces: reports.filter(({ piece }) => piece !== undefined).length,
        micros: chain(own.map((step) => microsOf(step, stages)))
      }
    }),
    // who listens wants to hear of what is compiled, not of what might have been
    Effect.provideService(Pass.Listener, undefined),
    Effect.provideService(ScheduleCache.Listener, undefined)
  )
}

/** The kernels of a launch; those written by hand are not looked into. */
const kernelsOf = (step: Step): ReadonlyArray<UOp> =>
  step.kind === "custom" ? [] : members(step.ast).map(({ ast }) => ast)

/** Where nobody knows costs, a launch and its bytes at the speed of memory. */
const microsOf = (step: Step, { limits: { fusion }, profile }: Pick<Stages, "limits" | "profile">): number => {
  if (step.kind === "custom") return profile.dispatchMicros
  const kernels = kernelsOf(step)
  if (fusion !== undefined) return Fusion.launchOf(kernels.map((kernel) => fusion.kernelMicros(kernel)))
  const elements = kernels.flatMap((kernel) => [...Fusion.traffic(kernel, Fusion.usualSize).values()])
  return profile.dispatchMicros + 4 * chain(elements) / profile.bytesPerMicro
}
