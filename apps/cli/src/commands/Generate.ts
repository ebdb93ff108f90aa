/** `tg generate`: text to stdout as it comes. */
import { Engine, type Token } from "@tg/engine/Engine"
import * as Sampler from "@tg/engine/Sampler"
import { ContextFull } from "@tg/engine/Session"
import { ModelFile } from "@tg/engine"
import { Clock, Config, Effect, Exit, Option, Random, Scope, Stdio, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import * as CompiledFiles from "../CompiledFiles.ts"
import { Chosen } from "../Devices.ts"
import * as Files from "../Files.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import * as Profiles from "../Profiles.ts"
import * as Progress from "../Progress.ts"
import * as Prompt from "../Prompt.ts"
import { UsageError } from "../Report.ts"
import * as Settings from "../Settings.ts"
import * as TunedFiles from "../TunedFiles.ts"
import * as Words from "../Words.ts"

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
    Flag.optional
  ),
  topK: Flag.Int("top-k").pipe(
    Flag.withDescription("With --temperature: draw among this many (default: 0, all)"),
    Flag.withFallbackConfig(Settings.configOf("top-k", Config.Int)),
    Flag.optional
  ),
  topP: Flag.Finite("top-p").pipe(
    Flag.withDescription("With --temperature: draw among the likeliest with this total probability (default: 1, all)"),
    Flag.withFallbackConfig(Settings.configOf("top-p", Config.Finite)),
    Flag.optional
  ),
  minP: Flag.Finite("min-p").pipe(
    Flag.withDescription(
      "With --temperature: draw among those at least this likely relative to the likeliest (default: 0, all)"
    ),
    Flag.withFallbackConfig(Settings.configOf("min-p", Config.Finite)),
    Flag.optional
  ),
  seed: Flag.Int("seed").pipe(
    Flag.withDescription("With --temperature: equal seeds draw equal texts (default: a new one)"),
    Flag.optional
  ),
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
    // all that can be wrong with it is told before weights are read
    const opened = yield* Models.open(given.model)
    const { gguf } = opened.file
    const codec = yield* Effect.fromResult(ModelFile.tokenizer(gguf))
    const prompt = yield* Prompt.tokens(gguf, codec, asked)
    const refusal = Models.checkLength(opened.file, { asked: prompt.length, context: given.context })
    if (refusal !== undefined) return yield* refusal
    const { json, maxTokens } = given
    yield* Models.withModel(
      given,
      { ...Models.forText(sampling), opened, codec },
      run({ prompt, maxTokens, json, sampling, started })
    )
  }, Effect.scoped)
).pipe(
  Command.withDescription("Generate text on this machine"),
  Command.withExamples([
    { command: "tg generate \"What is 17 + 25?\"" },
    { command: "tg generate --raw -n 100 \"Once upon a time\"", description: "Continue a text" }
  ])
)

interface Job {
  readonly prompt: ReadonlyArray<number>
  readonly maxTokens: number
  readonly sampling: Sampler.Settings
  readonly json: boolean
  readonly started: number
}

/** What came of a job so far. */
interface Progressing {
  readonly generated: Array<Token>
  firstAt: number | undefined
}

/** The tokens of a job, with how far reading its prompt is told until the first of them. */
const tokensOf = Effect.fnUntraced(function*({ json, maxTokens, prompt, sampling }: Job, so: Progressing) {
  const engine = yield* Engine
  const telling = yield* Scope.make()
  if (!json) {
    yield* Progress.reading(prompt.length, () => engine.session.tokens().length).pipe(Scope.provide(telling))
  }
  return engine.generate({ tokens: prompt, maxTokens, sampling }).pipe(
    Stream.tap((token) =>
      Effect.gen(function*() {
        if (so.firstAt === undefined) yield* Scope.close(telling, Exit.void)
        so.firstAt ??= yield* Clock.currentTimeMillis
        so.generated.push(token)
      })
    ),
    Stream.ensuring(Scope.close(telling, Exit.void))
  )
})

