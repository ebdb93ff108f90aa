// First token of each turn of a chat with tg-tiny on wasm, what was cached of its prompt, and the rest of the answer:
// `node packages/engine/bench/turns.ts [rounds]`
import { Effect, Stream } from "effect"
import { fromModel } from "../src/Conversations.ts"
import * as Sampler from "../src/Sampler.ts"
import { wasm } from "../test/support/devices.ts"
import { asked, tiny, tinySource } from "../test/support/models.ts"

const rounds = Number(process.argv[2] ?? 5)
const questions = ["What is 17 + 25?", "And what is the capital of Peru?", "Spell the word apple.", "What is 30 + 12?"]

await Effect.gen(function*() {
  const pool = yield* fromModel(tinySource, tiny, { prepare: ["last", Sampler.greedy] })
  for (let round = 0; round < rounds; round++) {
    const said: Array<string> = []
    for (const question of questions) {
      said.push(question)
      const tokens = asked(...said)
      const started = performance.now()
      let first: number | undefined
      let count = 0
      let answer = ""
      const cached = yield* Effect.scoped(Effect.gen(function*() {
        const generation = yield* pool.generate({ tokens, maxTokens: 40 })
        yield* Stream.runForEach(generation.tokens, ({ text }) =>
          Effect.sync(() => {
            first ??= performance.now() - started
            count++
            answer += text
          }))
        return generation.cachedTokens
      }))
      const rest = (performance.now() - started - first!) / Math.max(1, count - 1)
      console.log(
        `turn ${said.length / 2 + 0.5}: ${tokens.length} tokens, ${cached} cached; first after ${
          first!.toFixed(1)
        } ms, then ${rest.toFixed(1)} ms a token: ${JSON.stringify(answer)}`
      )
      said.push(answer)
    }
  }
}).pipe(Effect.scoped, Effect.provide(wasm), Effect.runPromise)
