/**
 * What the batches of a prompt will take on an H200, attending to latents and to keys and values of each head:
 *
 *     node bench/attend.ts [SHAPE] [CONTEXT]
 *
 * The plan's kernels count a loop of unknown length as a usual one, so the figures are of some 256 tokens behind 1000.
 */
import { Effect } from "effect"
import * as StepProgram from "../packages/engine/src/StepProgram.ts"
import * as Estimate from "../packages/jit/src/Estimate.ts"
import * as Compiled from "./support/compiled.ts"

const [shape = "glm-4.7-flash:q4_0", context = "1024"] = process.argv.slice(2)

const show = Effect.gen(function*() {
  const pipeline = yield* Compiled.pipelineFor(Compiled.targets[0])
  const model = yield* Compiled.modelOf(shape)
  for (const attend of ["latents", "heads"] as const) {
    const size = { rows: "last", chunk: 512, context: Number(context), cache: "f16", activations: "int8" } as const
    const { sink } = StepProgram.stepProgram(model, { ...size, order: "features", attend })
    const estimate = yield* Estimate.estimate(pipeline, sink)
    const launches = yield* estimate.launches(StepProgram.variablesOf("features", 0, 512))
    const millis = launches.reduce((sum, { micros }) => sum + micros, 0) / 1000
    const megabytes = estimate.blocks.reduce((sum, bytes) => sum + bytes, 0) / 1e6
    console.log(`${shape} ${attend}: ${launches.length} launches, ${millis.toFixed(1)} ms, ${megabytes.toFixed(0)} MB`)
  }
})

await Effect.runPromise(show)
