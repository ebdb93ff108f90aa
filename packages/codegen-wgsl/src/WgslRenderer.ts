import { Renderer, RenderError } from "@tg/core-uop/Program"
import { Effect, Layer } from "effect"
import * as Placed from "./Placed.ts"
import * as Wgsl from "./Wgsl.ts"

/** The `Renderer` of WebGPU devices. */
export const layer = (options: Wgsl.Options = {}): Layer.Layer<Renderer> => {
  const caps = Wgsl.caps(options)
  return Layer.succeed(Renderer, {
    id: "@tg/codegen-wgsl",
    caps,
    render: Effect.fn("WgslRenderer.render")(function*(name, linear) {
      const program = Wgsl.render(name, linear, caps)
      return program instanceof RenderError ? yield* program : program
    }),
    assemble: Effect.fn("WgslRenderer.assemble")(function*(program) {
      const problem = Wgsl.checkWritten(program)
      return problem === undefined ? program : yield* problem
    }),
    place: Placed.place
  })
}
