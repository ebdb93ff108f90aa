/** One kernel through the compiler, every stage kept: to look at, not to run. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { RendererCaps } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { devectorize, DevectorizeError } from "@tg/devectorize/Devectorize"
import { linearize } from "@tg/devectorize/Linearize"
import { choose as usual } from "@tg/heuristics/Heuristics"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import { Result } from "effect"

/** What each stage made of a kernel. */
export interface Stages {
  /** Spec `kernel`. */
  readonly kernel: UOp
  /** What was chosen for it. */
  readonly opts: ReadonlyArray<Opt.Opt>
  /** Spec `opted`. */
  readonly opted: UOp
  /** Spec `expanded`. */
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

/** The stages that `Compiler` runs before it renders, with the same results. */
export const stages = (
  name: string,
  kernel: UOp,
  { caps, choose = (kernel) => usual(kernel, profile), profile }: Target
): Result.Result<Stages, Postrange.IllegalOpt | DevectorizeError> => {
  const opts = choose(kernel)
  const opted = Postrange.apply(name, kernel, opts, profile)
  if (opted instanceof Postrange.IllegalOpt) return Result.fail(opted)
  const expanded = devectorize(name, opted, caps, profile)
  if (expanded instanceof DevectorizeError) return Result.fail(expanded)
  return Result.succeed({ kernel, opts, opted, expanded, linear: linearize(expanded, caps) })
}

/** The opts as the stages' messages write them: `GROUP(r2, 32)`. */
export const printOpts = ({ opts }: Pick<Stages, "opts">): ReadonlyArray<string> => opts.map(Opt.print)
