// Loading, prompt and decoding of tg-tiny on wasm: `node packages/engine/bench/decode.ts [tokens]`
import { Effect } from "effect"
import * as Loader from "../src/Loader.ts"
import * as Sampler from "../src/Sampler.ts"
import * as Session from "../src/Session.ts"
import { wasm } from "../test/support/devices.ts"
import { tiny, tinySource } from "../test/support/models.ts"

const count = Number(process.argv[2] ?? 128)
const prompt = Array.from({ length: 128 }, (_, i) => 300 + i)

const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const started = performance.now()
    return Effect.map(effect, (value) => ({ value, millis: performance.now() - started }))
  })

await Effect.gen(function*() {
  const wanted = tiny.weights.all.map(({ layout, name }) => ({ layout, tensor: tiny.gguf.tensorsByName.get(name)! }))
  const weights = yield* timed(Loader.load(tinySource, wanted))
  const session = yield* Session.make(tiny, weights.value)
  const compiled = yield* timed(session.prepare("last"))
  const { launches, programs } = compiled.value.plan
  console.log(`load ${weights.millis.toFixed(0)} ms, compile ${compiled.millis.toFixed(0)} ms`)
  console.log(`${launches.length} launches a step, ${programs.length} programs`)
  const read = yield* timed(session.advance(prompt))
  console.log(`prompt of ${prompt.length}: ${(prompt.length / read.millis * 1000).toFixed(0)} tokens/s`)
  let tokens: ReadonlyArray<number> = [...prompt, Sampler.argmax(read.value)!]
  const decoded = yield* timed(Effect.gen(function*() {
    for (let i = 0; i < count; i++) tokens = [...tokens, Sampler.argmax(yield* session.advance(tokens))!]
  }))
  console.log(`decode of ${count}: ${(count / decoded.millis * 1000).toFixed(0)} tokens/s`)
}).pipe(Effect.scoped, Effect.provide(wasm), Effect.runPromise)
