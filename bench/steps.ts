/**
 * What a step of some tokens takes by the model of costs, kernel by kernel, on a device that need not be there; and with the name of a kernel why it is one:
 *
 *     node bench/steps.ts glm-4.7-flash:q4_0 --tokens 16 --context 16384 --depth 10000 --profile H100.json --explain attn_mix
 *
 * With `--opts` the opts of each, with `--code NAME` the code of some, too.
 * More tokens than a step of a few takes are a batch. With `--pool` each token is one of another conversation, all of them behind as many.
 */
import { parseArgs } from "node:util"
import * as WgslRenderer from "../packages/codegen-wgsl/src/WgslRenderer.ts"
import { h200 } from "../packages/core-uop/src/DeviceProfile.ts"
import { Checked } from "../packages/core-uop/src/Spec.ts"
import * as Estimate from "../packages/jit/src/Estimate.ts"
import * as Stages from "../packages/jit/src/Stages.ts"
import * as Explain from "../packages/rangeify/src/Explain.ts"
import { Effect } from "effect"
import { modelOf, pipelineFor } from "./support/compiled.ts"
import { profileGiven } from "./support/given.ts"
import { stepAt } from "./support/places.ts"

const { positionals: [shape = "glm-4.7-flash:q4_0"], values: given } = parseArgs({
  allowPositionals: true,
  options: {
    code: { type: "string" },
    context: { type: "string", default: "4096" },
    depth: { type: "string", default: "0" },
    explain: { type: "string" },
    opts: { type: "boolean", default: false },
    pool: { type: "boolean", default: false },
    profile: { type: "string" },
    tokens: { type: "string", default: "1" }
  }
})
const [context, depth, tokens] = [given.context, given.depth, given.tokens].map(Number) as [number, number, number]

/** The device of a file, or the H200. */
const profile = profileGiven(given.profile) ?? h200

const micros = (launches: ReadonlyArray<Estimate.LaunchEstimate>): number => launches.reduce((n, l) => n + l.micros, 0)

const run = Effect.gen(function*() {
  const { matrixUnits, packedDot, subgroupSize } = profile
  const renderer = WgslRenderer.layer({ matrixUnits, packedDot, subgroupSize })
  const pipeline = yield* pipelineFor({ profile, renderer })
  const [{ sink }, vars] = stepAt(yield* modelOf(shape), { context, depth, isPool: given.pool, tokens }, profile)
  const launches = yield* (yield* Estimate.estimate(pipeline, sink)).launches(vars)
  console.log(
    `${shape} on ${profile.name}, ${tokens} behind ${depth}: ${launches.length} launches, ${
      (micros(launches) / 1000).toFixed(3)
    } ms`
  )
  for (const own of Map.groupBy(launches, ({ step }) => step.kind === "custom" ? step : step.ast).values()) {
    const { step, threads, workgroups } = own[0]!
    const { name } = step
    const each = (micros(own) / own.length).toFixed(2)
    console.log(`${each.padStart(9)} us x ${String(own.length).padEnd(3)} ${name}, ${workgroups} x ${threads}`)
    if (step.kind === "custom" || !given.opts && given.code === undefined) continue
    const stages = yield* Stages.ofKernel(pipeline, name, step.ast)
    console.log(`${" ".repeat(18)}${Stages.printOpts(stages).join(", ")}`)
    if (given.code !== undefined && name.startsWith(given.code)) {
      console.log((yield* pipeline.render(name, stages.linear)).code)
    }
  }
  if (given.explain === undefined) return
  for (const { launches: bodies } of Explain.byBody(launches.map(({ step }) => step))) {
    for (const { boundaries, name } of bodies.filter(({ name }) => name.includes(given.explain!))) {
      for (const boundary of boundaries) console.log([name, boundary.kernel, ...Explain.print(boundary)].join("\n  "))
    }
  }
})

await Effect.runPromise(run.pipe(Effect.provideService(Checked, false)))
