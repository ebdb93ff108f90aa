/** From flags to a running engine. */
import { Checked } from "@tg/core-uop/Spec"
import { Engine } from "@tg/engine/Engine"
import * as FileByteSource from "@tg/gguf/FileByteSource"
import { Effect, Layer, Option } from "effect"
import * as Devices from "./Devices.ts"

/** The flags that decide how a model runs. */
export interface RunFlags {
  readonly model: string
  readonly device: Devices.Choice
  readonly kv: "f16" | "f32"
  readonly context: Option.Option<number>
  readonly check: boolean
}

/** The engine and the device of these flags. */
export const layer = (flags: Omit<RunFlags, "check">) =>
  Engine.layer({ cache: flags.kv, context: Option.getOrUndefined(flags.context) }).pipe(
    Layer.provideMerge(Devices.layer(flags.device)),
    Layer.provide(FileByteSource.layer(flags.model))
  )

/** Runs with a loaded model. The compiler's validators are on only where `--check` asks for them: they cost time. */
export const withModel = <A, E, R>(flags: RunFlags, use: Effect.Effect<A, E, R>) =>
  use.pipe(
    Effect.provide(layer(flags)),
    Effect.provideService(Checked, flags.check)
  )

