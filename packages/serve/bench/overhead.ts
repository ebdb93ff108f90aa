// What the server adds to a token of tg-tiny on wasm, over the engine alone: `node packages/serve/bench/overhead.ts [rounds]`.
// The client reads in the same process, on the same thread, so that its time counts too.
import { Conversations } from "@tg/engine/Conversations"
import { Effect, Stream } from "effect"
import { codec } from "../test/support/fake.ts"
import { start } from "../test/support/server.ts"

const rounds = Number(process.argv[2] ?? 12)
const count = 200
const prompt = "Once upon a time"
const server = await start()

const direct = Effect.scoped(Effect.gen(function*() {
  const conversations = yield* Conversations
  const tokens = codec.encode(prompt, { addSpecial: true, parseSpecial: true })
  const generation = yield* conversations.generate({
    tokens,
    maxTokens: count,
    bias: new Map([...codec.vocabulary.eog].map((id) => [id, -100]))
  })
  return yield* timed(Stream.map(generation.tokens, () => 1))
}))

const served = (stream: boolean) =>
  Effect.scoped(Effect.gen(function*() {
    const logit_bias = Object.fromEntries([...codec.vocabulary.eog].map((id) => [id, -100]))
    const body = JSON.stringify({ prompt, max_tokens: count, temperature: 0, logit_bias, stream })
    const response = yield* Effect.promise(() => fetch(`${server.url}/v1/completions`, { method: "POST", body }))
    return yield* timed(
      Stream.fromReadableStream({ evaluate: () => response.body!, onError: (error) => error }).pipe(
        Stream.decodeText,
        Stream.map((text) => text.split("data: {").length - 1)
      )
    )
  }))

/** From the first to the last token, for each token: milliseconds on the clock, and of processors in this process. */
const timed = <E>(counts: Stream.Stream<number, E>) =>
  Effect.gen(function*() {
    let tokens = 0
    let first = 0
    let last = 0
    let usage = process.cpuUsage()
    yield* Stream.runForEach(counts, (more) =>
      Effect.sync(() => {
        if (more === 0) return
        last = performance.now()
        if (tokens === 0) {
          first = last
          usage = process.cpuUsage()
        }
        tokens += more
      }))
    const { system, user } = process.cpuUsage(usage)
    return { clock: (last - first) / (tokens - 1), processor: (system + user) / 1000 / (tokens - 1) }
  })

const median = (all: ReadonlyArray<number>): number => all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)]!

type Times = Effect.Success<typeof direct>
const pairs: Array<readonly [alone: Times, asked: Times]> = []
// one after the other in turns: what else the machine does meets both
for (let i = 0; i <= rounds; i++) {
  const alone = await server.runtime.runPromise(direct)
  const asked = await server.runtime.runPromise(served(true))
  if (i > 0) pairs.push([alone, asked])
}
for (const [key, name] of [["clock", "on the clock"], ["processor", "of processors"]] as const) {
  const alone = median(pairs.map(([alone]) => alone[key]))
  const added = median(pairs.map(([alone, asked]) => asked[key] - alone[key]))
  console.log(
    `${name}: engine alone ${alone.toFixed(3)} ms a token, the server and its client add ${added.toFixed(3)} ms`
  )
}
console.log(`medians of ${rounds} pairs of ${count} tokens`)
await server.close()
