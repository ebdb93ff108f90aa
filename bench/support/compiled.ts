/** Models compiled for devices that are not there: every kernel as its device would be given it. */
import * as Wasm from "../../packages/codegen-wasm/src/Wasm.ts"
import * as WgslRenderer from "../../packages/codegen-wgsl/src/WgslRenderer.ts"
import { type DeviceProfile, h200, Profile, wasm } from "../../packages/core-uop/src/DeviceProfile.ts"
import * as Print from "../../packages/core-uop/src/Print.ts"
import { type Program, Renderer, RenderError } from "../../packages/core-uop/src/Program.ts"
import { Checked } from "../../packages/core-uop/src/Spec.ts"
import { digest, key, type UOp } from "../../packages/core-uop/src/UOp.ts"
import * as ActivationPolicy from "../../packages/engine/src/ActivationPolicy.ts"
import * as Prompts from "../../packages/engine/src/Prompts.ts"
import * as StepPlan from "../../packages/engine/src/StepPlan.ts"
import * as StepProgram from "../../packages/engine/src/StepProgram.ts"
import { Compiler } from "../../packages/jit/src/Compiler.ts"
import { Jit } from "../../packages/jit/src/Jit.ts"
import { Pipeline } from "../../packages/jit/src/Pipeline.ts"
import * as Opt from "../../packages/postrange/src/Opt.ts"
import { known } from "../../packages/models/src/Models.ts"
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
export const targets: readonly [Target, ...ReadonlyArray<Target>] = [
  {
    profile: h200,
    renderer: WgslRenderer.layer({
      subgroupSize: h200.subgroupSize,
      packedDot: h200.packedDot,
      matrixUnits: h200.matrixUnits
    })
  },
  { profile: wasm, renderer: wasmText }
]

/** Tokens in the context: `CONTEXT=4096` for another. What is agreed on is of 1024. */
export const context = Number(process.env["CONTEXT"] ?? 1024)

/** The model of a shape. */
export const modelOf = (shape: string) => Effect.orDie(Effect.fromResult(StepPlan.fromShape(shape, known)))

/** The programs that a session compiles for a model: the one that decodes, and the one of longer prompts. */
export const stepsOf = (model: StepPlan.Model, profile: DeviceProfile) => {
  const activations = ActivationPolicy.activationsOn(profile)
  const { batch, batchFrom, chunk } = Prompts.promptShape(model, { asked: undefined, context, profile })
  const size = { activations, cache: "f16", context, profile, rows: "last" } as const
  const inBatches = { ...size, chunk: batch, order: "features" } as const
  const few = { ...size, chunk, order: "tokens" } as const
  return profile.kind === "gpu"
    ? { decode: StepProgram.decodeProgram(model, size), prompt: StepProgram.stepProgram(model, inBatches) }
    : {
      decode: StepProgram.stepProgram(model, few),
      ...batchFrom === Infinity ? {} : { prompt: StepProgram.stepProgram(model, inBatches) }
    }
}

/** The usual compiler for a device; what one asks of it for a program is there for the next. */
export const pipelineFor = ({ profile, renderer }: Target): Effect.Effect<Pipeline["Service"]> =>
  Effect.map(
    Pipeline.pipe(Effect.provide(Pipeline.layer), Effect.provide([renderer, Profile.layer(profile)])),
    (pipeline): Pipeline["Service"] => ({
      ...pipeline,
      schedule: once(pipeline.schedule, key),
      choose: once(pipeline.choose, (kernel, place) => `${numberOf(kernel)} ${place}`),
      apply: once(pipeline.apply, (_, kernel, opts) => [numberOf(kernel), ...opts.map(Opt.print)].join(" ")),
      devectorize: once(pipeline.devectorize, (_, kernel) => kernel),
      linearize: once(pipeline.linearize, (_, kernel) => kernel)
    })
  )

const numbers = new WeakMap<UOp, number>()
let next = 0

/** A number for each kernel. */
const numberOf = (kernel: UOp): number => {
  const known = numbers.get(kernel) ?? next++
  numbers.set(kernel, known)
  return known
}

/** Remembers results. A kernel's opts follow from the kernel and its place. */
const once = <Args extends ReadonlyArray<unknown>, A, E>(
  stage: (...args: Args) => Effect.Effect<A, E>,
  keyOf: (...args: Args) => unknown
) => {
  const results = new Map<unknown, A>()
  return (...args: Args): Effect.Effect<A, E> => {
    const known = results.get(keyOf(...args))
    if (known !== undefined) return Effect.succeed(known)
    return Effect.tap(stage(...args), (result) => Effect.sync(() => results.set(keyOf(...args), result)))
  }
}

/** The programs of a model's steps, each different kernel once, in the order in which they are made. */
export const programs = Effect.fn("bench.programs")(
  function*(model: StepPlan.Model, pipeline: Pipeline["Service"]) {
    const { profile } = pipeline
    const found: Record<string, ReadonlyArray<Program>> = {}
    for (const [step, { sink }] of Object.entries(stepsOf(model, profile))) {
      const made: Array<Program> = []
      const device = Layer.mock(Device, {
        profile,
        allocatedBytes: () => 0,
        load: (program) => Effect.sync(() => ({ program: (made.push(program), program) }))
      })
      const jit = Jit.layer.pipe(
        Layer.provide([device, Compiler.layer]),
        Layer.provide(Layer.succeed(Pipeline, pipeline))
      )
      yield* Effect.flatMap(Jit, ({ compile }) => compile(sink)).pipe(Effect.provide(jit), Effect.orDie)
      found[step] = made
    }
    return found
  },
  Effect.provideService(Checked, false),
  Effect.scoped
)

/** The plan of a step that decodes. */
export const plan = (model: StepPlan.Model, pipeline: Pipeline["Service"]) =>
  StepPlan.plan(model, { pipeline, context, cache: "f16", barriers: true }).pipe(
    Effect.provideService(Checked, false),
    Effect.orDie
  )

const printed = (size: Program["grid"][number]): string => typeof size === "number" ? `${size}` : Print.expression(size)

const codeText = (code: Program["code"]): string => {
  if (typeof code === "string") return code
  if (code instanceof Uint8Array) return new TextDecoder().decode(code)
  return typeof code === "function" ? code.toString() : Print.graph(code)
}

/** Of everything that a device is told about a program. */
export const digestOf = ({ bindings, bounds, code, grid, vars, workgroup }: Program): string =>
  digest([
    codeText(code),
    workgroup.join(),
    grid.map(printed).join(),
    JSON.stringify([bindings, vars, bounds])
  ].join("\n")).slice(0, 16)
