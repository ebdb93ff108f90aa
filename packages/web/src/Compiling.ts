/** The compiler of a page: the same in the worker and where programs are compiled for it beforehand. */
import { Profile } from "@tg/core-uop/DeviceProfile"
import { given } from "@tg/core-uop/Given"
import { Renderer } from "@tg/core-uop/Program"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device } from "@tg/runtime/Device"
import * as Tuned from "@tg/tuner/Tuned"
import { Effect, Layer } from "effect"

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))

/** The compiler for a device, over its renderer and its profile. */
export const compiler = <R>(renderer: Layer.Layer<Renderer, never, R>) =>
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
