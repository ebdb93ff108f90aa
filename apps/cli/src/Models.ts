/** From flags to a running engine. */
import { Checked } from "@tg/core-uop/Spec"
import { ModelFile } from "@tg/engine"
import { Engine, fromModel } from "@tg/engine/Engine"
import type { ActivationPolicy } from "@tg/engine/Session"
import * as GgufFile from "@tg/gguf/GgufFile"
import { Effect, Layer, Option } from "effect"
import * as Devices from "./Devices.ts"
import * as TunedFiles from "./TunedFiles.ts"

/** The flags that decide how a model runs. */
export interface RunFlags {
  readonly model: string
  readonly device: Devices.Choice
  readonly kv: "f16" | "f32"
  readonly activations: ActivationPolicy
  readonly context: Option.Option<number>
  readonly check: boolean
  readonly noTune: boolean
}

/** A model file that is open: its bytes, and what its header says. A split model is opened by any of its parts. */
export const open = Effect.fn("cli.open")(function*(path: string) {
  const { gguf, source } = yield* GgufFile.open(path)
  return { source, file: yield* Effect.fromResult(ModelFile.fromGguf(gguf)) }
})

/** The engine and the device of these flags. The file is checked before a device is started. */
export const layer = ({ activations, context, device, kv, model, noTune }: Omit<RunFlags, "check">) =>
  Layer.unwrap(Effect.gen(function*() {
    const { file, source } = yield* open(model)
    const store = yield* TunedFiles.load({ noTune })
    const options = { cache: kv, activations, context: Option.getOrUndefined(context) }
    return Layer.effect(Engine, fromModel(source, file, options)).pipe(
      Layer.provideMerge(Devices.layer(device, store))
    )
  }))

/** Runs with a loaded model. The compiler's validators are on only where `--check` asks for them: they cost time. */
export const withModel = <A, E, R>(flags: RunFlags, use: Effect.Effect<A, E, R>) =>
  use.pipe(
    Effect.provide(layer(flags)),
    Effect.provideService(Checked, flags.check)
  )
