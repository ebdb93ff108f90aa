import * as Custom from "@tg/core-uop/Custom"
import { Profile } from "@tg/core-uop/DeviceProfile"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { given } from "@tg/core-uop/Given"
import { type Placement, type Program, Renderer, type RendererCaps, RenderError } from "@tg/core-uop/Program"
import * as Pass from "@tg/core-uop/Pass"
import * as Spec from "@tg/core-uop/Spec"
import { digest, type UOp } from "@tg/core-uop/UOp"
import { type Part, passes as launchPasses } from "@tg/devectorize/Concatenate"
import { Devectorize, type DevectorizeError, Linearize } from "@tg/devectorize/Devectorize"
import { Equality } from "@tg/egraph/Equality"
import { Split } from "@tg/egraph/SplitStage"
import { Heuristics, type Place } from "@tg/heuristics/Heuristics"
import type * as Opt from "@tg/postrange/Opt"
import { type IllegalOpt, Postrange } from "@tg/postrange/Postrange"
import { FusionCosts } from "@tg/rangeify/Fusion"
import { type Limits, limitsOf, Rangeify, type RangeifyError } from "@tg/rangeify/Rangeify"
import type { Schedule } from "@tg/rangeify/Schedule"
import { Context, Effect, Layer } from "effect"
import { phased } from "./internal/phased.ts"
import * as Equal from "./Equal.ts"
import * as KernelLimits from "./KernelLimits.ts"
import * as Persistent from "./Persistent.ts"

/** The stages of the compiler for one device, in order, shared by compiling, planning, tuning and inspection. */
export interface Stages {
  /**
   * For cache keys: equal for pipelines that make the same programs of the same graphs on devices
   * of equal profiles. `undefined` if a stage has no `id`; its programs are not cached.
   */
  readonly id: string | undefined
  readonly profile: DeviceProfile
  /** What the renderer expresses. */
  readonly caps: RendererCaps
  /** The device's limits and the cost model for schedules. */
  readonly limits: Limits
  /** What is said about persistent launches. */
  readonly persistent: Persistent.Service
  /** Spec `tensor` to an equal program: what `schedule` makes kernels of. */
  readonly equal: (sink: UOp) => Effect.Effect<Equal.Chosen, RangeifyError>
  /** Spec `tensor` to kernels in order. */
  readonly schedule: (sink: UOp) => Effect.Effect<Schedule, RangeifyError>
  /** The opts of a kernel of one member. */
  readonly choose: (kernel: UOp, place?: Place) => Effect.Effect<ReadonlyArray<Opt.Opt>>
  /** What its opts were measured to gain as a launch, in microseconds (`Heuristics.gain`). */
  readonly gain: (kernel: UOp) => number
  /** The kernel with these opts, or the first illegal one: the legality check of `apply`, for searches over opts. */
  readonly legal: (kernel: UOp, opts: ReadonlyArray<Opt.Opt>) => UOp | IllegalOpt
  /** Spec `kernel` to spec `opted`. */
  readonly apply: (name: string, kernel: UOp, opts: ReadonlyArray<Opt.Opt>) => Effect.Effect<UOp, IllegalOpt>
  /** Spec `opted` to spec `expanded`. */
  readonly devectorize: (name: string, opted: UOp) => Effect.Effect<UOp, DevectorizeError>
  /** Spec `expanded` to spec `linear`. */
  readonly linearize: (name: string, expanded: UOp) => Effect.Effect<UOp, DevectorizeError>
  /** The linear members of a launch, joined. */
  readonly join: (name: string, parts: ReadonlyArray<Part>) => Effect.Effect<UOp>
  /** The linear kernels of the phases of a persistent launch (`kernel`), joined by grid barriers. */
  readonly phases: (kernel: UOp, linears: ReadonlyArray<UOp>) => Effect.Effect<UOp>
  /** Spec `linear` to a program; fails beyond the limits of the device. */
  readonly render: (name: string, linear: UOp) => Effect.Effect<Program, RenderError | KernelLimits.KernelLimit>
  /** The program of a hand-written kernel (CUSTOM), in the renderer's language. */
  readonly written: (kernel: UOp) => Effect.Effect<Program, RenderError>
  /** The program with its arguments in shared bindings, where the renderer can. */
  readonly place?: ((program: Program, placement: Placement) => Program | undefined) | undefined
}

