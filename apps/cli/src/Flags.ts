/** Flags that several commands share. */
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import type { StepsTogether } from "@tg/engine/Ahead"
import { aliases } from "@tg/hub/Aliases"
import { Pipeline } from "@tg/jit/Pipeline"
import { Config, Effect, Layer, Option, Schema } from "effect"
import { Argument, Flag, GlobalFlag } from "effect/cli"
import * as Devices from "./Devices.ts"
import { UsageError } from "./Report.ts"
import * as Settings from "./Settings.ts"

// in a bundle the models are beside the program, in the package beside its sources
const models = ["./models/", "../models/"].map((folder) => new URL(folder, import.meta.url))

/** The model that comes with the command line. */
export const defaultModel = fileURLToPath(
  new URL("tg-tiny-Q4_0.gguf", models.find((url) => existsSync(url)) ?? models[1])
)

/** What names of models look like. */
export const names = `hf:owner/repo/file.gguf, hf:owner/repo:Q4_K_M, https://.., or one of ${
  Object.keys(aliases).join(", ")
}`

const modelFlag = Flag.String("model").pipe(Flag.withAlias("m"), Flag.withMetavar("MODEL"))

/** `--model`, with the user's own or tg-tiny as default. */
export const model = modelFlag.pipe(
  Flag.withDescription(`A GGUF file, or the name of a model: ${names} (default: tg-tiny, which comes with tg)`),
  Flag.withFallbackConfig(Settings.configOf("model", Config.String)),
  Flag.withDefault(defaultModel)
)

/** `--model` where there is no default. */
export const requiredModel = modelFlag.pipe(Flag.withDescription(`A GGUF file, or the name of a model: ${names}`))

/** `--model` where another flag can take its place: only what was said. `modelOr` has the default. */
export const modelIfSaid = modelFlag.pipe(
  Flag.withDescription(`A GGUF file, or the name of a model: ${names} (default: tg-tiny, which comes with tg)`),
  Flag.optional
)

/** The model that was said, the user's own, or tg-tiny. */
export const modelOr = (said: Option.Option<string>): Effect.Effect<string> =>
  Effect.map(Settings.InForce, (kept) => Option.getOrElse(said, () => String(kept.get("model")?.value ?? defaultModel)))

/** `--pull`, for all commands. */
export const Pull = GlobalFlag.Setting("pull")({
  flag: Flag.Boolean("pull").pipe(
    Flag.withDescription("Fetch the model if it is not on this machine"),
    Flag.withDefault(false)
  )
})

/** A prompt, as an argument or as `-p`. */
export const prompt = {
  argument: Argument.String("prompt").pipe(
    Argument.withDescription("What to say to the model; - reads it from stdin"),
    Argument.optional
  ),
  flag: Flag.String("prompt").pipe(
    Flag.withAlias("p"),
    Flag.withMetavar("TEXT"),
    Flag.withDescription("The same as the argument"),
    Flag.optional
  )
} as const

/** The prompt of the argument or the flag. */
export const promptOf = (given: {
  readonly argument: Option.Option<string>
  readonly flag: Option.Option<string>
}): Effect.Effect<Option.Option<string>, UsageError> =>
  Option.isSome(given.argument) && Option.isSome(given.flag)
    ? Effect.fail(
      new UsageError({ message: "the prompt is given twice, as an argument and with -p; keep one of them" })
    )
    : Effect.succeed(Option.orElse(given.argument, () => given.flag))

/** `--device`. */
export const device = Flag.Literals("device", Devices.choices).pipe(
  Flag.withDescription("Where to compute; auto takes a hardware GPU if there is one, else wasm"),
  Flag.withFallbackConfig(Settings.configOf("device", (name) => Config.Literals(Devices.choices, name))),
  Flag.withDefault("auto" as const)
)

/** `--threads`. */
export const threads = Flag.Int("threads").pipe(
  Flag.withAlias("t"),
  Flag.withMetavar("N"),
  Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 256 }))),
  Flag.withDescription("Threads of the wasm device (default: one for each core)"),
  Flag.withFallbackConfig(Settings.configOf("threads", Config.Int)),
  Flag.optional
)

