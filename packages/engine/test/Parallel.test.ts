import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Stream } from "effect"
import type { Conversations } from "../src/Conversations.ts"
import { fromModel as engineFrom, type Request } from "../src/Engine.ts"
import type { Options } from "../src/Parallel.ts"
import { fromModel } from "../src/Together.ts"
import { keptPrograms, wasm } from "./support/devices.ts"
import { asked, tiny, tinySource } from "./support/models.ts"

const textOf = (tokens: ReadonlyArray<{ readonly text: string }>) => tokens.map((t) => t.text).join("")

const loaded = (options: Options) => fromModel(tinySource, tiny, { context: 192, ...options })

const answer = ({ generate }: Conversations["Service"], request: Request) =>
  Effect.gen(function*() {
    const { cachedTokens, tokens } = yield* generate(request)
    return { cachedTokens, tokens: yield* Stream.runCollect(tokens) }
  }).pipe(Effect.scoped)

const questions = ["What is 17 + 25?", "What is the capital of Peru?", "Spell the word apple.", "What is 3 + 4?"]

/** The texts of an engine that answers one after the other. */
const alone = (requests: ReadonlyArray<() => Request>) =>
  Effect.scoped(Effect.gen(function*() {
    const engine = yield* engineFrom(tinySource, tiny, { context: 192 })
    return yield* Effect.forEach(requests, (request) =>
      Effect.andThen(engine.reset, Effect.map(Stream.runCollect(engine.generate(request())), textOf)))
  }))

describe("conversations in one step", () => {
  it.live("have the texts that they have alone", () =>
    Effect.gen(function*() {
      const requests = questions.map((question) => () => ({ tokens: asked(question) }))
      const expected = yield* alone(requests)
      const pool = yield* loaded({ parallel: 2 })
      const many = Array.from({ length: 8 }, (_, i) => i % questions.length)
      const answers = yield* Effect.forEach(many, (i) => answer(pool, requests[i]!()), { concurrency: "unbounded" })
      assertEquals(answers.map(({ tokens }) => textOf(tokens)), many.map((i) => expected[i]!))
      assertEquals(yield* pool.status, { kept: 0, busy: 0, most: 2 })
    }).pipe(Effect.scoped, Effect.provide(wasm), keptPrograms))
})
void assert
