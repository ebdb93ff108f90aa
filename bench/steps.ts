/**
 * What a step of some tokens takes by the model of costs, kernel by kernel, on a device that need not be there; and with the name of a kernel why it is one:
 *
 *     node bench/steps.ts glm-4.7-flash:q4_0 --tokens 16 --context 16384 --depth 10000 --profile H100.json --explain attn_mix
 *
 * More tokens than a step of a few takes are a batch. With `--pool` each token is one of another conversation, all of them behind as many.
 */
import { readFileSync } from "node:fs"
import { parseArgs } from "node:util"
import * as WgslRenderer from "../packages/codegen-wgsl/src/WgslRenderer.ts"
import { type DeviceProfile, h200 } from "../packages/core-uop/src/DeviceProfile.ts"
import { ProfileFile, profileOf } from "../packages/core-uop/src/ProfileFile.ts"
import { Checked } from "../packages/core-uop/src/Spec.ts"
import * as ActivationPolicy from "../packages/engine/src/ActivationPolicy.ts"
import * as Pages from "../packages/engine/src/Pages.ts"
import * as PoolProgram from "../packages/engine/src/PoolProgram.ts"
import * as Prompts from "../packages/engine/src/Prompts.ts"
import * as Spans from "../packages/engine/src/Spans.ts"
import type * as StepPlan from "../packages/engine/src/StepPlan.ts"
import * as StepProgram from "../packages/engine/src/StepProgram.ts"
import * as Estimate from "../packages/jit/src/Estimate.ts"
import * as Explain from "../packages/rangeify/src/Explain.ts"
import type { TensorProgram } from "../packages/tensor/src/Program.ts"
import { Effect, Schema } from "effect"
import { modelOf, pipelineFor } from "./support/compiled.ts"

const { positionals: [shape = "glm-4.7-flash:q4_0"], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "4096" },
    depth: { type: "string", default: "0" },
    explain: { type: "string" },
    pool: { type: "boolean", default: false },
    profile: { type: "string" },
    tokens: { type: "string", default: "1" }
  }
})
const [context, depth, tokens] = [given.context, given.depth, given.tokens].map(Number) as [number, number, number]

/** The device of a file, as `tg doctor --measure --out` writes it, or the H200. */
const profile: DeviceProfile = given.profile === undefined
  ? h200
  : profileOf(Schema.decodeUnknownSync(ProfileFile)(JSON.parse(readFileSync(given.profile, "utf8"))))

/** The program of the step, and its variables. */
const stepOf = (model: StepPlan.Model): readonly [TensorProgram, Estimate.Vars] => {
  const size = { activations: ActivationPolicy.activationsOn(profile), cache: "f16", context, profile } as const
  const prompts = Prompts.promptShape(model, { asked: undefined, context, profile })
  const most = prompts.sizes.at(-1) ?? prompts.chunk
  if (given.pool) {
    const pages = tokens * Pages.pagesFor(depth + 1)
    const shape = { ...size, pieces: tokens * Pages.pagesFor(context), rows: tokens, tokens, isWhole: true }
    const ring = { given: tokens, each: most }
    return [PoolProgram.poolProgram(model, { ...shape, draws: "device", ring }), { pieces: pages }]
  }
  const span = Spans.at(depth, size)
  if (tokens === 1 && profile.kind === "gpu") {
    return [StepProgram.decodeProgram(model, { ...size, span }), { T: 1, startPos: depth }]
  }
  // a batch has one program for all positions
  const step = tokens > most
    ? { ...size, chunk: tokens, order: "features", rows: "last" } as const
    : { ...size, chunk: tokens, isWhole: true, order: "tokens", rows: "last", span } as const
  return [StepProgram.stepProgram(model, step), StepProgram.variablesOf(step.order, depth, tokens)]
}

const micros = (launches: ReadonlyArray<Estimate.LaunchEstimate>): number => launches.reduce((n, l) => n + l.micros, 0)

const run = Effect.gen(function*() {
  const { matrixUnits, packedDot, subgroupSize } = profile
  const renderer = WgslRenderer.layer({ matrixUnits, packedDot, subgroupSize })
  const pipeline = yield* pipelineFor({ profile, renderer })
  const [{ sink }, vars] = stepOf(yield* modelOf(shape))
  const launches = yield* (yield* Estimate.estimate(pipeline, sink)).launches(vars)
  console.log(
    `${shape} on ${profile.name}, ${tokens} behind ${depth}: ${launches.length} launches, ${
      (micros(launches) / 1000).toFixed(3)
    } ms`
  )
  for (const [name, own] of Map.groupBy(launches, ({ step }) => step.name)) {
    const { threads, workgroups } = own[0]!
    const each = (micros(own) / own.length).toFixed(2)
    console.log(`${each.padStart(9)} us x ${String(own.length).padEnd(3)} ${name}, ${workgroups} x ${threads}`)
  }
  if (given.explain === undefined) return
  for (const { launches: bodies } of Explain.byBody(launches.map(({ step }) => step))) {
    for (const { boundaries, name } of bodies.filter(({ name }) => name.includes(given.explain!))) {
      for (const boundary of boundaries) console.log([name, boundary.kernel, ...Explain.print(boundary)].join("\n  "))
    }
  }
})

await Effect.runPromise(run.pipe(Effect.provideService(Checked, false)))
