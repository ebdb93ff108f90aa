/** A chat: what is typed, and what becomes of it. */
import type { Reply } from "@tg/dialogue"
import type { Sampler } from "@tg/engine"
import { Cause, Effect, Exit, FileSystem, Random, Stdio, Stream } from "effect"
import * as Files from "../Files.ts"
import * as OutFile from "../OutFile.ts"
import * as Output from "../Output.ts"
import * as Prompt from "../Prompt.ts"
import { describe, UsageError } from "../Report.ts"
import * as Words from "../Words.ts"
import * as Answering from "./Answering.ts"
import * as Command from "./Command.ts"
import type { History } from "./History.ts"
import * as Shown from "./Shown.ts"
import * as Talk from "./Talk.ts"
import type { Terminal } from "./Terminal.ts"

/** What a chat keeps while models come and go. */
export interface Chat {
  readonly terminal: Terminal
  readonly history: History
  readonly maxTokens: number | undefined
  sampling: Sampler.Settings
  talk: Talk.Talk
  model: string
  thinking: boolean
  show: Command.Show
  /** Whether there is a line about each answer. */
  hasStats: boolean
  last: Answering.Stats | undefined
  /** The file that this conversation is in. */
  path: string | undefined
  /** Questions without an answer. */
  failures: number
}

/** How it goes on: it ends, or with another model. */
export type Next = { readonly _tag: "End" } | { readonly _tag: "Model"; readonly name: string }

/** Opens a model's header, so that a model that cannot be loaded is known before the one that is there goes. */
export type CheckModel<R> = (name: string) => Effect.Effect<void, unknown, R>

/** Talks with the model that is loaded, until the user leaves or wants another one. */
export const run = Effect.fn("cli.chat")(function*<R>(chat: Chat, checkModel: CheckModel<R>) {
  const answering = yield* Answering.make()
  if (chat.talk.messages.at(-1)?.role === "user") yield* answerLast(chat, answering, chat.talk)
  for (;;) {
    const typed = yield* readMessage(chat)
    if (typed === undefined) return { _tag: "End" } as Next
    if (typed.trim() === "") continue
    yield* chat.history.add(typed)
    const command = Command.parse(typed)
    switch (command._tag) {
      case "Exit":
        return { _tag: "End" } as Next
      case "Say": {
        const before = chat.talk
        chat.talk = Talk.say(before, command.text)
        yield* answerLast(chat, answering, before)
        break
      }
      case "Regenerate":
        yield* regenerate(chat, answering)
        break
      case "Model": {
        const { name } = command
        if (name === undefined) yield* Output.note(`${answering.name}, ${chat.model}`)
        else if (yield* recovering(checkModel(name))) return { _tag: "Model", name } as Next
        break
      }
      default:
        yield* recovering(obey(chat, command))
    }
  }
})

/** Writes what is shown of an answer: it has what dims it, so it is written as it is. */
const write = (text: string) =>
  text === ""
    ? Effect.void
    : Effect.flatMap(Stdio.Stdio, ({ stdout }) => Stream.run(Stream.make(text), stdout({ endOnDone: false })))

/** A message may go on in further lines. */
const readMessage = Effect.fnUntraced(function*({ history, terminal }: Chat) {
  const lines: Array<string> = []
  for (;;) {
    const line = yield* terminal.read(lines.length === 0 ? "> " : ".. ", history)
    if (line === undefined) return lines.length === 0 ? undefined : lines.join("\n")
    const goesOn = /(?<!\\)(?:\\\\)*\\$/u.test(line)
    lines.push(goesOn ? line.slice(0, -1) : line)
    if (!goesOn) return lines.join("\n")
  }
})

/** Tells an error and goes on: whether there was none. */
const recovering = <E, R>(effect: Effect.Effect<void, E, R>) =>
  Effect.as(effect, true).pipe(
    Effect.catchCause((cause) => {
      const error = Cause.squash(cause)
      return Cause.hasInterruptsOnly(cause) || Output.isClosedPipe(error)
        ? Effect.failCause(cause)
        : Effect.as(Output.note(describe(error)), false)
    })
  )

/** Answers the last message. If nothing comes of it, the conversation is what it was `before`. */
const answerLast = Effect.fnUntraced(function*(
  chat: Chat,
  answering: Answering.Answering,
  before: Talk.Talk
) {
  const { maxTokens, sampling, show, talk, terminal, thinking } = chat
  const shown = Shown.make(terminal.style, show)
  let content = ""
  let reasoning = ""
  const part = (part: Reply.Part) => {
    if (part.type === "text") content += part.text
    if (part.type === "reasoning") reasoning += part.text
    return write(shown.part(part))
  }
  chat.last = undefined
  const answer = answering.answer(talk, { maxTokens, sampling, thinking }, {
    part,
    told: (stats) => {
      chat.last = stats
    }
  })
  const exit = yield* Effect.exit(terminal.untilInterrupted(answer))
  const error = Exit.isFailure(exit) ? Cause.squash(exit.cause) : undefined
  if (Exit.isFailure(exit) && (Cause.hasInterruptsOnly(exit.cause) || Output.isClosedPipe(error))) {
    return yield* Effect.failCause(exit.cause)
  }
  const isStopped = Exit.isSuccess(exit) && !exit.value
  const isNothing = content === "" && reasoning === "" && (error !== undefined || isStopped)
  if (!isNothing) yield* write(shown.end())
  chat.talk = isNothing ? before : Talk.answer(talk, { content: content.trim(), reasoning })
  if (error !== undefined) {
    chat.failures++
    yield* Output.note(`${describe(error)}\n${afterError(error)}`)
  } else if (isStopped) yield* Output.note("(stopped)")
  else yield* tellEnd(chat)
  if (chat.hasStats && chat.last !== undefined) yield* Output.note(Answering.show(chat.last))
})

