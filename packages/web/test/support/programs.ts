/** A script that compiles the step of a token, for a test of bundles: what it makes is what is made elsewhere. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { Checked } from "@tg/core-uop/Spec"
import * as ActivationPolicy from "@tg/engine/ActivationPolicy"
import * as Prompts from "@tg/engine/Prompts"
import * as StepProgram from "@tg/engine/StepProgram"
import { Device } from "@tg/runtime/Device"
import { Effect, Layer } from "effect"
import * as Opening from "../../src/Opening.ts"
import * as Targets from "../../src/Targets.ts"

const context = 1024

/** The code of the programs of a model for a device that is not there. */
export const programsOf = (bytes: ArrayBuffer, profile: DeviceProfile): Promise<ReadonlyArray<string>> =>
  Effect.gen(function*() {
    const { model } = yield* Opening.header({ _tag: "Bytes", name: "model.gguf", bytes })
    const { chunk } = Prompts.promptShape(model, { asked: undefined, context, profile })
    const activations = ActivationPolicy.activationsOn(profile)
    const size = { activations, cache: "f16", context, profile, rows: "last" } as const
    const { sink } = profile.kind === "gpu"
      ? StepProgram.decodeProgram(model, size)
      : StepProgram.stepProgram(model, { ...size, chunk, order: "tokens" })
    const made: Array<string> = []
    const device = Layer.mock(Device, {
      profile,
      allocatedBytes: () => 0,
      load: (program) =>
        Effect.sync(() => ({ program: (made.push(`${program.name}: ${String(program.code)}`), program) }))
    })
    const target = profile.kind === "gpu"
      ? Targets.webgpu({
        subgroupSize: profile.subgroupSize,
        matrixUnits: profile.matrixUnits,
        halfSubnormals: true,
        halfRounding: true,
        unclamped: false,
        packedDot: true
      })
      : Targets.wasm({ memory: "own", simd: "plain" })
    const { jit } = yield* target.compiler.pipe(Effect.provide(device))
    yield* jit.compile(sink)
    return made
  }).pipe(Effect.provideService(Checked, false), Effect.scoped, Effect.runPromise)
