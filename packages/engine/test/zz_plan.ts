import * as StepPlan from "../src/StepPlan.ts"
import * as P from "@tg/core-uop/DeviceProfile"
import { Result } from "effect"
const t=performance.now()
const m = Result.getOrThrow(StepPlan.fromShape(process.argv[2]!))
const p = StepPlan.plan(m, {profile: P.h200, context: 1024, cache: "f16"}) as any
console.log(JSON.stringify({...p, kernels: undefined}))
console.table(p.kernels)
console.log(performance.now()-t)
