/** Steps of a model at places of a context, as sessions and pools compile them. */
import type { DeviceProfile } from "../../packages/core-uop/src/DeviceProfile.ts"
import * as ActivationPolicy from "../../packages/engine/src/ActivationPolicy.ts"
import * as Pages from "../../packages/engine/src/Pages.ts"
import * as PoolProgram from "../../packages/engine/src/PoolProgram.ts"
import * as Prompts from "../../packages/engine/src/Prompts.ts"
import * as Spans from "../../packages/engine/src/Spans.ts"
import type * as StepPlan from "../../packages/engine/src/StepPlan.ts"
import * as StepProgram from "../../packages/engine/src/StepProgram.ts"
import type { Vars } from "../../packages/jit/src/Estimate.ts"
import type { TensorProgram } from "../../packages/tensor/src/Program.ts"

/** So many tokens behind `depth` others. */
export interface Place {
  readonly tokens: number
  readonly depth: number
  readonly context: number
  /** Whether each token is one of another conversation, all of them behind as many. */
  readonly isPool?: boolean
}

/** The program of a step, and its variables. More tokens than a step of a few takes are a batch. */
export const stepAt = (
  model: StepPlan.Model,
  { context, depth, isPool = false, tokens }: Place,
  profile: DeviceProfile
): readonly [TensorProgram, Vars] => {
  const size = { activations: ActivationPolicy.activationsOn(profile), cache: "f16", context, profile } as const
  const prompts = Prompts.promptShape(model, { asked: undefined, context, profile })
  const most = prompts.sizes.at(-1) ?? prompts.chunk
  if (isPool) {
    const pages = tokens * Pages.pagesFor(depth + 1)
    const shape = { ...size, pieces: tokens * Pages.pagesFor(context), rows: tokens, tokens, isWhole: true }
    const ring = { given: tokens, each: most }
    return [PoolProgram.poolProgram(model, { ...shape, draws: "device", ring }), { pieces: pages }]
  }
  const span = Spans.at(depth, { ...size, chunk: tokens })
  if (tokens === 1 && profile.kind === "gpu") {
    return [StepProgram.decodeProgram(model, { ...size, span }), { T: 1, startPos: depth }]
  }
  // a batch has one program for all positions
  const step = tokens > most
    ? { ...size, chunk: tokens, order: "features", rows: "last" } as const
    : { ...size, chunk: tokens, isWhole: true, order: "tokens", rows: "last", span } as const
  return [StepProgram.stepProgram(model, step), StepProgram.variablesOf(step.order, depth, tokens)]
}
