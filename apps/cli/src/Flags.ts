/** Flags that several commands share. */
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { Schema } from "effect"
import { Flag, GlobalFlag } from "effect/cli"
import * as Devices from "./Devices.ts"

// in a bundle the models are beside the program, in the package beside its sources
const models = ["./models/", "../models/"].map((folder) => new URL(folder, import.meta.url))

/** The model that comes with the command line. */
export const defaultModel = fileURLToPath(
  new URL("tg-tiny-Q4_0.gguf", models.find((url) => existsSync(url)) ?? models[1])
)

/** `--model`, with tg-tiny as default. */
export const model = Flag.String("model").pipe(
  Flag.withMetavar("FILE"),
  Flag.withDescription("A GGUF file (default: tg-tiny, which comes with tg)"),
  Flag.withDefault(defaultModel)
)

/** `--model` where there is no default. */
export const requiredModel = Flag.String("model").pipe(Flag.withMetavar("FILE"), Flag.withDescription("A GGUF file"))

/** `--device`. */
export const device = Flag.Literals("device", Devices.choices).pipe(
  Flag.withDescription("Where to compute; auto takes a hardware GPU if there is one, else wasm"),
  Flag.withDefault("auto" as const)
)

/** `--threads`. */
export const threads = Flag.Int("threads").pipe(
  Flag.withMetavar("N"),
  Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 256 }))),
  Flag.withDescription("Threads of the wasm device (default: one for each core)"),
  Flag.optional
)

/** `--kv`. */
export const kv = Flag.Literals("kv", ["f16", "f32"]).pipe(
  Flag.withDescription("Precision of the key-value cache"),
  Flag.withDefault("f16" as const)
)

/** `--activations`. */
export const activations = Flag.Literals("activations", ["auto", "float", "int8"]).pipe(
  Flag.withDescription(
    "What products with quantised weights read: floats, or 8 bits per 32 values; auto takes int8 where the device has an instruction for it"
  ),
  Flag.withDefault("auto" as const)
)

/** `--context`. */
export const context = Flag.Int("context").pipe(
  Flag.withMetavar("TOKENS"),
  Flag.withDescription("Tokens the context has memory for (default: it grows, up to what the model allows)"),
  Flag.optional
)

/** `--json`. */
export const json = Flag.Boolean("json").pipe(
  Flag.withDescription("Print one JSON value instead of text"),
  Flag.withDefault(false)
)

/** `--check`. */
export const check = Flag.Boolean("check").pipe(
  Flag.withDescription("Validate the program after every compiler stage"),
  Flag.withDefault(false)
)

/** `--debug`, for all commands. */
export const Debug = GlobalFlag.Setting("debug")({
  flag: Flag.Boolean("debug").pipe(Flag.withDescription("Show stack traces of errors"), Flag.withDefault(false))
})
