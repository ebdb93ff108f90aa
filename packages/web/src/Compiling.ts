/** The compiler of a page. Fetched when a program is needed that was not compiled before. */
import { Profile } from "@tg/core-uop/DeviceProfile"
import { given } from "@tg/core-uop/Given"
import { Renderer } from "@tg/core-uop/Program"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device } from "@tg/runtime/Device"
import * as Tuned from "@tg/tuner/Tuned"
import { Context, Effect, Layer } from "effect"
import * as GpuParts from "./GpuParts.ts"

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))

/** The compiler for a device, over its renderer and its profile. */
const compiler = <R>(renderer: Layer.Layer<Renderer, never, R>) =>
  Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provideMerge(
      Pipeline.layerNoDeps.pipe(
        Layer.provide(Tuned.layer(Tuned.shipped)),
        Layer.provide([Pipeline.stages, given(Renderer, renderer)])
      )
    ),
    Layer.provide(profileOfDevice)
  )

/** Starts the compiler for a device, over its renderer. It belongs to the Scope. */
export const start = (renderer: Layer.Layer<Renderer>) =>
  Effect.map(Layer.build(compiler(renderer)), (services) => ({
    jit: Context.get(services, Jit),
    pipeline: Context.get(services, Pipeline)
  }))

/** The same for a GPU. */
export const startForGpu = (renderer: Layer.Layer<Renderer>) => Effect.andThen(GpuParts.fetched, start(renderer))
