import { Model } from "@tg/node"
import { Effect, Stream } from "effect"

const program = Effect.gen(function*() {
  const model = yield* Model.load(process.argv[2] ?? "apps/cli/models/tg-tiny-Q4_0.gguf")
  const reply = model.chat("What is 17 + 25?", { maxTokens: 100 })
  yield* Stream.runForEach(reply, (text) => Effect.sync(() => process.stdout.write(text)))
})
await Effect.runPromise(Effect.scoped(program))
