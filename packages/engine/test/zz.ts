import { Effect, Layer } from "effect"
import * as Gguf from "@tg/gguf/Gguf"
import { fromBytes } from "@tg/gguf/ByteSource"
import { readFileSync } from "node:fs"
import * as Loader from "../src/Loader.ts"
import * as Config from "@tg/models-deepseek2/Config"
import * as Weights from "@tg/models-deepseek2/Weights"
import { Result } from "effect"
const wasm = await import("/work/main/packages/runtime-wasm/src/WasmDevice.ts")
const cg = await import("/work/main/packages/codegen-wasm/src/Wasm.ts")
import { Jit } from "@tg/jit/Jit"
import { Compiler } from "@tg/jit/Compiler"
import { Rangeify } from "@tg/rangeify/Rangeify"
const { Profile, wasm: profile } = await import("/work/main/packages/core-uop/src/DeviceProfile.ts")
const dev = wasm.layer()
const layer = Jit.layer.pipe(Layer.provideMerge(Layer.mergeAll(dev, Rangeify.layer, Compiler.layer.pipe(Layer.provide([cg.layer, Profile.layer(profile)])))))
const bytes = readFileSync("/work/main/apps/cli/models/tg-tiny-Q4_0.gguf")

import { Engine } from "../src/Engine.ts"
import { ByteSource } from "@tg/gguf/ByteSource"
import { Stream } from "effect"
import * as ChatTemplate from "@tg/tokenizer/ChatTemplate"
const T0 = performance.now()
const eng = Engine.layer({ cache: "f16" }).pipe(Layer.provide(layer), Layer.provide(ByteSource.layerBytes("x", bytes)))
await Effect.runPromise(Effect.gen(function*() {
  const e = yield* Engine
  console.log("loaded", performance.now() - T0)
  yield* e.prepare("last")
  console.log("prepared", performance.now() - T0)
  const codec = yield* e.tokenizer
  const t = yield* Effect.fromResult(ChatTemplate.make(e.model.gguf.metadata, codec))
  const p = yield* Effect.fromResult(t.render({ messages: [{role: "user", content: process.argv[2] ?? "What is 17 + 25?"}], variables: {enable_thinking: false} }, new Date()))
  console.log("template", performance.now() - T0)
  let n = 0
  yield* e.generate({ tokens: codec.encodeSegments(p.segments), maxTokens: 200 }).pipe(Stream.runForEach(t => Effect.sync(() => { if (n++ === 0) console.log("first", performance.now() - T0); process.stdout.write(t.text) })))
  console.log("\n", n, performance.now() - T0)
}).pipe(Effect.provide(eng)) as any).catch(e => { console.error(String(e.message).slice(0, 2000), e.reason, e.stack?.slice(0, 1500)) })