const tellEnd = (chat: Chat) => {
  switch (chat.last?.stop) {
    case "context":
      return Output.note(`(the context is full: ${forgetHint})`)
    case "length":
      return Output.note(`(cut after ${Words.count(chat.last.generatedTokens, "token")})`)
    default:
      return Effect.void
  }
}

const forgetHint = "/forget drops the oldest question, /reset all of them, /save FILE keeps them"

const afterError = (error: unknown): string =>
  typeof error === "object" && error !== null && "_tag" in error && error._tag === "ContextFull"
    ? `Nothing of the conversation is lost: ${forgetHint}.`
    : "Nothing of the conversation is lost."

const regenerate = Effect.fnUntraced(function*(chat: Chat, answering: Answering.Answering) {
  const { talk } = chat
  const asked = Talk.unanswered(talk)
  if (asked === undefined) return yield* Output.note("nothing was asked so far")
  if (chat.sampling.temperature === 0) {
    yield* Output.note("(the likeliest answer, which is the same again; --temperature 1 draws others)")
  } else chat.sampling = { ...chat.sampling, seed: yield* Random.nextIntBetween(0, 2 ** 32) }
  chat.talk = asked
  yield* answerLast(chat, answering, talk)
})

type Simple = Exclude<Command.Command, { readonly _tag: "Exit" | "Say" | "Regenerate" | "Model" }>

/** Does what needs no model. */
const obey = Effect.fnUntraced(function*(chat: Chat, command: Simple) {
  switch (command._tag) {
    case "Help":
      return yield* Output.note(Command.help)
    case "Wrong":
      return yield* Output.note(command.message)
    case "Reset":
      chat.talk = { ...chat.talk, messages: [] }
      chat.path = undefined
      return yield* Output.note("forgotten; begin anew")
    case "System": {
      const { text } = command
      if (text === undefined) return yield* Output.note(chat.talk.system ?? "there is no system text")
      chat.talk = { ...chat.talk, system: text === "-" ? undefined : text }
      return yield* Output.note(text === "-" ? "system text removed" : "system text set")
    }
    case "Save":
      return yield* save(chat, command)
    case "Load":
      return yield* load(chat, command.path)
    case "Stats":
      if (command.each !== undefined) chat.hasStats = command.each
      return yield* Output.note(chat.last === undefined ? "nothing was answered so far" : Answering.show(chat.last))
    case "Thinking":
      chat.thinking = command.ask ?? chat.thinking
      chat.show = command.show ?? chat.show
      return yield* Output.note(`thinking is ${chat.thinking ? "asked for" : "not asked for"}, and shown: ${chat.show}`)
    case "Forget": {
      const shorter = Talk.forget(chat.talk, command.turns)
      if (shorter === undefined) return yield* Output.note("there are not as many questions; /reset forgets all")
      chat.talk = shorter
      return yield* Output.note(`${shorter.messages.length} messages are left`)
    }
  }
})

const save = Effect.fnUntraced(
  function*(
    chat: Chat,
    { isForced, path = chat.path }: { readonly path: string | undefined; readonly isForced: boolean }
  ) {
    if (path === undefined) return yield* Output.note("/save needs a file")
    const files = yield* FileSystem.FileSystem
    const force = isForced || path === chat.path
    if (!force && (yield* files.exists(path))) {
      return yield* Output.note(`${path} is there already; /save -f ${path} replaces it`)
    }
    const messages = Talk.toMessages(chat.talk)
    yield* OutFile.writeText(path, `${JSON.stringify(messages, null, 2)}\n`, { force: true })
    chat.path = path
    yield* Output.note(`${messages.length} messages are in ${path}`)
  }
)

/** The messages of a file. */
export const readMessages = (path: string) =>
  Effect.flatMap(Files.readText(path), (text) => Files.decodeJson(text, { schema: Prompt.Messages, where: path }))

const load = Effect.fnUntraced(function*(chat: Chat, path: string) {
  const messages = yield* readMessages(path)
  chat.talk = Talk.fromMessages(messages)
  chat.path = path
  const last = chat.talk.messages.at(-1)
  const open = last?.role === "user" ? "; the last is a question, which /regenerate answers" : ""
  yield* Output.note(`${messages.length} messages from ${path}${open}`)
})

/** What a chat without a person at it ends with. */
export const outcome = (chat: Chat): Effect.Effect<void, UsageError> =>
  chat.failures === 0 || chat.terminal.isInteractive
    ? Effect.void
    : Effect.fail(new UsageError({ message: `${chat.failures} of the questions had no whole answer` }))
