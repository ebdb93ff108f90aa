// A chat and an object with a model file: `node packages/ai/examples/capitals.ts [model.gguf]`
import * as NodeServices from "@effect/platform-node/NodeServices"
import { AiModel } from "@tg/ai"
import { Conversations } from "@tg/engine/Conversations"
import * as FileByteSource from "@tg/gguf/FileByteSource"
import * as Models from "@tg/models/Models"
import * as Devices from "@tg/node/Devices"
import { Console, Effect, Layer, Schema, Stream } from "effect"
import { Chat, LanguageModel } from "effect/ai"

const file = process.argv[2] ?? "apps/cli/models/tg-tiny-Q4_0.gguf"

const model = AiModel.layer({ maxTokens: 200 }).pipe(
  Layer.provide(Conversations.layer({ context: 1024 })),
  Layer.provide([FileByteSource.layer(file), Devices.layer("wasm"), Models.layer]),
  Layer.provide(NodeServices.layer)
)

const Kind = Schema.Struct({ kind: Schema.Literals(["city", "animal", "number"]), certain: Schema.Boolean })

const program = Effect.gen(function*() {
  const chat = yield* Chat.empty
  yield* chat.streamText({ prompt: "What is the capital of Peru?" }).pipe(
    Stream.runForEach((part) => part.type === "text-delta" ? Console.log(part.delta) : Effect.void)
  )
  const { usage } = yield* chat.generateText({ prompt: "And of Uruguay?" })
  yield* Console.log(`${usage.inputTokens.cacheRead} of ${usage.inputTokens.total} tokens were there`)
  const { value } = yield* LanguageModel.generateObject({ prompt: "What is Lima?", schema: Kind })
  yield* Console.log(value.kind, value.certain)
})

await program.pipe(Effect.provide(model), Effect.runPromise)
