import { Effect, Layer } from "effect"
import * as Gguf from "@tg/gguf/Gguf"
import { fromBytes } from "@tg/gguf/ByteSource"
import { readFileSync } from "node:fs"
import * as Loader from "../src/Loader.ts"
import * as ModelFile from "../src/ModelFile.ts"
const { layer } = await import("/work/main/apps/cli/src/Devices.ts")
import { Checked } from "@tg/core-uop/Spec"
const { evaluate } = await import("/work/main/packages/core-uop/src/EvaluateTensor.ts")
const bytes = readFileSync(process.argv[3] ?? "/work/main/apps/cli/models/tg-tiny-Q4_0.gguf")
await Effect.runPromise(Effect.gen(function*() {
  const source = fromBytes("x", bytes)
  const m = yield* ModelFile.open(source)
  const wanted = m.weights.all.map(ref => ({ tensor: m.gguf.tensorsByName.get(ref.name)!, layout: ref.layout }))
  for (const [k, v] of Map.groupBy(wanted, w => Loader.keyOf(w.layout))) { const r = Loader.relayout(v.map(w => w.layout), 2**20); console.log(k, v.length, r.unit, r.blocks) }
  const { Jit } = yield* Effect.promise(() => import("@tg/jit/Jit"))
  const { Device } = yield* Effect.promise(() => import("@tg/runtime/Device"))
  const jit = yield* Jit
  const device = yield* Device
  const q = wanted.filter(w => w.layout.type === "Q4_0")
  const r = Loader.relayout(q.map(w => w.layout), 2**20)
  const b0 = yield* device.allocate(r.rawBytes, "r"), b1 = yield* device.allocate(1e6, "p")
  for (let i = 0; i < 6; i++) { const t = performance.now(); const p = yield* jit.prepare(r.program.sink, new Map([[0, b0], [1, b1]])); const t2 = performance.now(); yield* p.run({units: 4, offset_q: 0, offset_d: 1000}); yield* device.read(b1, 0, 4); console.log("prepare", (t2-t).toFixed(2), p.plan.launches.map(l => l.name), "run", (performance.now() - t2).toFixed(2)) }
  for (const [k, v] of Map.groupBy(wanted, w => Loader.keyOf(w.layout))) {
    const t = performance.now()
    yield* Loader.load(source, v)
    console.log(k, (performance.now() - t).toFixed(0), "ms", v.length)
    const t2 = performance.now()
    yield* Loader.load(source, v)
    console.log("  again", (performance.now() - t2).toFixed(0), "ms")
  }
}).pipe(Effect.scoped, Effect.provide(layer(process.argv[2] as any)), Effect.provideService(Checked, false)) as any)
