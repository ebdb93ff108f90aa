/** Models compiled for devices that are not there: every kernel as its device would be given it. */
import * as Wasm from "../../packages/codegen-wasm/src/Wasm.ts"
import * as WgslRenderer from "../../packages/codegen-wgsl/src/WgslRenderer.ts"
import { type DeviceProfile, h200, Profile, wasm } from "../../packages/core-uop/src/DeviceProfile.ts"
import * as Print from "../../packages/core-uop/src/Print.ts"
import { type Program, Renderer, RenderError } from "../../packages/core-uop/src/Program.ts"
import { Checked } from "../../packages/core-uop/src/Spec.ts"
import { digest } from "../../packages/core-uop/src/UOp.ts"
import * as ActivationPolicy from "../../packages/engine/src/ActivationPolicy.ts"
import * as Prompts from "../../packages/engine/src/Prompts.ts"
import * as StepProgram from "../../packages/engine/src/StepProgram.ts"
import { Compiler } from "../../packages/jit/src/Compiler.ts"
import { Jit } from "../../packages/jit/src/Jit.ts"
import * as Family from "../../packages/model-parts/src/Family.ts"
import { known } from "../../packages/models/src/Models.ts"
import { Rangeify } from "../../packages/rangeify/src/Rangeify.ts"
import { Device } from "../../packages/runtime/src/Device.ts"
import { Effect, Layer } from "effect"

/** A device as data, and what makes its programs. */
export interface Target {
  readonly profile: DeviceProfile
  readonly renderer: Layer.Layer<Renderer>
}

const encoder = new TextEncoder()

/** WebAssembly as text, for the same processor wherever it is made. */
const wasmText = Layer.succeed(Renderer, {
  caps: Wasm.caps,
  render: (name, linear) => {
    const assembler = { assemble: (_: string, text: string) => encoder.encode(text) }
    const program = Wasm.render(name, linear, assembler, { memory: "shared", simd: "plain" })
    return program instanceof RenderError ? Effect.fail(program) : Effect.succeed(program)
  }
})

/** The devices that kernels are kept for. */
export const targets: ReadonlyArray<Target> = [
  {
    profile: h200,
    renderer: WgslRenderer.layer({ subgroupSize: h200.subgroupSize, packedDot: h200.packedDot })
  },
  { profile: wasm, renderer: wasmText }
]

const context = 1024

/** The programs that a session compiles for a model: the one that decodes, and the one of longer prompts. */
const stepsOf = (shape: string, profile: DeviceProfile) =>
  Effect.gen(function*() {
    const { family, shape: found } = yield* Effect.fromResult(Family.shapeOf(known, shape))
    const model = yield* Effect.fromResult(family.modelOf(found))
    const activations = ActivationPolicy.activationsOn(profile)
    const { batch, batchFrom, chunk } = Prompts.promptShape(model.config, { asked: undefined, context, profile })
    const size = { activations, cache: "f16", context, rows: "last" } as const
    const inBatches = { ...size, chunk: batch, order: "features" } as const
    const few = { ...size, chunk, order: "tokens" } as const
    return profile.kind === "gpu"
      ? { decode: StepProgram.decodeProgram(model, size), prompt: StepProgram.stepProgram(model, inBatches) }
      : {
        decode: StepProgram.stepProgram(model, few),
        ...batchFrom === Infinity ? {} : { prompt: StepProgram.stepProgram(model, inBatches) }
      }
  }).pipe(Effect.orDie)

/** The programs of a model's steps, each different kernel once, in the order in which they are made. */
export const programs = Effect.fn("bench.programs")(
  function*(shape: string, { profile, renderer }: Target) {
    const found: Record<string, ReadonlyArray<Program>> = {}
    for (const [step, { sink }] of Object.entries(yield* stepsOf(shape, profile))) {
      const made: Array<Program> = []
      const device = Layer.mock(Device, {
        profile,
        allocatedBytes: () => 0,
        load: (program) => Effect.sync(() => ({ program: (made.push(program), program) }))
      })
      const compiler = Compiler.layer.pipe(Layer.provide([renderer, Profile.layer(profile)]))
      const jit = Jit.layer.pipe(Layer.provide([device, compiler, Rangeify.layer]))
      yield* Effect.flatMap(Jit, ({ compile }) => compile(sink)).pipe(Effect.provide(jit), Effect.orDie)
      found[step] = made
    }
    return found
  },
  Effect.provideService(Checked, false),
  Effect.scoped
)

const printed = (size: Program["grid"][number]): string => typeof size === "number" ? `${size}` : Print.expression(size)

const codeOf = ({ code }: Program): string => {
  // the function of a hand-written kernel, on the evaluator
  if (typeof code === "string" || typeof code === "function") return String(code)
  return code instanceof Uint8Array ? new TextDecoder().decode(code) : Print.graph(code)
}

/** Of everything that a device is told about a program. */
export const digestOf = (program: Program): string =>
  digest([
    codeOf(program),
    program.workgroup.join(),
    program.grid.map(printed).join(),
    JSON.stringify([program.bindings, program.vars, program.bounds])
  ].join("\n")).slice(0, 16)
