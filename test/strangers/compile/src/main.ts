import { WgslRenderer } from "@tg/codegen-wgsl"
import { DeviceProfile } from "@tg/core-uop"
import { Effect, Layer } from "effect"
import { compile, compilerLayer } from "./compile.ts"
import * as MyHeuristics from "./heuristics.ts"
import { mlp } from "./mlp.ts"

const layer = compilerLayer.pipe(
  Layer.provide([MyHeuristics.layer, WgslRenderer.layer()]),
  Layer.provideMerge(DeviceProfile.Profile.layer(DeviceProfile.webgpuDefault))
)

const programs = await Effect.runPromise(Effect.provide(compile(mlp()), layer))
for (const { name, code, workgroup } of programs) {
  console.log(`${name}: ${workgroup.join(" x ")} threads, ${String(code).split("\n").length} lines of WGSL`)
}
