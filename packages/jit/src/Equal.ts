/** What the compiler makes kernels of: an equal program that takes less time than what was written, by the costs that place values. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Pass from "@tg/core-uop/Pass"
import type { UOp } from "@tg/core-uop/UOp"
import type { BodyReport, Weigh, Weight } from "@tg/egraph/Bodies"
import type { Equality } from "@tg/egraph/Equality"
import type { SplitReport } from "@tg/egraph/Split"
import type { Split } from "@tg/egraph/SplitStage"
import type { Heuristics } from "@tg/heuristics/Heuristics"
import * as Loops from "@tg/postrange/Loops"
import { IllegalOpt, type Postrange } from "@tg/postrange/Postrange"
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
  readonly heuristics: Heuristics["Service"]
  readonly postrange: Postrange["Service"]
  readonly profile: DeviceProfile
  readonly limits: Limits
}

/** Forms of bodies first, by what they are with their reductions in pieces. */
export const chosen = (stages: Stages) => {
  const { equality, profile, split } = stages
  const weight = weighIn(stages)
  return Effect.fnUntraced(function*(program: UOp) {
    const told = yield* EqualTimes.Listener
    let weighMillis = 0
    const weigh: Weigh<RangeifyError> = (form, name) =>
      Effect.map(Effect.timed(weight(form, name)), ([time, weight]) => {
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
}

const weighIn = (stages: Stages): Weigh<RangeifyError> => {
  const { limits, profile, rangeify, split } = stages
  const threads = threadsOf(stages)
  return (program, name) => {
    const { reports, sink } = split.split(program, profile)
    return rangeify.schedule(sink, limits).pipe(
      Effect.flatMap(Effect.fnUntraced(function*({ steps }) {
        const own = steps.filter(({ body }) => body === name)
        const weight: Weight = {
          launches: own.length,
          stages: chain(own.flatMap(kernelsOf).map((kernel) => kernel.src.length)),
          pieces: reports.filter(({ piece }) => piece !== undefined).length,
          micros: chain(yield* Effect.forEach(own, (step) => microsOf(step, stages, threads)))
        }
        return weight
      })),
      // who listens wants to hear of what is compiled, not of what might have been
      Effect.provideService(Pass.Listener, undefined),
      Effect.provideService(ScheduleCache.Listener, undefined)
    )
  }
}

/** The kernels of a launch; those written by hand are not looked into. */
const kernelsOf = (step: Step): ReadonlyArray<UOp> =>
  step.kind === "custom" ? [] : members(step.ast).map(({ ast }) => ast)

/** With the threads that the opts give a kernel. Where nobody knows costs, a launch and its bytes at the speed of memory. */
const microsOf = Effect.fnUntraced(function*(step: Step, { limits: { fusion }, profile }: Stages, threadsOf: Threads) {
  if (step.kind === "custom") return profile.dispatchMicros
  const kernels = kernelsOf(step)
  if (fusion === undefined) {
    return profile.dispatchMicros + 4 * chain(kernels.map(elementsOf)) / profile.bytesPerMicro
  }
  return Fusion.launchOf(
    yield* Effect.forEach(kernels, (ast) => {
      const usual = fusion.kernelMicros(ast)
      // where little is hidden, waves change little, and choosing opts takes longer than all else here
      return Math.min(usual.transfer ?? 0, usual.work) <= Fusion.margin * Fusion.launchOf([usual])
        ? Effect.succeed(usual)
        : Effect.map(threadsOf(ast), (threads) => ({ ...usual, waves: Fusion.wavesOf(profile, threads) }))
    })
  )
})

const elementsOf = (kernel: UOp): number => chain([...Fusion.traffic(kernel, Fusion.usualSize).values()])

/** Threads of all workgroups of a kernel, as it will be launched. */
type Threads = (kernel: UOp) => Effect.Effect<number>

/** Each kernel's once: both forms of a body have most kernels in common. */
const threadsOf = ({ heuristics, postrange, profile }: Stages): Threads => {
  const known = new WeakMap<UOp, number>()
  return (kernel) => {
    const before = known.get(kernel)
    if (before !== undefined) return Effect.succeed(before)
    return Effect.map(heuristics.choose(kernel), (opts) => {
      const opted = postrange.legal(kernel, opts, profile)
      const made = opted instanceof IllegalOpt ? kernel : opted
      const workgroups = Loops.outputs(made).filter(({ axis }) => axis === "GLOBAL")
        .reduce((n, { node }) => n * Fusion.usualSize(node.src[0]!), 1)
      const threads = workgroups * Loops.threads(made)
      known.set(kernel, threads)
      return threads
    })
  }
}
