/**
 * What a pool's steps take on an H200 beside a session's, as the model of costs predicts it: launches, bytes and milliseconds. The device
 * need not be there:
 *
 *     node bench/pool.ts [SHAPE] [TOKENS OF A BATCH]
 */
import { h200 } from "../packages/core-uop/src/DeviceProfile.ts"
import { Checked } from "../packages/core-uop/src/Spec.ts"
import * as ActivationPolicy from "../packages/engine/src/ActivationPolicy.ts"
import * as Pages from "../packages/engine/src/Pages.ts"
import * as PoolProgram from "../packages/engine/src/PoolProgram.ts"
import * as Prompts from "../packages/engine/src/Prompts.ts"
import * as StepProgram from "../packages/engine/src/StepProgram.ts"
import * as Estimate from "../packages/jit/src/Estimate.ts"
import type { TensorProgram } from "../packages/tensor/src/Program.ts"
import { Effect } from "effect"
import { modelOf, pipelineFor, targets } from "./support/compiled.ts"

const [shape = "glm-4.7-flash:q4_0", asked = "512"] = process.argv.slice(2)
const context = 4096

const run = Effect.gen(function*() {
  const target = targets.find(({ profile }) => profile === h200)!
  const pipeline = yield* pipelineFor(target)
  const { profile } = pipeline
  const model = yield* modelOf(shape)
  const activations = ActivationPolicy.activationsOn(profile)
  const prompts = Prompts.promptShape(model, { asked: undefined, context, profile })
  const tokens = Math.min(Number(asked), prompts.batch)
  const size = { activations, cache: "f16", context, profile } as const
  const ring = { given: tokens, each: prompts.sizes.at(-1)! }
  const pool = { ...size, pieces: Pages.pagesFor(context) * 8, draws: "device", ring } as const
  const tiles = { T: tokens, ...StepProgram.variablesOf("features", 0, tokens) }
  const few = (tokens: number): ReadonlyArray<readonly [string, TensorProgram, Estimate.Vars]> => [
    [
      `session, a prompt of ${tokens}`,
      StepProgram.stepProgram(model, { ...size, chunk: tokens, isWhole: true, order: "tokens", rows: "last" }),
      { T: tokens, startPos: 0 }
    ],
    [
      `pool, a token of each of ${tokens}`,
      PoolProgram.poolProgram(model, { ...pool, tokens, rows: tokens, isWhole: true }),
      { pieces: 8 }
    ]
  ]
  const steps: ReadonlyArray<readonly [string, TensorProgram, Estimate.Vars]> = [
    [
      `session, a batch of ${tokens}`,
      StepProgram.stepProgram(model, { ...size, chunk: prompts.batch, order: "features", rows: "last" }),
      tiles
    ],
    [
      `pool, a batch of ${tokens}`,
      PoolProgram.batchProgram(model, { ...pool, isWhole: true, rows: ring.each, tokens: prompts.batch }),
      tiles
    ],
    ...prompts.sizes.flatMap(few)
  ]
  for (const [name, { sink }, vars] of steps) {
    const { blocks, launches: behind } = yield* Estimate.estimate(pipeline, sink)
    const launches = yield* behind(vars)
    const sum = (of: (launch: Estimate.LaunchEstimate) => number): number => launches.reduce((n, l) => n + of(l), 0)
    const [gigabytes, millis] = [sum(({ bytes }) => bytes) / 1e9, sum(({ micros }) => micros) / 1e3]
    console.log(
      `${name.padEnd(32)}${String(launches.length).padStart(6)} launches${gigabytes.toFixed(2).padStart(8)} GB` +
        `${millis.toFixed(2).padStart(9)} ms${
          (blocks.reduce((n, b) => n + b, 0) / 1e6).toFixed(0).padStart(6)
        } MB of scratch`
    )
  }
}).pipe(Effect.provideService(Checked, false))

console.log(`${shape} on ${h200.name}, predicted`)
await Effect.runPromise(run)
