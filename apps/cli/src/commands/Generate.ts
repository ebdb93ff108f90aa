/** `tg generate`: text to stdout as it comes. */
import { Engine, type Token } from "@tg/engine/Engine"
import * as Sampler from "@tg/engine/Sampler"
import { Clock, Config, Effect, Option, Random, Stdio, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import * as CompiledFiles from "../CompiledFiles.ts"
import { Chosen } from "../Devices.ts"
import * as Files from "../Files.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import * as Profiles from "../Profiles.ts"
import * as Prompt from "../Prompt.ts"
import { UsageError } from "../Report.ts"
import * as Settings from "../Settings.ts"
import * as TunedFiles from "../TunedFiles.ts"

const flags = {
  prompt: Flags.prompt,
  messages: Flag.String("messages").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription("A conversation to continue: JSON, [{\"role\": \"user\", \"content\": \"..\"}, ..]"),
    Flag.optional
  ),
  system: Flag.String("system").pipe(Flag.withDescription("A system text in front of the conversation"), Flag.optional),
  model: Flags.model,
  maxTokens: Flag.Int("max-tokens").pipe(
    Flag.withAlias("n"),
    Flag.withDescription("End after this many tokens (default: 512)"),
    Flag.withFallbackConfig(Settings.configOf("max-tokens", Config.Int)),
    Flag.withDefault(512)
  ),
  temperature: Flag.Finite("temperature").pipe(
    Flag.withDescription("0 takes the likeliest token (default); 1 draws as the model says"),
    Flag.withFallbackConfig(Settings.configOf("temperature", Config.Finite)),
    Flag.withDefault(0)
  ),
  topK: Flag.Int("top-k").pipe(
    Flag.withDescription("Draw among this many (default: 0, all)"),
    Flag.withFallbackConfig(Settings.configOf("top-k", Config.Int)),
    Flag.withDefault(0)
  ),
  topP: Flag.Finite("top-p").pipe(
    Flag.withDescription("Draw among the likeliest with this total probability (default: 1, all)"),
    Flag.withFallbackConfig(Settings.configOf("top-p", Config.Finite)),
    Flag.withDefault(1)
  ),
  minP: Flag.Finite("min-p").pipe(
    Flag.withDescription("Draw among those at least this likely relative to the likeliest (default: 0, all)"),
    Flag.withFallbackConfig(Settings.configOf("min-p", Config.Finite)),
    Flag.withDefault(0)
  ),
  seed: Flag.Int("seed").pipe(Flag.withDescription("Equal seeds draw equal texts (default: a new one)"), Flag.optional),
  raw: Flag.Boolean("raw").pipe(
    Flag.withDescription("Continue the prompt as it is, without the chat template; special tokens may be written out"),
    Flag.withDefault(false)
  ),
  thinking: Flag.Boolean("thinking").pipe(
    Flag.withDescription("Let the model think first, if its template can ask for it"),
    Flag.withDefault(false)
  ),
  kv: Flags.kv,
  activations: Flags.activations,
  context: Flags.context,
  device: Flags.device,
  threads: Flags.threads,
  noTune: TunedFiles.noTune,
  noCache: CompiledFiles.noCache,
  limits: Profiles.limits,
  noSubgroups: Profiles.noSubgroups,
  check: Flags.check,
  json: Flags.json
} as const

/** Generates text. */
export const command = Command.make(
  "generate",
  flags,
  Effect.fn("cli.generate")(function*(given) {
    const started = yield* Clock.currentTimeMillis
    const sampling = yield* samplingOf(given)
    if (given.maxTokens < 1) {
      return yield* new UsageError({ message: `-n ${given.maxTokens} was asked; it has to be 1 or more` })
    }
    const asked = yield* askedOf({ ...given, prompt: yield* Flags.promptOf(given.prompt) })
    yield* Models.withModel(
      given,
      Models.forText(sampling),
      run({ ...asked, maxTokens: given.maxTokens, json: given.json, sampling, started })
    )
  })
).pipe(
  Command.withDescription("Generate text on this machine"),
  Command.withExamples([
    { command: "tg generate \"What is 17 + 25?\"" },
    { command: "tg generate --raw -n 100 \"Once upon a time\"", description: "Continue a text" }
  ])
)

