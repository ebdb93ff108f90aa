/** The compiler of a page. Fetched when a program is needed that was not compiled before. */
import { Profile } from "@tg/core-uop/DeviceProfile"
import { given } from "@tg/core-uop/Given"
import { Renderer } from "@tg/core-uop/Program"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device } from "@tg/runtime/Device"
import { Context, Effect, Layer } from "effect"
import * as GpuParts from "./GpuParts.ts"

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))

/** The compiler for a device, over its renderer and its profile. */
const compiler = (renderer: Layer.Layer<Renderer>, pipeline: typeof Pipeline.layerNoDeps = Pipeline.layerNoDeps) =>
  Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provideMerge(Layer.provide(pipeline, [Pipeline.stages, given(Renderer, renderer)])),
    Layer.provide(profileOfDevice)
  )

const started = (made: ReturnType<typeof compiler>) =>
  Effect.map(Layer.build(made), (services) => ({
    jit: Context.get(services, Jit),
    pipeline: Context.get(services, Pipeline)
  }))

/** Starts the compiler for a device, over its renderer. It belongs to the Scope. None is tuned that runs WebAssembly. */
export const start = (renderer: Layer.Layer<Renderer>) => started(compiler(renderer))

/** The same for a GPU, with the tuned opts that come with `@tg/tuner`. */
export const startForGpu = (renderer: Layer.Layer<Renderer>) =>
  Effect.flatMap(
    Effect.all([Effect.promise(() => import("@tg/tuner/Tuned")), GpuParts.fetched], { concurrency: 2 }),
    ([Tuned]) => started(compiler(renderer, Layer.provide(Pipeline.layerNoDeps, Tuned.layer(Tuned.shipped))))
  )
