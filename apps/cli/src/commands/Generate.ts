/** `tg generate`: text to stdout as it comes. */
import { Engine, type Token } from "@tg/engine/Engine"
import type * as Sampler from "@tg/engine/Sampler"
import { ContextFull } from "@tg/engine/Session"
import { Clock, Config, Effect, Exit, Option, Scope, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import { Chosen } from "../Devices.ts"
import * as Drafts from "../Drafts.ts"
import * as Files from "../Files.ts"
import * as Flags from "../Flags.ts"
import * as Form from "../Form.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import * as Progress from "../Progress.ts"
import * as Prompt from "../Prompt.ts"
import { UsageError } from "../Report.ts"
import * as SamplingFlags from "../SamplingFlags.ts"
import * as Settings from "../Settings.ts"
import * as StdinPrompt from "../StdinPrompt.ts"
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
  ...SamplingFlags.flags,
  ...Form.flags,
  raw: Flag.Boolean("raw").pipe(
    Flag.withDescription("Continue the prompt as it is, without the chat template; special tokens may be written out"),
    Flag.withDefault(false)
  ),
  thinking: Flag.Boolean("thinking").pipe(
    Flag.withDescription("Let the model think first, if its template can ask for it"),
    Flag.withDefault(false)
  ),
  ...Models.runFlags,
  ...Drafts.flags,
  json: Flags.json
} as const

/** Generates text. */
export const command = Command.make(
  "generate",
  flags,
  Effect.fn("cli.generate")(function*(given) {
    const started = yield* Clock.currentTimeMillis
    const sampling = yield* SamplingFlags.settingsOf(given)
    if (given.maxTokens < 1) {
      return yield* new UsageError({ message: `-n ${given.maxTokens} was asked; it has to be 1 or more` })
    }
    const asked = yield* askedOf({
      ...given,
      prompt: yield* StdinPrompt.of(given.prompt, { isNeeded: Option.isNone(given.messages) })
    })
    // all that can be wrong with it is told before weights are read
    const opened = yield* Models.open(given.model)
    const { file } = opened
    const form = yield* Form.of(given, { asked, file })
    const prompt = form.prompt ?? (yield* Prompt.tokens(file, asked))
    const refusal = Models.checkLength(file, { asked: prompt.length, context: given.context })
    if (refusal !== undefined) return yield* refusal
    const { json, maxTokens } = given
    yield* Models.withModel(
      given,
      { ...Models.forText(sampling), opened },
      run({ prompt, maxTokens, json, sampling, started, form })
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
  readonly form: Form.Form
}

/** What came of a job so far. */
interface Progressing {
  readonly generated: Array<Token>
  firstAt: number | undefined
}

/** The tokens of a job, with how far reading its prompt is told until the first of them. */
const tokensOf = Effect.fnUntraced(function*({ form, json, maxTokens, prompt, sampling }: Job, so: Progressing) {
  const engine = yield* Engine
  const telling = yield* Scope.make()
  if (!json) {
    yield* Progress.reading(prompt.length, () => engine.session.tokens().length).pipe(Scope.provide(telling))
  }
  return engine.generate({ tokens: prompt, maxTokens, sampling, ...form.request }).pipe(
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
    ? Stream.runDrain(job.form.texts(tokens))
    : Output.printGenerated(job.form.texts(tokens)).pipe(
      // what was written stays a whole line, whatever happened after it
      Effect.onExit((exit) =>
        exit._tag === "Success" || generated.length > 0 ? Effect.ignore(Output.print("\n")) : Effect.void
      )
    )
  yield* writing

  const drafts = generated.at(-1)?.drafts
  const timings = timingsOf(job, so, { loaded, ended: yield* Clock.currentTimeMillis })
  if (job.json) {
    yield* Output.printJson({
      text: generated.map((token) => token.text).join(""),
      ...job.form.told(),
      tokens: generated.filter((token) => token.stop !== "end").map((token) => token.id),
      stop: generated.at(-1)?.stop,
      device: chosen.name,
      ...(drafts === undefined ? {} : { drafts }),
      ...(job.sampling.temperature === 0 ? {} : { seed: job.sampling.seed }),
      timings
    })
  }
  yield* Output.note(closing(timings, job.sampling))
  if (drafts !== undefined) yield* Output.note(Drafts.show(drafts))
  // the text is there, and is not all of it
  if (generated.at(-1)?.stop === "context") {
    const { context: limit } = session
    return yield* new ContextFull({ asked: limit + 1, limit, modelLimit: model.config.contextLength })
  }
  if (!job.form.isWhole()) return yield* new Form.CutText({ tokens: generated.length, maxTokens: job.maxTokens })
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

const askedOf = Effect.fn("cli.prompt")(function*(given: {
  readonly prompt: string | undefined
  readonly messages: Option.Option<string>
  readonly system: Option.Option<string>
  readonly raw: boolean
  readonly thinking: boolean
}) {
  const { raw, thinking } = given
  const path = Option.getOrUndefined(given.messages)
  const messages = path === undefined
    ? undefined
    : yield* Effect.flatMap(
      Files.readText(path),
      (text) => Files.decodeJson(text, { schema: Prompt.Messages, where: path })
    )
  const asked = {
    prompt: given.prompt,
    messages,
    system: Option.getOrUndefined(given.system),
    raw,
    thinking
  }
  // whatever is wrong with it is said before a model is loaded
  const refusal = raw ? undefined : Prompt.conversation(asked)
  return refusal instanceof UsageError ? yield* refusal : asked
})
