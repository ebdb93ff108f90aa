import { type Program, Renderer, type RendererCaps, RenderError, signature } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { Effect, Layer } from "effect"
import { rendered } from "./internal/elementwise.ts"
import { moduleText, unsupported } from "./internal/kernel.ts"
import { place } from "./internal/placement.ts"

/** What WebAssembly with 128-bit SIMD expresses. */
export const caps: RendererCaps = {
  target: "wasm",
  hasGrid: false,
  lanes: [1, 4],
  ops: rendered,
  subgroupSize: undefined
}

/** Turns module text into the binary format. Throws what the text format's validator says. */
export interface Assembler {
  readonly assemble: (name: string, text: string) => Uint8Array
}

/**
 * The module of a kernel in the text format. It imports `env.memory` and exports `run`, whose parameters are a byte
 * address for each binding, then each variable, in the order of the program's `bindings` and `vars`. Addresses are
 * multiples of 16.
 */
export const text = (name: string, linear: UOp): string | RenderError => {
  for (const node of linear.src) {
    const reason = unsupported(node, rendered)
    if (reason !== undefined) return new RenderError({ kernel: name, message: `${name}: ${reason}` })
  }
  const placement = place(linear)
  if ("problem" in placement) return new RenderError({ kernel: name, message: `${name}: ${placement.problem}` })
  return moduleText(placement, signature(linear))
}

/** Renders a linear kernel. */
export const render = (name: string, linear: UOp, assembler: Assembler): Program | RenderError => {
  const module = text(name, linear)
  if (typeof module !== "string") return module
  try {
    return { name, target: "wasm", code: assembler.assemble(name, module), ...signature(linear) }
  } catch (error) {
    return new RenderError({
      kernel: name,
      message: `${name}: the assembler rejects the generated module: ${String(error)}`
    })
  }
}

/** Loads the assembler (once; 18 ms). */
export const assembler: Effect.Effect<Assembler> = Effect.promise(async () => {
  const { default: load } = await import("wabt")
  const wabt = await load()
  return {
    assemble: (name, source) => {
      const module = wabt.parseWat(`${name}.wat`, source, { simd: true, sat_float_to_int: true, threads: true })
      try {
        module.validate()
        return module.toBinary({}).buffer
      } finally {
        module.destroy()
      }
    }
  }
})

/** The renderer for `@tg/runtime-wasm`. */
export const layer: Layer.Layer<Renderer> = Layer.effect(
  Renderer,
  Effect.map(assembler, (loaded) =>
    Renderer.of({
      caps,
      render: Effect.fn("Wasm.render")(function*(name, linear) {
        const program = render(name, linear, loaded)
        return program instanceof RenderError ? yield* program : program
      })
    }))
)
