import { type Program, Renderer, type RendererCaps, RenderError, signature } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import { Effect, Layer } from "effect"
import { assemble } from "./internal/assemble.ts"
import type { Simd } from "./internal/dot.ts"
import { rendered } from "./internal/elementwise.ts"
import { rareHalvesOf } from "./internal/half.ts"
import { type Memory, memoryImport, moduleText, unsupported } from "./internal/kernel.ts"
import { type Nest, nestOf } from "./internal/nest.ts"
import { place, ScopeProblem } from "./internal/placement.ts"
import { repeatShortLoops } from "./internal/repeat.ts"
import { startSums } from "./internal/starts.ts"
import { sumsWithShares } from "./internal/shares.ts"
import { widenScalars } from "./internal/splats.ts"
import { defaultMemory, defaultSimd } from "./WasmHost.ts"

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

/** How kernels are rendered. */
export interface Options {
  /**
   * Whether other threads share the kernels' memory. Default: `shared` where the host has shared memory, which in a
   * page needs cross-origin isolation. The device has to agree.
   */
  readonly memory?: Memory | undefined
  /** How bytes are multiplied, always with the same results. Default: what suits the host. */
  readonly simd?: Simd | undefined
}
export type { Memory, Simd }

export { defaultMemory, defaultSimd }

const moduleOf = (
  name: string,
  linear: UOp,
  nest: Nest,
  { memory = defaultMemory(), simd = defaultSimd() }: Options
): string | RenderError => {
  for (const node of linear.src) {
    const reason = unsupported(node, rendered)
    if (reason !== undefined) return new RenderError({ kernel: name, message: `${name}: ${reason}` })
  }
  const placement = place(linear)
  if (placement instanceof ScopeProblem) {
    return new RenderError({ kernel: name, message: `${name}: ${placement.message}` })
  }
  return moduleText(placement, signature(linear), { memory, nest, rareHalves: rareHalvesOf(linear), simd })
}

/** A linear kernel in the form that has the fewest instructions here. */
const inVectors = (linear: UOp): UOp => sumsWithShares(widenScalars(startSums(repeatShortLoops(linear))))

/**
 * The module of a kernel in the text format. It imports `env.memory` and exports `run`, whose parameters are the
 * iterations to do, from and up to, then a byte address for each binding, then each variable, in the order of the
 * program's `bindings` and `vars`. Addresses are multiples of 16. The iterations are those of `grid[0]`.
 */
export const text = (name: string, linear: UOp, options: Options = {}): string | RenderError => {
  const widened = inVectors(linear)
  return moduleOf(name, widened, nestOf(widened), options)
}

/** Renders a linear kernel. */
export const render = (
  name: string,
  linear: UOp,
  assembler: Assembler,
  options: Options = {}
): Program | RenderError => {
  const widened = inVectors(linear)
  const nest = nestOf(widened)
  const module = moduleOf(name, widened, nest, options)
  if (typeof module !== "string") return module
  const { iterations, perIteration, perPart } = nest
  try {
    const code = assembler.assemble(name, module)
    return {
      name,
      target: "wasm",
      code,
      ...signature(linear),
      grid: [iterations, 1, 1],
      instructions: { perPart, perIteration }
    }
  } catch (error) {
    return new RenderError({
      kernel: name,
      message: `${name}: the assembler rejects the generated module: ${String(error)}`
    })
  }
}

/**
 * The module of a hand-written kernel, whose text are the fields of a module: functions, one of them exported as `run`, but no
 * memory, which is imported for it.
 */
export const assembleWritten = (
  program: Program,
  assembler: Assembler,
  { memory = defaultMemory() }: Options = {}
): Program | RenderError => {
  const { code, name } = program
  const refuse = (message: string) => new RenderError({ kernel: name, message: `${name}: ${message}` })
  if (/^\s*\(module\b/.test(String(code))) {
    return refuse("its text is a whole module; give the fields in it, without the memory, which is imported for them")
  }
  try {
    return { ...program, code: assembler.assemble(name, `(module\n${memoryImport[memory]}\n${String(code)})`) }
  } catch (error) {
    return refuse(`the assembler rejects its text: ${String(error)}`)
  }
}

/** The assembler of this package. It knows what kernels need, which its README lists, and nothing else. */
export const assembler: Assembler = {
  assemble: (_, text) => {
    const module = assemble(text)
    // compiling says what is wrong
    if (!WebAssembly.validate(module)) void new WebAssembly.Module(module)
    return module
  }
}

/** The renderer for `@tg/runtime-wasm`, with options. */
export const layerWith = (options: Options): Layer.Layer<Renderer> =>
  Layer.sync(
    Renderer,
    () =>
      Renderer.of({
        id: `@tg/codegen-wasm ${options.memory ?? defaultMemory()} ${options.simd ?? defaultSimd()}`,
        caps,
        render: Effect.fn("Wasm.render")(function*(name, linear) {
          const program = render(name, linear, assembler, options)
          return program instanceof RenderError ? yield* program : program
        }),
        assemble: Effect.fn("Wasm.assemble")(function*(program) {
          const assembled = assembleWritten(program, assembler, options)
          return assembled instanceof RenderError ? yield* assembled : assembled
        })
      })
  )

/** The renderer for `@tg/runtime-wasm`. */
export const layer: Layer.Layer<Renderer> = layerWith({})
