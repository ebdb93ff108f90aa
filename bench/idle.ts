/**
 * Stages that compute one result after the other while most of their workgroup's threads are idle, in steps of a model: a reduction that the stage shares with others
 * may have taken the threads. So much can be said without a GPU; what it costs cannot.
 *
 *     node bench/idle.ts glm-4.7-flash:q4_0 [--steps 1@0,1@3000,16@0] [--context 16384]
 *
 * A step is tokens@depth. Exits with 1 where there are any.
 */
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { openRanges, type UOp } from "../packages/core-uop/src/UOp.ts"
import { loopsBetween } from "../packages/core-uop/src/Workgroup.ts"
import { Checked } from "../packages/core-uop/src/Spec.ts"
import type * as StepPlan from "../packages/engine/src/StepPlan.ts"
import { outermost } from "../packages/heuristics/src/Outermost.ts"
import { iterations } from "../packages/heuristics/src/Sizes.ts"
import type { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Loops from "../packages/postrange/src/Loops.ts"
import { members } from "../packages/rangeify/src/Horizontal.ts"
import { Effect } from "effect"
import * as Compiled from "./support/compiled.ts"
import { type Place, stepAt } from "./support/places.ts"

/** This part of the threads is used, at least. */
const leastUsed = 1 / 4

/** What is told of each stage of an opted kernel whose threads are idle. */
export const idleIn = (opted: UOp): ReadonlyArray<string> => {
  const threads = Loops.threads(opted)
  const between = loopsBetween(opted)
  return opted.src.flatMap((end, i) => {
    const own = Loops.ofEnd(end).filter(({ node }) => !between.has(node))
    // what is the same for all results occupies threads once
    const sums = outermost(end).filter((sum) => own.some(({ node }) => openRanges(sum).has(node)))
    const used = iterations(own.filter(({ axis }) => axis === "LOCAL")) * Math.max(1, ...sums.map(Loops.groupOf))
    const inLine = iterations(own.filter(({ axis }) => axis === "LOOP"))
    return inLine === 1 || used > leastUsed * threads
      ? []
      : [`stage ${i + 1} of ${opted.src.length} has ${inLine} results in line with ${used} of ${threads} threads`]
  })
}

/** The kernels of a step, each once, with the name of a launch that has it. */
export const kernelsOf = Effect.fn("bench.kernelsOf")(
  function*(model: StepPlan.Model, pipeline: Pipeline["Service"], place: Place) {
    const [{ sink }] = stepAt(model, place, pipeline.profile)
    const { steps } = yield* pipeline.schedule(sink)
    return new Map(
      steps.flatMap((step) =>
        step.kind === "custom" ? [] : members(step.ast).map(({ ast }) => [ast, step.name] as const)
      )
    )
  },
  Effect.provideService(Checked, false)
)

/** What is told of all kernels of a step. */
export const idle = Effect.fn("bench.idle")(
  function*(model: StepPlan.Model, pipeline: Pipeline["Service"], place: Place) {
    const kernels = yield* kernelsOf(model, pipeline, place)
    const found: Array<string> = []
    for (const [ast, name] of kernels) {
      const opted = yield* pipeline.apply(name, ast, yield* pipeline.choose(ast))
      found.push(...idleIn(opted).map((told) => `${place.tokens}@${place.depth} ${name}: ${told}`))
    }
    return found
  },
  Effect.provideService(Checked, false)
)

const main = Effect.gen(function*() {
  const { positionals: [shape = "glm-4.7-flash:q4_0"], values } = parseArgs({
    allowPositionals: true,
    options: {
      context: { type: "string", default: "16384" },
      steps: { type: "string", default: "1@0,1@3000,1@15900,2@0,4@0,8@0,16@0,32@0" }
    }
  })
  const pipeline = yield* Compiled.pipelineFor(Compiled.targets[0])
  const model = yield* Compiled.modelOf(shape)
  for (const step of values.steps.split(",")) {
    const [tokens, depth = 0] = step.split("@").map(Number) as [number, number?]
    const found = yield* idle(model, pipeline, { tokens, depth, context: Number(values.context) })
    for (const line of found) console.log(line)
    if (found.length > 0) process.exitCode = 1
  }
})

if (process.argv[1] === fileURLToPath(import.meta.url)) await Effect.runPromise(main)
