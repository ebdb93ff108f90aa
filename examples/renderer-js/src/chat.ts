import * as NodeServices from "@effect/platform-node/NodeServices"
import { Profile } from "@tg/core-uop/DeviceProfile"
import { ModelFile, Sampler } from "@tg/engine"
import { fromModel } from "@tg/engine/Engine"
import * as GgufFile from "@tg/gguf/GgufFile"
import { Heuristics } from "@tg/heuristics/Heuristics"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import { known } from "@tg/models/Models"
import { Effect, Layer, Stream } from "effect"
import { device, profile, renderer } from "./JavaScript.ts"

/**
 * Everything that runs tensor programs, over this renderer and this device. No loop is unrolled: one thread without vectors
 * gains nothing from it, and V8 leaves functions of more than 60 KB of bytecode unoptimised.
 */
export const layer = Jit.layer.pipe(
  Layer.provide(Compiler.layer),
  Layer.provide(Pipeline.layer),
  Layer.provide([Heuristics.layerNone, renderer, Profile.layer(profile)]),
  Layer.provideMerge(device)
)

/** The answer of a model, as it is computed. */
export const answer = (path: string, question: string, maxTokens?: number) =>
  Stream.unwrap(Effect.gen(function*() {
    const { gguf, source } = yield* GgufFile.open(path)
    const file = yield* ModelFile.ofGguf(gguf, known)
    const template = yield* Effect.fromResult(file.template)
    const engine = yield* fromModel(source, file, { context: 256 })
    const messages = [{ role: "user", content: question }]
    const { segments } = yield* Effect.fromResult(template.render({ messages, variables: {} }, new Date()))
    return engine.generate({ tokens: file.codec.encodeSegments(segments), maxTokens, sampling: Sampler.greedy })
  })).pipe(Stream.map(({ text }) => text), Stream.provide(Layer.merge(layer, NodeServices.layer)))

if (import.meta.main) {
  const text = answer(process.argv[2] ?? "apps/cli/models/tg-tiny-Q4_0.gguf", "What is 17 + 25?")
  await Effect.runPromise(Stream.runForEach(text, (part) => Effect.sync(() => process.stdout.write(part))))
  process.stdout.write("\n")
}
