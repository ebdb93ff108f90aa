/**
 * What attention is cut into, in the form that the e-graph chooses for it: for each model and size of context the pieces and the rows together that a
 * step of one token and one of 16 take on an H200, with the time that the cost model has for them and for all positions at once.
 *
 *     node bench/pieces.ts [shape..]
 */
import { Effect } from "effect"
import { h200 } from "../packages/core-uop/src/DeviceProfile.ts"
import * as StepProgram from "../packages/engine/src/StepProgram.ts"
import { shapes } from "./counts.ts"
import * as Compiled from "./support/compiled.ts"

const asked = process.argv.slice(2)
const pipeline = await Effect.runPromise(Compiled.pipelineFor(Compiled.targets[0]))

for (const shape of asked.length === 0 ? shapes : asked) {
  const model = await Effect.runPromise(Compiled.modelOf(shape))
  for (const context of [1024, 4096, 8192, 16384]) {
    const size = { activations: "int8", cache: "f16", context, profile: h200, rows: "last" } as const
    const steps = {
      "1 token": StepProgram.decodeProgram(model, size),
      "16 tokens": StepProgram.stepProgram(model, { ...size, chunk: 16, isWhole: true, order: "tokens" })
    }
    for (const [name, { sink }] of Object.entries(steps)) {
      const start = performance.now()
      const { pieces } = await Effect.runPromise(pipeline.equal(sink))
      const millis = Math.round(performance.now() - start)
      for (const { label, micros, piece, together, wholeMicros } of pieces.filter(({ width }) => width > 1)) {
        const cut = piece === undefined ? "whole" : `pieces of ${piece}, ${together} together`
        const times = `${micros.toFixed(1)} us, whole ${wholeMicros.toFixed(1)}`
        console.log(`${shape}, context ${context}, ${name}: ${label ?? "?"} ${cut}: ${times}; chosen in ${millis} ms`)
      }
    }
  }
}
