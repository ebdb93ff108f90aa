/** From flags to a running engine. */
import { Checked } from "@tg/core-uop/Spec"
import { ModelFile } from "@tg/engine"
import { Engine, fromModel } from "@tg/engine/Engine"
import type { ActivationPolicy } from "@tg/engine/Session"
import * as FileByteSource from "@tg/gguf/FileByteSource"
import { Effect, Layer, Option } from "effect"
import * as Devices from "./Devices.ts"
import * as TunedFiles from "./TunedFiles.ts"

/** The flags that decide how a model runs. */
export interface RunFlags {
  readonly model: string
  readonly device: Devices.Choice
  readonly threads: Option.Option<number>
  readonly kv: "f16" | "f32"
  readonly activations: ActivationPolicy
  readonly context: Option.Option<number>
  readonly check: boolean
  readonly noTune: boolean
}

/** The engine and the device of these flags. The file is checked before a device is started. */
export const layer = ({ activations, context, device, kv, model, noTune, threads }: Omit<RunFlags, "check">) =>
  Layer.unwrap(Effect.gen(function*() {
    const source = yield* FileByteSource.open(model)
    const checked = yield* ModelFile.open(source)
    const store = yield* TunedFiles.load({ noTune })
    const options = { cache: kv, activations, context: Option.getOrUndefined(context) }
    return Layer.effect(Engine, fromModel(source, checked, options)).pipe(
      Layer.provideMerge(Devices.layer(device, store, { threads: Option.getOrUndefined(threads) }))
    )
  }))

/** Runs with a loaded model. The compiler's validators are on only where `--check` asks for them: they cost time. */
export const withModel = <A, E, R>(flags: RunFlags, use: Effect.Effect<A, E, R>) =>
  use.pipe(
    Effect.provide(layer(flags)),
    Effect.provideService(Checked, flags.check)
  )
