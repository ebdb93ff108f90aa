/** One kernel through the stages of a pipeline, each result kept. */
import * as Phases from "@tg/core-uop/Phases"
import { argOf, type UOp } from "@tg/core-uop/UOp"
import type { Part } from "@tg/devectorize/Concatenate"
import type { DevectorizeError } from "@tg/devectorize/Devectorize"
import type { Place } from "@tg/heuristics/Heuristics"
import * as Opt from "@tg/postrange/Opt"
import type { IllegalOpt } from "@tg/postrange/Postrange"
import { members } from "@tg/rangeify/Horizontal"
import { Effect } from "effect"
import type * as Pipeline from "./Pipeline.ts"

/** The result of each stage for a kernel, with all its members. */
export interface Stages {
  /** Spec `kernel`. */
  readonly kernel: UOp
  /** The opts chosen for each member. */
  readonly opts: ReadonlyArray<ReadonlyArray<Opt.Opt>>
  /** Spec `opted`, with each member's own slots and loops. */
  readonly opted: UOp
  /** Spec `expanded`, likewise. */
  readonly expanded: UOp
  /** Spec `linear`: the renderer's input. */
  readonly linear: UOp
}

/** Errors of the stages. */
export type StageError = IllegalOpt | DevectorizeError

/** The result of each stage for one member. */
export interface MemberStages {
  readonly opts: ReadonlyArray<Opt.Opt>
  readonly opted: UOp
  readonly expanded: UOp
  readonly linear: UOp
}

/** The stages in front of the renderer: of each member, compiled alone, and of their joined launch. */
export const ofKernel = (
  pipeline: Pipeline.Stages,
  name: string,
  kernel: UOp
): Effect.Effect<Stages, StageError> =>
  Phases.isPersistent(kernel) ? ofPhases(pipeline, name, kernel) : ofLaunch(pipeline, name, kernel)

/** The stages of a persistent launch: of each phase, compiled as a launch, and of their joined kernel. */
const ofPhases = Effect.fnUntraced(function*(pipeline: Pipeline.Stages, name: string, kernel: UOp) {
  const phases = Phases.phasesOf(kernel)
  const made = yield* Effect.forEach(phases, (phase) => ofPhase(pipeline, name, phase.kernel))
  const stage = (kernelOf: (own: Stages) => UOp): UOp =>
    Phases.persistent(
      kernel.arena,
      phases.map((phase, i) => ({ ...phase, kernel: kernelOf(made[i]!) })),
      argOf(kernel, "PERSISTENT")
    )
  const stages: Stages = {
    kernel,
    opts: made.flatMap(({ opts }) => opts),
    opted: stage(({ opted }) => opted),
    expanded: stage(({ expanded }) => expanded),
    linear: yield* pipeline.phases(kernel, made.map(({ linear }) => linear))
  }
  return stages
})

/** The stages of a kernel that is a phase of a persistent launch, up to where they are joined. */
export const ofPhase = (
  pipeline: Pipeline.Stages,
  name: string,
  kernel: UOp
): Effect.Effect<Stages, StageError> => ofLaunch(pipeline, name, kernel, "phase")

const ofLaunch = Effect.fnUntraced(function*(pipeline: Pipeline.Stages, name: string, kernel: UOp, place?: Place) {
  const parts: Array<MemberStages & Part> = []
  for (const { ast, slots } of members(kernel)) {
    parts.push({ ...yield* ofMember(pipeline, name, ast, yield* pipeline.choose(ast, place)), slots })
  }
  const joined = (rootOf: (part: MemberStages) => UOp): UOp =>
    rootOf(parts[0]!).with(parts.flatMap((part) => rootOf(part).src))
  const stages: Stages = {
    kernel,
    opts: parts.map(({ opts }) => opts),
    opted: joined(({ opted }) => opted),
    expanded: joined(({ expanded }) => expanded),
    linear: yield* pipeline.join(name, parts)
  }
  return stages
})

/** The stages of a member (`Horizontal.members`) with these opts, up to the join of a launch's members. */
export const ofMember = (
  pipeline: Pipeline.Stages,
  name: string,
  kernel: UOp,
  opts: ReadonlyArray<Opt.Opt>
): Effect.Effect<MemberStages, StageError> =>
  Effect.gen(function*() {
    const opted = yield* pipeline.apply(name, kernel, opts)
    const expanded = yield* pipeline.devectorize(name, opted)
    return { opts, opted, expanded, linear: yield* pipeline.linearize(name, expanded) }
  })

/** The opts in the stages' notation: `GROUP(r2, 32)`, with the member's number in front (`1: `) where there are several. */
export const printOpts = ({ opts }: Pick<Stages, "opts">): ReadonlyArray<string> =>
  opts.flatMap((own, member) => own.map((opt) => `${opts.length === 1 ? "" : `${member + 1}: `}${Opt.print(opt)}`))
