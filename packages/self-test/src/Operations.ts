/** The contract of devices: memory, launches, barriers, and every operation that a renderer renders. */
import { Pipeline } from "@tg/jit/Pipeline"
import * as Stages from "@tg/jit/Stages"
import * as Conformance from "@tg/runtime/Conformance"
import type { UOp } from "@tg/core-uop/UOp"
import { Effect } from "effect"
import type { Case } from "./Case.ts"

/** Compiles a kernel as it is, without choosing opts. */
const compile = (kernel: UOp) =>
  Effect.gen(function*() {
    const pipeline = yield* Pipeline
    const { name } = kernel.arg as { readonly name: string }
    const { linear } = yield* Stages.ofMember(pipeline, name, kernel, [])
    return yield* pipeline.render(name, linear)
  })

/** The cases. */
export const cases: ReadonlyArray<Case> = Conformance.cases(compile).map(({ effect, name }) => ({
  family: "operations",
  name,
  check: effect
}))
