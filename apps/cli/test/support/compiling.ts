/** Compiling a model's programs for a GPU that is not there. */
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import { Compiler } from "@tg/jit/Compiler"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Family from "@tg/model-parts/Family"
import { known } from "@tg/models/Models"
import { Device } from "@tg/runtime/Device"
import { Effect, Layer, Result } from "effect"

/** A known shape, with so many layers or its own. */
export const modelOf = (shape: string, layers?: number) =>
  Effect.fromResult(
    Result.flatMap(Family.shapeOf(known, shape, layers), ({ family, shape }) => family.modelOf(shape))
  )

/** A device that takes every kernel and counts them, and what compiles for it to WGSL. */
export const counting = (profile: DeviceProfile) => {
  let kernels = 0
  const device = Layer.mock(Device, {
    profile,
    allocatedBytes: () => 0,
    load: (program) =>
      Effect.sync(() => {
        kernels++
        return { program }
      })
  })
  const { matrixUnits, packedDot, subgroupSize } = profile
  const renderer = WgslRenderer.layer({ matrixUnits, packedDot, subgroupSize })
  const compiler = Compiler.layer.pipe(
    Layer.provideMerge(Pipeline.layer),
    Layer.provide([renderer, Profile.layer(profile)])
  )
  return { layer: Layer.merge(device, compiler), kernels: () => kernels }
}
