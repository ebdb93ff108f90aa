/** `tg chat`: a conversation in the terminal. */
import { Engine } from "@tg/engine/Engine"
import { Config, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import * as Chat from "../chat/Chat.ts"
import * as History from "../chat/History.ts"
import * as Talk from "../chat/Talk.ts"
import * as Terminal from "../chat/Terminal.ts"
import { Chosen } from "../Devices.ts"
import * as Drafts from "../Drafts.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import { describe, UsageError } from "../Report.ts"
import * as SamplingFlags from "../SamplingFlags.ts"
import * as Settings from "../Settings.ts"

const flags = {
  model: Flags.model,
  system: Flag.String("system").pipe(Flag.withDescription("A system text in front of the conversation"), Flag.optional),
  messages: Flag.String("messages").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription("A conversation to go on with, as /save writes it"),
    Flag.optional
  ),
  maxTokens: Flag.Int("max-tokens").pipe(
    Flag.withAlias("n"),
    Flag.withDescription("End an answer after this many tokens (default: where the model or the context ends it)"),
    Flag.withFallbackConfig(Settings.configOf("max-tokens", Config.Int)),
    Flag.optional
  ),
  ...SamplingFlags.flags,
  thinking: Flag.Boolean("thinking").pipe(
    Flag.withDescription("Let the model think first, if its template can ask for it"),
    Flag.withDefault(false)
  ),
  show: Flag.Literals("show-thinking", ["dim", "fold", "hide"]).pipe(
    Flag.withDescription("How thinking is shown in a terminal"),
    Flag.withDefault("dim" as const)
  ),
  stats: Flag.Boolean("stats").pipe(
    Flag.withDescription("Tell tokens a second after each answer"),
    Flag.withDefault(false)
  ),
  noHistory: Flag.Boolean("no-history").pipe(
    Flag.withDescription("Keep nothing of what is typed for the arrow keys of the next chat"),
    Flag.withDefault(false)
  ),
  ...Models.runFlags,
  ...Drafts.flags
} as const

/** Talks with a model. */
export const command = Command.make(
  "chat",
  flags,
  Effect.fn("cli.chat.command")(function*(given) {
    const sampling = yield* SamplingFlags.settingsOf(given)
    const maxTokens = Option.getOrUndefined(given.maxTokens)
    if (maxTokens !== undefined && maxTokens < 1) {
      return yield* new UsageError({ message: `-n ${maxTokens} was asked; it has to be 1 or more` })
    }
    const talk = yield* talkOf(given)
    const terminal = yield* Terminal.open
    const chat: Chat.Chat = {
      terminal,
      history: given.noHistory || !terminal.isInteractive ? History.inMemory() : yield* History.open,
      maxTokens,
      sampling,
      talk,
      model: given.model,
      thinking: given.thinking,
      show: given.show,
      hasStats: given.stats,
      last: undefined,
      path: Option.getOrUndefined(given.messages),
      failures: 0
    }
    yield* converse({ ...given, json: false }, chat)
    yield* Chat.outcome(chat)
  }, Effect.scoped)
).pipe(
  Command.withDescription("Talk with a model on this machine"),
  Command.withExamples([
    { command: "tg chat" },
    { command: "tg chat --model F.gguf --system \"Be brief.\" --thinking --stats" },
    { command: "tg chat < questions.txt", description: "Answer line by line" }
  ])
)

/** One model after the other. A model that cannot be loaded is told of, and the one before it comes back. */
const converse = Effect.fnUntraced(function*(flags: Models.RunFlags, chat: Chat.Chat) {
  let before: string | undefined
  for (;;) {
    let isLoaded = false
    const talking = Effect.suspend(() => {
      isLoaded = true
      return Effect.andThen(greet(chat), Chat.run(chat, Models.open))
    })
    const needs = Models.forText(chat.sampling)
    const next: Chat.Next = yield* Models.withModel({ ...flags, model: chat.model }, needs, talking).pipe(
      Effect.catch((error) => {
        if (isLoaded || before === undefined) return Effect.fail(error)
        return Effect.as(Output.note(describe(error)), { _tag: "Model", name: before } as const)
      })
    )
    if (next._tag === "End") return
    before = isLoaded ? chat.model : undefined
    chat.model = next.name
  }
})

const greet = Effect.fnUntraced(function*(chat: Chat.Chat) {
  const { model } = yield* Engine
  const chosen = yield* Chosen
  yield* Output.note(`${model.config.name} on ${chosen.name}`)
  if (chosen.fallback !== undefined) yield* Output.note(`no GPU is used: ${chosen.fallback}`)
  if (chat.terminal.isInteractive) yield* Output.note("/help tells what can be typed; Ctrl-D ends the chat")
})

const talkOf = Effect.fnUntraced(function*(given: {
  readonly system: Option.Option<string>
  readonly messages: Option.Option<string>
}) {
  const system = Option.getOrUndefined(given.system)
  if (Option.isNone(given.messages)) return { ...Talk.empty, system }
  const messages = yield* Chat.readMessages(given.messages.value)
  if (system !== undefined && messages[0]?.role === "system") {
    return yield* new UsageError({
      message: "--system is given, and the messages begin with a system message; keep one of them"
    })
  }
  return Talk.fromMessages(messages, system)
})