interface Job extends Prompt.Asked {
  readonly thinking: boolean
  readonly maxTokens: number
  readonly sampling: Sampler.Settings
  readonly json: boolean
  readonly started: number
}

const run = Effect.fn("cli.generate.run")(function*(job: Job) {
  const engine = yield* Engine
  const chosen = yield* Chosen
  const { gguf } = engine.model
  const codec = yield* engine.tokenizer
  const prompt = yield* Prompt.tokens(gguf, codec, job)
  const loaded = yield* Clock.currentTimeMillis
  yield* Output.note(`${engine.model.config.name} on ${chosen.name}`)
  if (chosen.fallback !== undefined) yield* Output.note(`no GPU is used: ${chosen.fallback}`)

  const generated: Array<Token> = []
  let firstAt: number | undefined
  const tokens = engine.generate({ tokens: prompt, maxTokens: job.maxTokens, sampling: job.sampling }).pipe(
    Stream.tap((token) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        firstAt ??= now
        generated.push(token)
      })
    )
  )
  if (job.json) yield* Stream.runDrain(tokens)
  else {
    yield* Output.printAll(Stream.map(tokens, (token) => token.text)).pipe(
      // what was written stays a whole line, whatever happened after it
      Effect.onExit((exit) =>
        exit._tag === "Success" || generated.length > 0 ? Effect.ignore(Output.print("\n")) : Effect.void
      )
    )
  }

  const ended = yield* Clock.currentTimeMillis
  const timings = {
    loadMillis: loaded - job.started,
    promptTokens: prompt.length,
    firstTokenMillis: (firstAt ?? ended) - loaded,
    generatedTokens: generated.length,
    tokensPerSecond: rate(generated.length - 1, ended - (firstAt ?? ended))
  }
  if (job.json) {
    yield* Output.printJson({
      text: generated.map((token) => token.text).join(""),
      tokens: generated.filter((token) => token.stop !== "end").map((token) => token.id),
      stop: generated.at(-1)?.stop,
      device: chosen.name,
      ...(job.sampling.temperature === 0 ? {} : { seed: job.sampling.seed }),
      timings
    })
  }
  const seed = job.sampling.temperature === 0 ? "" : `, seed ${job.sampling.seed}`
  yield* Output.note(
    `loaded in ${timings.loadMillis} ms; first token after ${timings.firstTokenMillis} ms (${prompt.length} tokens of ` +
      `prompt); ${generated.length} tokens, ${timings.tokensPerSecond} tokens/s${seed}`
  )
})

const rate = (count: number, millis: number): number =>
  count < 1 || millis <= 0 ? 0 : Math.round(count / millis * 10_000) / 10

const samplingOf = Effect.fn("cli.sampling")(function*(given: {
  readonly temperature: number
  readonly topK: number
  readonly topP: number
  readonly minP: number
  readonly seed: Option.Option<number>
}) {
  const { minP, temperature, topK, topP } = given
  const seed = Option.isSome(given.seed) ? given.seed.value : yield* Random.nextIntBetween(0, 2 ** 32)
  const settings: Sampler.Settings = { temperature, topK, topP, minP, seed }
  const invalid = Sampler.validate(settings)
  return invalid === undefined ? settings : yield* invalid
})

const askedOf = Effect.fn("cli.prompt")(function*(given: {
  readonly prompt: Option.Option<string>
  readonly messages: Option.Option<string>
  readonly system: Option.Option<string>
  readonly raw: boolean
  readonly thinking: boolean
}) {
  const { raw, thinking } = given
  const prompt = Option.getOrUndefined(given.prompt)
  const path = Option.getOrUndefined(given.messages)
  const messages = path === undefined
    ? undefined
    : yield* Effect.flatMap(
      Files.readText(path),
      (text) => Files.decodeJson(text, { schema: Prompt.Messages, where: path })
    )
  const asked = {
    prompt: prompt === "-" ? yield* stdinText : prompt,
    messages,
    system: Option.getOrUndefined(given.system),
    raw,
    thinking
  }
  // whatever is wrong with it is said before a model is loaded
  const refusal = raw ? undefined : Prompt.conversation(asked)
  return refusal instanceof UsageError ? yield* refusal : asked
})

const stdinText = Effect.flatMap(Stdio.Stdio, ({ stdin }) => Stream.mkString(Stream.decodeText(stdin))).pipe(
  Effect.map((text) => text.replace(/\n$/, ""))
)
