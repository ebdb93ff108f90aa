/** `tg eval`: questions with known answers, greedily, in one process. */
import { Engine, type Token } from "@tg/engine/Engine"
import * as Metadata from "@tg/gguf/Metadata"
import { Clock, Effect, Option, Result, Stream } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Chosen } from "../Devices.ts"
import * as Files from "../Files.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import * as Prompt from "../Prompt.ts"
import { UsageError } from "../Report.ts"
import * as Score from "../Score.ts"
import * as Words from "../Words.ts"

// As many as the recorded completions could have.
const maxTokens = 200

const flags = {
  questions: Argument.String("questions").pipe(Argument.withDescription("A file of questions, one JSON object a line")),
  model: Flags.model,
  first: Flag.Int("first").pipe(
    Flag.withMetavar("QUESTIONS"),
    Flag.withDescription("Ask only so many, from the beginning"),
    Flag.optional
  ),
  ...Models.runFlags,
  json: Flags.json
} as const

/** Asks the questions of a file. */
export const command = Command.make(
  "eval",
  flags,
  Effect.fn("cli.eval")(function*(given) {
    const all = yield* readQuestions(given.questions)
    const questions = all.slice(0, Math.max(0, Option.getOrElse(given.first, () => all.length)))
    if (questions.length === 0) return yield* new UsageError({ message: `${given.questions} has no questions to ask` })
    yield* Models.withModel(given, Models.forText(), run(questions, given))
  })
).pipe(Command.withDescription("Ask questions with known answers and count the right ones"))

/** The questions of a file; an error names the line. */
export const readQuestions = Effect.fn("cli.eval.read")(function*(path: string) {
  const lines = (yield* Files.readText(path)).split("\n")
  const questions: Array<Score.Question> = []
  for (const [i, line] of lines.entries()) {
    if (line.trim() === "") continue
    questions.push(yield* Files.decodeJson(line, { schema: Score.Question, where: `${path}, line ${i + 1}` }))
  }
  return questions
})

/** What came of a question. */
interface Answer {
  readonly text: string
  readonly tokens: number
  /** Why there is no whole answer. */
  readonly failure: string | undefined
}

/** Asks a question. One that is too long, or that the template cannot take, has failed; the others go on. */
const ask = Effect.fnUntraced(function*(question: Score.Question) {
  const engine = yield* Engine
  const { messages, thinking = false } = question
  const generated: Array<Token> = []
  const answerOf = (failure: string | undefined): Answer => ({
    text: generated.map((token) => token.text).join(""),
    tokens: generated.length,
    failure
  })
  return yield* Effect.gen(function*() {
    const tokens = yield* Prompt.chatTokens(engine.model, { messages, thinking })
    yield* engine.generate({ tokens, maxTokens }).pipe(
      Stream.runForEach((token) => Effect.sync(() => generated.push(token)))
    )
    return answerOf(undefined)
  }).pipe(
    Effect.catchTag(
      ["ContextFull", "TemplateFailed", "InvalidTokens", "MessageDropped"],
      (error) => Effect.succeed(answerOf(error.message))
    )
  )
})

interface Tally {
  questions: number
  right: number
}

const run = Effect.fn("cli.eval.run")(function*(
  questions: ReadonlyArray<Score.Question>,
  { json }: { readonly json: boolean }
) {
  const engine = yield* Engine
  const chosen = yield* Chosen
  const { gguf } = engine.model
  const fileType = yield* Effect.fromResult(Result.map(
    Metadata.optional(Metadata.getUint32(gguf, "general.file_type")),
    (found) => found
  ))
  const quantisation = Score.quantisationOf(fileType, gguf.tensors)
  const tasks = new Map<string, Tally>()
  const failures: Array<{ readonly id: string; readonly reason: string }> = []
  let right = 0
  let agree = 0
  let recorded = 0
  let tokens = 0
  const started = yield* Clock.currentTimeMillis
  yield* Output.note(
    `${Words.count(questions.length, "question")} to ${engine.model.config.name} (${quantisation}) on ${chosen.name}`
  )
  for (const question of questions) {
    const { id, task } = question
    const { failure, text, tokens: length } = yield* ask(question)
    tokens += length
    const tally = tasks.get(task) ?? { questions: 0, right: 0 }
    tally.questions++
    if (failure !== undefined) {
      failures.push({ id, reason: failure })
      yield* Output.note(`${id} (${task}): no answer: ${failure}`)
    } else if (Score.isRight(question, text)) {
      tally.right++
      right++
    } else yield* Output.note(`${id} (${task}): ${JSON.stringify(text)}, expected ${JSON.stringify(question.expected)}`)
    tasks.set(task, tally)
    const record = question.llama_cpp?.[quantisation]
    if (record !== undefined) {
      recorded++
      if (record.text === text) agree++
      else yield* Output.note(`${id} (${task}): ${JSON.stringify(text)}, recorded ${JSON.stringify(record.text)}`)
    }
  }
  const seconds = ((yield* Clock.currentTimeMillis) - started) / 1000
  if (json) {
    yield* Output.printJson({
      questions: questions.length,
      right,
      failures,
      agree,
      recorded,
      quantisation,
      device: chosen.name,
      seconds,
      tokens,
      tasks: Object.fromEntries(tasks)
    })
    return
  }
  const width = Math.max(...[...tasks.keys()].map((task) => task.length))
  const lines = [...tasks].map(([task, tally]) => `${task.padEnd(width)}  ${share(tally.right, tally.questions)}`)
  const failed = failures.length === 0 ? [] : [`${Words.count(failures.length, "question")} without an answer`]
  const agreement = recorded === 0
    ? `no completion is recorded for ${quantisation}`
    : `${share(agree, recorded)} agree with the recorded completion for ${quantisation}`
  yield* Output.print(
    `${[...lines, "", `${"all".padEnd(width)}  ${share(right, questions.length)}`, ...failed, agreement].join("\n")}\n`
  )
  yield* Output.note(`${Words.count(tokens, "token")} in ${seconds.toFixed(1)} s`)
})

const share = (part: number, all: number): string => `${part} of ${all} (${(100 * part / all).toFixed(1)}%)`