const make = Effect.gen(function*() {
  const profile = yield* Profile
  const equality = yield* Equality
  const split = yield* Split
  const rangeify = yield* Rangeify
  const heuristics = yield* Heuristics
  const postrange = yield* Postrange
  const devectorize = yield* Devectorize
  const linearize = yield* Linearize
  const renderer = yield* Renderer
  const limits = limitsOf(profile, yield* FusionCosts)
  const { caps } = renderer
  const persistent = yield* Persistent.Persistent
  const id = idOf([equality, split, rangeify, heuristics, postrange, devectorize, linearize, renderer], caps, limits)
  const stages = Pipeline.of({
    get id() {
      return id === undefined
        ? undefined
        : Persistent.idOf(persistent) === "off"
        ? id
        : `${id} ${Persistent.idOf(persistent)}`
    },
    profile,
    caps,
    limits,
    persistent,
    equal: Equal.chosen({ equality, heuristics, limits, postrange, profile, rangeify, split }),
    schedule: (sink) =>
      stages.equal(sink).pipe(
        Effect.flatMap(({ sink }) => rangeify.schedule(sink, limits)),
        Effect.flatMap((schedule) => Persistent.persist(stages, schedule, Persistent.idOf(persistent)))
      ),
    choose: heuristics.choose,
    gain: (kernel) => heuristics.gain?.(kernel) ?? 0,
    legal: (kernel, opts) => postrange.legal(kernel, opts, profile),
    apply: (name, kernel, opts) => postrange.apply(name, kernel, opts, profile),
    devectorize: (name, opted) => devectorize.devectorize(name, opted, caps, profile),
    linearize: (name, expanded) => linearize.linearize(name, expanded, caps),
    join: (name, parts) =>
      Effect.flatMap(Pass.watch, (watch) => {
        const where = { parts, caps, maxGrid: profile.maxGrid }
        const made = Pass.run(launchPasses, parts[0]!.linear, where, { kernel: name, watch })
        return made instanceof Pass.BrokenPass ? Effect.die(made) : Effect.succeed(made)
      }),
    phases: (kernel, linears) => Effect.sync(() => phased(caps, kernel, linears)),
    render: Effect.fnUntraced(function*(name, linear) {
      const violation = yield* Spec.firstViolation("linear", linear)
      if (violation !== undefined) return yield* new RenderError({ kernel: name, message: `${name}: ${violation}` })
      const exceeded = KernelLimits.check(name, linear, profile)
      return exceeded === undefined ? yield* renderer.render(name, linear) : yield* exceeded
    }),
    written: (kernel) => {
      const program = Custom.program(kernel, caps.target)
      return program instanceof RenderError ? Effect.fail(program) : (renderer.assemble ?? Effect.succeed)(program)
    },
    place: renderer.place
  })
  return stages
})

/** A digest of the ids of all stages, the renderer's capabilities and the cost model. */
const idOf = (
  stages: ReadonlyArray<{ readonly id?: string | undefined }>,
  caps: RendererCaps,
  { fusion }: Limits
): string | undefined => {
  const ids = stages.map(({ id }) => id)
  if (ids.includes(undefined)) return undefined
  const told = JSON.stringify(caps, (_, value: unknown) => value instanceof Set ? [...value].sort() : value)
  return digest([...ids, told, fusion?.key ?? ""].join("\n"))
}

/** The stages of the compiler as one value, made from their services. */
export class Pipeline extends Context.Service<Pipeline, Stages>()("@tg/jit/Pipeline") {
  /** Requires every stage. */
  static readonly layerNoDeps = Layer.effect(Pipeline, make)

  /** Stages that leave programs as they are written: nothing is found equal, nothing is cut into pieces. */
  static readonly asWritten = Layer.mergeAll(Equality.layerNone, Split.layerNone)

  /** The stages of the context, and the default ones for all others. */
  static readonly stages = Layer.mergeAll(
    given(Equality, Equality.layer),
    given(Split, Split.layer),
    given(Rangeify, Rangeify.layer),
    given(Heuristics, Heuristics.layer),
    given(Postrange, Postrange.layer),
    given(Devectorize, Devectorize.layer),
    given(Linearize, Linearize.layer)
  )

  /** Over a renderer and a profile, with `stages`. */
  static readonly layer = this.layerNoDeps.pipe(Layer.provide(this.stages))
}
