/**
 * Writes the WGSL of the launches of a decoding step, one file each.
 *
 *     CONTEXT=4096 node bench/machine-code/texts.ts FOLDER SHAPE [PROFILE.json]
 *
 * SHAPE as in `plan --shape` (`glm-4.7-flash:q4_0`). With a measured profile (`doctor --measure --out`) launches are persistent where they are predicted to pay; without one it is an H200 without them. Tuned opts are not
 * applied.
 */
import * as fs from "node:fs"
import * as path from "node:path"
import * as WgslRenderer from "../../packages/codegen-wgsl/src/WgslRenderer.ts"
import { h200 } from "../../packages/core-uop/src/DeviceProfile.ts"
import * as StepPlan from "../../packages/engine/src/StepPlan.ts"
import * as Persistent from "../../packages/jit/src/Persistent.ts"
import { Effect } from "effect"
import * as Compiled from "../support/compiled.ts"
import { profileGiven } from "../support/given.ts"

const [folder, shape, file] = process.argv.slice(2)
if (folder === undefined || shape === undefined) {
  console.error("asked for texts; found no folder or no shape; see the beginning of this file")
  process.exit(1)
}
const profile = profileGiven(file) ?? h200
const { matrixUnits, packedDot, subgroupSize } = profile
const renderer = WgslRenderer.layer({ subgroupSize, packedDot, matrixUnits, halfSubnormals: true, unclamped: true })

const made = Effect.gen(function*() {
  const model = yield* Compiled.modelOf(shape)
  const pipeline = yield* Compiled.pipelineFor({ profile, renderer })
  // where weights will lie, which `Jit` sees in the buffers that it binds
  const slices = StepPlan.slicesOf(model, profile)
  return yield* Compiled.programs(model, {
    ...pipeline,
    schedule: (sink) => Effect.provideService(pipeline.schedule(sink), Persistent.Slices, slices)
  })
}).pipe(Effect.provideService(Persistent.Persistent, { ...Persistent.off, mode: "auto" }))

const { decode = [] } = await Effect.runPromise(made)
fs.mkdirSync(folder, { recursive: true })
for (const [i, { code, grid, name, workgroup }] of decode.entries()) {
  const to = path.join(folder, `${i}.wgsl`)
  fs.writeFileSync(to, String(code))
  console.log(
    `${to} ${name}, ${grid.map((size) => typeof size === "number" ? size : "?").join("x")} of ${workgroup[0]}`
  )
}
