/**
 * Steps with the e-graph and attention in pieces, and without them (`--no-egraph`): launches, bytes and predicted milliseconds of steps
 * of 1, 4, 64 and 512 tokens behind 0, 4096 and 16000 others, on an H200 that need not be there. With files, what they take on the
 * GPU at hand, by its own clock where it has one (by the host's from half a second on); the cache is empty, which does not change their times.
 *
 *     node bench/egraph.ts [shape..] [--behind 0,4096,16000] [--tokens 1,4,64,512]
 *     node bench/egraph.ts glm.gguf [file..]
 */
import { parseArgs } from "node:util"
import { Effect } from "effect"
import * as ActivationPolicy from "../packages/engine/src/ActivationPolicy.ts"
import * as Prompts from "../packages/engine/src/Prompts.ts"
import type * as StepPlan from "../packages/engine/src/StepPlan.ts"
import * as StepProgram from "../packages/engine/src/StepProgram.ts"
import { Checked } from "../packages/core-uop/src/Spec.ts"
import * as Estimate from "../packages/jit/src/Estimate.ts"
import { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Compiled from "./support/compiled.ts"
import * as Steps from "./support/steps.ts"

const { positionals, values: given } = parseArgs({
  allowPositionals: true,
  options: {
    behind: { type: "string", default: "0,4096,16000" },
    tokens: { type: "string", default: "1,4,64,512" }
  }
})
const usual = ["glm-4.7-flash:q4_0", "deepseek-v2-lite:q4_0", "llama-3.1-8b:q4_0", "qwen3-30b-a3b:q4_0"]
const numbers = (text: string): ReadonlyArray<number> => text.split(",").map(Number)
const files = positionals.filter((name) => name.endsWith(".gguf"))
const shapes = files.length > 0 ? [] : positionals.length > 0 ? positionals : usual
const target = Compiled.targets[0]

/** What all steps of some tokens take together. */
interface Taken {
  readonly launches: number
  readonly bytes: number
  readonly micros: number
}

/** The steps of these tokens as a session takes them: a token, a few in one step, or batches. */
const stepsOf = (model: StepPlan.Model, { behind, tokens }: Steps.Place) => {
  const { profile } = target
  const context = Steps.contextFor({ behind, tokens })
  const size = {
    activations: ActivationPolicy.activationsOn(profile),
    cache: "f16",
    context,
    profile,
    rows: "last"
  } as const
  if (tokens === 1) {
    return { sink: StepProgram.decodeProgram(model, size).sink, vars: [StepProgram.variablesOf("tokens", behind, 1)] }
  }
  const prompts = Prompts.promptShape(model, { asked: undefined, context, profile })
  const order = tokens < prompts.batchFrom ? "tokens" : "features"
  const chunk = order === "tokens" ? Prompts.sizeFor(prompts, tokens)! : prompts.batch
  const { sink } = StepProgram.stepProgram(model, { ...size, chunk, isWhole: order === "tokens", order })
  const vars = Array.from(
    { length: Math.ceil(tokens / chunk) },
    (_, i) => StepProgram.variablesOf(order, behind + i * chunk, Math.min(chunk, tokens - i * chunk))
  )
  return { sink, vars }
}

const predicted = (pipeline: Pipeline["Service"], model: StepPlan.Model, place: Steps.Place): Effect.Effect<Taken> =>
  Effect.gen(function*() {
    const { sink, vars } = stepsOf(model, place)
    const estimate = yield* Estimate.estimate(pipeline, sink)
    const launches = (yield* Effect.forEach(vars, estimate.launches)).flat()
    const sum = (of: (launch: Estimate.LaunchEstimate) => number): number =>
      launches.reduce((all, launch) => all + of(launch), 0)
    return { launches: launches.length, bytes: sum(({ bytes }) => bytes), micros: sum(({ micros }) => micros) }
  }).pipe(Effect.provideService(Checked, false), Effect.orDie)

/** What attention of a layer takes by the cost of pieces, in the form that is chosen: all positions at once, and as it is cut. */
const attention = (pipeline: Pipeline["Service"], model: StepPlan.Model, place: Steps.Place) =>
  Effect.map(pipeline.equal(stepsOf(model, place).sink), ({ pieces }) => {
    const found = pieces.find(({ piece, width }) => width > 1 && piece !== undefined)
    return found === undefined ? "" : `${found.wholeMicros.toFixed(1)} / ${found.micros.toFixed(1)}`
  })

const row = (...cells: ReadonlyArray<string | number>): void => console.log(`| ${cells.join(" | ")} |`)
const part = (on: number, off: number): string => `${((on / off - 1) * 100).toFixed(1)}%`

const predict = Effect.gen(function*() {
  const on = yield* Compiled.pipelineFor(target)
  const off = yield* Compiled.pipelineFor(target).pipe(Effect.provide(Pipeline.asWritten))
  row(
    "model",
    "tokens",
    "behind",
    "launches off",
    "on",
    "MB off",
    "on",
    "ms off",
    "on",
    "attention, us: whole / chosen"
  )
  row("---", "---", "---", "---", "---", "---", "---", "---", "---", "---")
  for (const shape of shapes) {
    const model = yield* Compiled.modelOf(shape)
    for (const behind of numbers(given.behind)) {
      for (const tokens of numbers(given.tokens)) {
        const [without, within] = [
          yield* predicted(off, model, { behind, tokens }),
          yield* predicted(on, model, { behind, tokens })
        ]
        const pair = (show: (taken: Taken) => string) => [show(without), show(within)]
        row(
          shape,
          tokens,
          behind,
          ...pair(({ launches }) => `${launches}`),
          ...pair(({ bytes }) => (bytes / 1e6).toFixed(0)),
          ...pair(({ micros }) => (micros / 1000).toFixed(2)),
          yield* attention(on, model, { behind, tokens })
        )
      }
    }
  }
})

/** What the files' steps take on the device at hand. */
const measure = Effect.gen(function*() {
  row("model", "tokens", "behind", "launches off", "on", "ms off", "on", "time")
  row("---", "---", "---", "---", "---", "---", "---", "---")
  for (const file of files) {
    const places = numbers(given.behind).flatMap((behind) =>
      numbers(given.tokens).map((tokens) => ({ behind, tokens }))
    )
    yield* Steps.measure({ file, places, profile: target.profile }, ({ behind, tokens }, { off, on }) =>
      row(
        file,
        tokens,
        behind,
        off.launches,
        on.launches,
        (off.micros / 1000).toFixed(2),
        (on.micros / 1000).toFixed(2),
        part(on.micros, off.micros)
      ))
  }
})

await Effect.runPromise(files.length > 0 ? measure : predict)
