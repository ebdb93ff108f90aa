/** The model that comes with the command line, and its answers to the questions that come with it. */
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Engine } from "@tg/engine/Engine"
import type { ActivationPolicy } from "@tg/engine/ActivationPolicy"
import { Effect, Layer, Option, Schema, Stream } from "effect"
import type * as Devices from "../../../src/Devices.ts"
import * as Models from "../../../src/Models.ts"
import * as Prompt from "../../../src/Prompt.ts"
import * as Score from "../../../src/Score.ts"

const file = (name: string): string => fileURLToPath(new URL(`../../../models/${name}`, import.meta.url))

const engine = (device: Devices.Choice, activations: ActivationPolicy) =>
  Models.layer(
    {
      model: file("tg-tiny-Q4_0.gguf"),
      device,
      threads: Option.none(),
      kv: "f16",
      activations,
      context: Option.none(),
      noTune: false,
      noEgraph: false,
      persistent: "off",
      noPersistent: false,
      bindGroups: "dispatch",
      stepsTogether: 1,
      noCache: true,
      check: true,
      limits: {},
      profile: Option.none(),
      noSubgroups: false,
      noMatrixUnits: false,
      json: true
    },
    Models.forText()
  ).pipe(
    Layer.provide(NodeServices.layer)
  )

/** A question with the tokens that llama.cpp made of it, and what it answered. */
const Question = Schema.Struct({
  ...Score.Question.fields,
  prompt_tokens: Schema.Array(Schema.Finite),
  llama_cpp: Schema.Struct({ Q4_0: Schema.Struct({ text: Schema.String, right: Schema.Boolean }) })
})
/** A question with the tokens that llama.cpp made of it, and what it answered. */
export type Question = typeof Question.Type

/** All questions. */
export const questions: ReadonlyArray<Question> = readFileSync(file("eval.jsonl"), "utf8").trim().split("\n")
  .map((line) => Schema.decodeUnknownSync(Question)(JSON.parse(line)))

const answer = Effect.fn("answer")(function*(question: Question) {
  const { generate, model } = yield* Engine
  const { id, messages, prompt_tokens, thinking = false } = question
  const tokens = yield* Prompt.chatTokens(model, { messages, thinking })
  assert.deepEqual(tokens, prompt_tokens, `the prompt of ${id}`)
  const generated = yield* Stream.runCollect(generate({ tokens, maxTokens: 200 }))
  return generated.map((token) => token.text).join("")
})

const count = <A>(items: ReadonlyArray<A>, keep: (item: A) => boolean): number => items.filter(keep).length

/** The test of a device: the questions, greedily, against the completions of llama.cpp from the same file. */
export const test = (
  name: string,
  { activations = "auto", device }: {
    readonly device: Devices.Choice
    readonly activations?: ActivationPolicy
  },
  asked: ReadonlyArray<Question>
): void => {
  it.live(name, () =>
    Effect.gen(function*() {
      const answers = yield* Effect.forEach(asked, (question) =>
        Effect.map(answer(question), (text) => ({ question, text })))
      const differing = answers.flatMap(({ question: { id, llama_cpp }, text }) =>
        text === llama_cpp.Q4_0.text ? [] : [{ id, text, recorded: llama_cpp.Q4_0.text }]
      )
      // llama.cpp rounds activations to 8 bits, so a close call may go the other way
      assert.isAtMost(differing.length, 0.05 * asked.length, JSON.stringify(differing, undefined, 2))
      const right = count(answers, ({ question, text }) =>
        Score.isRight(question, text))
      const rightThere = count(asked, (question) => question.llama_cpp.Q4_0.right)
      assert.isAtMost(Math.abs(right - rightThere), 0.01 * asked.length, `${right} right, ${rightThere} there`)
    }).pipe(Effect.provide(engine(device, activations))))
}
