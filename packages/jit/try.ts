import * as S from "./test/support/stages.ts"
import { randomProgram, buildProgram, shrinks } from "@tg/tensor/Random"
import * as H from "@tg/heuristics/Heuristics"
import * as DP from "@tg/core-uop/DeviceProfile"
import * as Print from "@tg/core-uop/Print"
const n = Number(process.argv[2] ?? 50), from = Number(process.argv[3] ?? 0)
const stage = (process.argv[4] ?? "kernel") as "kernel"
const opts = { cpu: { choose: (k: any) => H.choose(k, DP.wasm), hasGrid: false }, gpu: { choose: (k: any) => H.choose(k, DP.webgpuDefault), hasGrid: true }, none: { choose: () => [], hasGrid: true } , rgpu: { choose: (k: any) => S.randomOpts(cur, DP.webgpuDefault)(k), hasGrid: true }, rsub: { choose: (k: any) => S.randomOpts(cur, DP.webgpuDefault)(k), hasGrid: true, subgroupSize: 8 }, rcpu: { choose: (k: any) => S.randomOpts(cur, DP.wasm)(k), hasGrid: false } }[process.argv[5] ?? "none"]!
let cur = 0
const fails = (r: any): string | undefined => {
  const want = S.runTensor(r)
  try { return S.difference(r, want, S.runSchedule(r, S.scheduled(r), S.stages[stage](opts as any))) } catch (e: any) { return "throws " + (e.stack ?? e.message).slice(0, 600) }
}
let bad = 0, steps = 0
const t0 = performance.now()
for (let seed = from; seed < from + n; seed++) {
  cur = seed
  const r = randomProgram(seed, Number(process.argv[6] ?? 12))
  const f = fails(r)
  try { steps += S.scheduled(r).steps.length } catch {}
  if (f !== undefined) {
    bad++
    if (bad <= 2) {
      const kind = f.slice(0, 12)
      let m: any = r.steps, again = true
      while (again) { again = false; for (const c of shrinks(m)) { try { if (fails(buildProgram(c))?.slice(0, 12) === kind) { m = c; again = true; break } } catch {} } }
      const p = buildProgram(m)
      console.log("SEED", seed, f, "\n->", fails(p))
      console.log(Print.graph(p.program.sink))
      try { for (const s of S.scheduled(p).steps as any) console.log(s.name, s.ast ? Print.expression(s.ast) : "") } catch {}
    }
  }
}
console.log({ n, bad, steps, ms: Math.round(performance.now() - t0) })