/** `--kv`. */
export const kv = Flag.Literals("kv", ["f16", "f32"]).pipe(
  Flag.withDescription("Precision of the key-value cache"),
  Flag.withFallbackConfig(Settings.configOf("kv", (name) => Config.Literals(["f16", "f32"], name))),
  Flag.withDefault("f16" as const)
)

/** `--activations`. */
export const activations = Flag.Literals("activations", ["auto", "float", "int8"]).pipe(
  Flag.withDescription(
    "What products with quantised weights read: floats, or 8 bits per 32 values; auto takes int8 where the device has an instruction for it"
  ),
  Flag.withFallbackConfig(Settings.configOf("activations", (name) => Config.Literals(["auto", "float", "int8"], name))),
  Flag.withDefault("auto" as const)
)

/** `--context`. */
export const context = Flag.Int("context").pipe(
  Flag.withMetavar("TOKENS"),
  Flag.withDescription("Tokens the context has memory for (default: it grows, up to what the model allows)"),
  Flag.withFallbackConfig(Settings.configOf("context", Config.Int)),
  Flag.optional
)

/** `--tokens`, with `--step prompt`. */
export const stepTokens = Flag.Int("tokens").pipe(
  Flag.withSchema(Schema.Int.check(Schema.isGreaterThan(0))),
  Flag.withMetavar("N"),
  Flag.withDescription(
    "With --step prompt: the step that so many tokens of a prompt take (default: as many as one takes)"
  ),
  Flag.optional
)

/** `--depth`, of what is planned. */
export const depthBefore = Flag.Int("depth").pipe(
  Flag.withAlias("d"),
  Flag.withMetavar("TOKENS"),
  Flag.withSchema(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))),
  Flag.withDescription("Tokens before the step's"),
  Flag.optional
)

/** `--no-egraph`. */
export const noEgraph = Flag.Boolean("no-egraph").pipe(
  Flag.withDescription(
    "Compile programs as the model's code writes them, not what an e-graph finds for each block: no other forms, and no attention in pieces"
  ),
  Flag.withDefault(false)
)

/** What stands in for stages of the compiler with these flags: for `--no-egraph` those that leave programs as they are written. */
export const stagesOf = ({ noEgraph }: { readonly noEgraph: boolean }): Layer.Layer<never> =>
  noEgraph ? Pipeline.asWritten : Layer.empty

/** `--persistent`. */
const persistent = Flag.Literals("persistent", ["off", "auto", "on"]).pipe(
  Flag.withDescription(
    "Make one launch of kernels that wait for each other, where barriers across the grid hold: auto where the host takes longer to encode launches than the device to run them, on wherever it is possible"
  ),
  Flag.withDefault("auto" as const)
)

/** `--no-persistent`. */
const noPersistent = Flag.Boolean("no-persistent").pipe(
  Flag.withDescription("Launch kernels one by one, whatever else is said"),
  Flag.withDefault(false)
)

/** The flags of persistent launches. */
export const persistence = { persistent, noPersistent } as const

/** What they say. */
export const persistentOf = (
  flags: { readonly persistent: "off" | "auto" | "on"; readonly noPersistent: boolean }
): "off" | "auto" | "on" => flags.noPersistent ? "off" : flags.persistent

/** `--bind-groups`. */
export const bindGroups = Flag.Literals("bind-groups", ["dispatch", "block"]).pipe(
  Flag.withDescription(
    "On a GPU, what a bind group is good for while tokens are generated: one dispatch, or those of a block of the model"
  ),
  Flag.withDefault("dispatch" as const)
)

/** `--steps-together`. */
export const stepsTogether = Flag.Literals("steps-together", ["auto", "1", "2", "4", "8", "16"]).pipe(
  Flag.withDescription(
    "On a GPU, how many steps are submitted at once while tokens are generated; as their time says (auto)"
  ),
  Flag.withDefault("1" as const),
  Flag.map((asked): StepsTogether => asked === "auto" ? asked : Number(asked))
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
