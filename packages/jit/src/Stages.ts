/** One kernel through the compiler, every stage kept: to look at, not to run. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { RendererCaps } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { concatenate, type Part } from "@tg/devectorize/Concatenate"
import { devectorize, DevectorizeError } from "@tg/devectorize/Devectorize"
import { linearize } from "@tg/devectorize/Linearize"
import { choose as usual } from "@tg/heuristics/Heuristics"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import { members } from "@tg/rangeify/Horizontal"
import { Result } from "effect"

/** What each stage made of a kernel: of all its members, where it has several. */
export interface Stages {
  /** Spec `kernel`. */
  readonly kernel: UOp
  /** What was chosen for each member. */
  readonly opts: ReadonlyArray<ReadonlyArray<Opt.Opt>>
  /** Spec `opted`, with each member's own slots and loops. */
  readonly opted: UOp
  /** Spec `expanded`, likewise. */
  readonly expanded: UOp
  /** Spec `linear`: the renderer's input. */
  readonly linear: UOp
}

/** Where a kernel would run. */
export interface Target {
  readonly profile: DeviceProfile
  readonly caps: RendererCaps
  /** Which opts a kernel gets: the heuristics' if nothing else is given. */
  readonly choose?: ((kernel: UOp) => ReadonlyArray<Opt.Opt>) | undefined
}

/** A stage that refuses a kernel. */
export type StageError = Postrange.IllegalOpt | DevectorizeError

/** The stages that `Compiler` runs before it renders, with the same results. */
export const stages = (
  name: string,
  kernel: UOp,
  { caps, choose = (member) => usual(member, profile), profile }: Target
): Result.Result<Stages, StageError> =>
  Result.gen(function*() {
    const parts: Array<MemberStages & Part> = []
    for (const { ast, slots } of members(kernel)) {
      parts.push({ ...yield* stagesOfMember(name, ast, choose(ast), { caps, profile }), slots })
    }
    const joined = (rootOf: (part: MemberStages) => UOp): UOp =>
      rootOf(parts[0]!).with(parts.flatMap((part) => rootOf(part).src))
    return {
      kernel,
      opts: parts.map(({ opts }) => opts),
      opted: joined(({ opted }) => opted),
      expanded: joined(({ expanded }) => expanded),
      linear: concatenate(parts, { caps, maxGrid: profile.maxGrid })
    }
  })

/** What each stage made of one member. */
export interface MemberStages {
  readonly opts: ReadonlyArray<Opt.Opt>
  readonly opted: UOp
  readonly expanded: UOp
  readonly linear: UOp
}

/** The stages of a member (`Horizontal.members`) with these opts, up to where the members of a launch are put together. */
export const stagesOfMember = (
  name: string,
  kernel: UOp,
  opts: ReadonlyArray<Opt.Opt>,
  { caps, profile }: Pick<Target, "caps" | "profile">
): Result.Result<MemberStages, StageError> => {
  const opted = Postrange.apply(name, kernel, opts, profile)
  if (opted instanceof Postrange.IllegalOpt) return Result.fail(opted)
  const expanded = devectorize(name, opted, caps, profile)
  if (expanded instanceof DevectorizeError) return Result.fail(expanded)
  return Result.succeed({ opts, opted, expanded, linear: linearize(expanded, caps) })
}

/** The opts as the stages' messages write them: `GROUP(r2, 32)`; those of several members behind their numbers, `1: `. */
export const printOpts = ({ opts }: Pick<Stages, "opts">): ReadonlyArray<string> =>
  opts.flatMap((own, member) => own.map((opt) => `${opts.length === 1 ? "" : `${member + 1}: `}${Opt.print(opt)}`))
