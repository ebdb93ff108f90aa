import { Effect } from "effect"
import * as D from "./test/support/devices.ts"
import * as S from "./test/support/stages.ts"
import { randomProgram, buildProgram, shrinks } from "@tg/tensor/Random"
import * as Print from "@tg/core-uop/Print"
import * as DP from "@tg/core-uop/DeviceProfile"
const [dev, n, from, size] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4]), Number(process.argv[5] ?? 12)]
let cur = 0
const layer: any = { wasm: D.wasm(), webgpu: D.webgpu(), nosub: D.webgpu({ subgroups: false }), reference: D.reference, rwasm: D.wasm((k) => S.randomOpts(cur, DP.wasm)(k)), rwebgpu: D.webgpu({ choose: (k) => S.randomOpts(cur, DP.webgpuDefault)(k) }) }[dev!]
const one = (r: any) => Effect.gen(function*() {
  const want = S.runTensor(r)
  const exit = yield* Effect.exit(D.run(r))
  return exit._tag === "Success" ? S.difference(r, want, exit.value as any) : "throws " + String(exit.cause).slice(0, 900)
})
await Effect.runPromise(Effect.gen(function*() {
  let bad = 0; const t0 = performance.now()
  for (let seed = from; seed < from + n; seed++) {
    cur = seed
    const r = randomProgram(seed, size)
    const f = yield* one(r)
    if (f === undefined) continue
    bad++
    if (bad <= 2) {
      const kind = f.slice(0, 9)
      let m: any = r.steps, again = true, tries = 0
      while (again) { again = false; for (const c of shrinks(m)) { let p; try { p = buildProgram(c) } catch { continue }; if (tries++ > 300) break; const g = yield* one(p); if (g?.slice(0, 9) === kind) { m = c; again = true; break } } }
      const p = buildProgram(m)
      console.log("SEED", seed, f, "\n->", yield* one(p)); console.log(Print.graph(p.program.sink))
      for (const s of S.scheduled(p).steps as any) console.log(s.name, Print.expression(s.ast))
    }
  }
  console.log({ dev, n, bad, ms: Math.round(performance.now() - t0) })
}).pipe(Effect.provide(layer)) as any)
process.exit(0)