const run = Effect.fn("cli.generate.run")(function*(job: Job) {
  const { model, session } = yield* Engine
  const chosen = yield* Chosen
  const loaded = yield* Clock.currentTimeMillis
  yield* Output.note(`${model.config.name} on ${chosen.name}`)
  if (chosen.fallback !== undefined) yield* Output.note(`no GPU is used: ${chosen.fallback}`)

  const so: Progressing = { generated: [], firstAt: undefined }
  const { generated } = so
  const tokens = yield* tokensOf(job, so)
  const writing = job.json
    ? Stream.runDrain(tokens)
    : Output.printGenerated(Stream.map(tokens, (token) => token.text)).pipe(
      // what was written stays a whole line, whatever happened after it
      Effect.onExit((exit) =>
        exit._tag === "Success" || generated.length > 0 ? Effect.ignore(Output.print("\n")) : Effect.void
      )
    )
  yield* writing

  const timings = timingsOf(job, so, { loaded, ended: yield* Clock.currentTimeMillis })
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
  yield* Output.note(closing(timings, job.sampling))
  // the text is there, and is not all of it
  if (generated.at(-1)?.stop === "context") {
    const { context: limit } = session
    return yield* new ContextFull({ asked: limit + 1, limit, modelLimit: model.config.contextLength })
  }
})

const timingsOf = (
  { prompt, started }: Job,
  { firstAt, generated }: Progressing,
  { ended, loaded }: { readonly loaded: number; readonly ended: number }
) => {
  const first = firstAt ?? ended
  return {
    loadMillis: loaded - started,
    promptTokens: prompt.length,
    firstTokenMillis: first - loaded,
    promptTokensPerSecond: rate(prompt.length, first - loaded),
    generatedTokens: generated.length,
    tokensPerSecond: rate(generated.length - 1, ended - first)
  }
}

/** The last line: what it took. */
export const closing = (timings: ReturnType<typeof timingsOf>, sampling: Sampler.Settings): string => {
  const { firstTokenMillis, generatedTokens, loadMillis, promptTokens, promptTokensPerSecond, tokensPerSecond } =
    timings
  return [
    `loaded in ${loadMillis} ms`,
    `${Words.count(promptTokens, "token")} of prompt in ${firstTokenMillis} ms, ${promptTokensPerSecond} tokens/s`,
    `${Words.count(generatedTokens, "token")}, ${tokensPerSecond} tokens/s` +
    (sampling.temperature === 0 ? "" : `, seed ${sampling.seed}`)
  ].join("; ")
}

const rate = (count: number, millis: number): number =>
  count < 1 || millis <= 0 ? 0 : Math.round(count / millis * 10_000) / 10

const samplingOf = Effect.fn("cli.sampling")(function*(given: {
  readonly temperature: Option.Option<number>
  readonly topK: Option.Option<number>
  readonly topP: Option.Option<number>
  readonly minP: Option.Option<number>
  readonly seed: Option.Option<number>
}) {
  const settings: Sampler.Settings = {
    temperature: Option.getOrElse(given.temperature, () => 0),
    topK: Option.getOrElse(given.topK, () => 0),
    topP: Option.getOrElse(given.topP, () => 1),
    minP: Option.getOrElse(given.minP, () => 0),
    seed: Option.isSome(given.seed) ? given.seed.value : yield* Random.nextIntBetween(0, 2 ** 32)
  }
  const invalid = Sampler.validate(settings)
  if (invalid !== undefined) return yield* invalid
  const { minP, seed, topK, topP } = given
  // a default that the user keeps may wait for a temperature
  const kept = yield* Settings.InForce
  const idle = Object.entries({ "top-k": topK, "top-p": topP, "min-p": minP, seed })
    .filter(([name, value]) => Option.isSome(value) && kept.get(name as Settings.Key)?.value !== value.value)
    .map(([name]) => `--${name}`)
  if (idle.length > 0 && Option.isNone(given.temperature)) {
    return yield* new UsageError({
      message: `${idle.join(", ")} ${idle.length === 1 ? "decides" : "decide"} how tokens are drawn, and without ` +
        `--temperature the likeliest one is taken; give --temperature 1 to draw as the model says`
    })
  }
  return settings
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

/** All of stdin. Nothing there is no prompt: it is what a closed one looks like, and one that is a folder. */
const stdinText = Effect.gen(function*() {
  const { stdin } = yield* Stdio.Stdio
  const parts = yield* Stream.runCollect(stdin).pipe(
    Effect.mapError((error) => new UsageError({ message: `stdin cannot be read: ${Words.cause(error)}` }))
  )
  const text = yield* Files.decodeText(Buffer.concat(parts), "stdin")
  if (text === "") {
    return yield* new UsageError({ message: "- reads the prompt from stdin, and nothing came from there" })
  }
  return text.replace(/\n$/, "")
})
