import * as DType from "@tg/core-uop/DType"
import * as Print from "@tg/core-uop/Print"
import * as Program from "@tg/tensor/Program"
import * as Nn from "@tg/tensor/Nn"
import * as T from "@tg/tensor/Tensor"
import { Build, scheduled, runTensor, runSchedule } from "./test/support/programs.ts"
import { graphs } from "./test/support/graphs.ts"
for (const [name, make] of Object.entries(graphs)) {
  const b = new Build()
  const p = Program.make(make(b))
  try { const s = scheduled(p.sink); console.log(`  "${name}": ${s.steps.length},`, s.steps.map(s=>s.name).join(" "), s.temporaries.length)
   const w = runTensor(p.sink, {n:3, at: 2}), g = runSchedule(p.sink, s, {n:3, at: 2})
   for (const [id, d] of w) for (let i = 0; i < d.length; i++) if (!(Math.abs(d[i]!-g.get(id)![i]!) <= 1e-4*Math.abs(d[i]!)+1e-5) && !Object.is(d[i], g.get(id)![i])) { console.log("DIFF", name, id, i, d[i], g.get(id)![i]); break }
  } catch (e) { console.log(name, e) }
}
