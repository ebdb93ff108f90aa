import { randomSteps, buildProgram, shrinks } from "@tg/tensor/Random"
import { schedule, RangeifyError } from "./src/Rangeify.ts"
import { kernels } from "./src/Rangeify.ts"
import * as Print from "@tg/core-uop/Print"
const limit = Number(process.argv[3]), seed = Number(process.argv[2])
const fails = (st: any) => schedule(buildProgram(st).program.sink, { maxStorageBuffers: limit }) instanceof RangeifyError
let best: any = randomSteps(seed, 40), again = true
while (again) { again = false; for (const c of shrinks(best)) if (fails(c)) { best = c; again = true; break } }
const p = buildProgram(best)
console.log(String(schedule(p.program.sink, { maxStorageBuffers: limit })))
console.log(Print.graph(p.program.sink))
