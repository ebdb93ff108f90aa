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
await Effect.runPromise(Effect.gen(function*() {
  const source = fromBytes("x", bytes)
  const g = yield* Gguf.read(source)
  const c = yield* Effect.fromResult(Config.fromMetadata(g))
  const w = yield* Effect.fromResult(Weights.find(c, g))
  console.log(w.all.length, Object.groupBy(w.all, r => r.layout.type).Q4_0!.length)
  const t = performance.now()
  const b = yield* Loader.load(source, w.all.map(ref => ({ tensor: g.tensorsByName.get(ref.name)!, layout: ref.layout })))
  console.log("load", performance.now() - t, b.size)
  const { Device } = yield* Effect.promise(() => import("@tg/runtime/Device"))
  const d = yield* Device
  console.log(d.allocatedBytes())
}).pipe(Effect.scoped, Effect.provide(layer as any)) as any)
