/** A token in a long context: heads that share keys are a tile of each workgroup. */
import { assert, it } from "@effect/vitest"
import { h200, Profile } from "@tg/core-uop/DeviceProfile"
import * as Shape from "@tg/core-uop/Shape"
import { Checked } from "@tg/core-uop/Spec"
import { loopsBetween } from "@tg/core-uop/Workgroup"
import { isCascade } from "@tg/heuristics/Cascades"
import * as Heuristics from "@tg/heuristics/Heuristics"
import * as Loops from "@tg/postrange/Loops"
import * as Reference from "@tg/runtime/Reference"
import type { RandomProgram } from "@tg/tensor/Random"
import type { Tensor } from "@tg/tensor/Tensor"
import { Effect, Layer } from "effect"
import { Pipeline } from "../src/Pipeline.ts"
import { difference, runSchedule, runTensor, stages } from "./support/stages.ts"
import { model } from "./support/stranger.ts"

const made = model({ context: 16384, heads: 32, keyHeads: 4, size: 32, width: 64 })

const idOf = ({ node }: Tensor): number => (node.arg as { readonly id: number }).id

/** The program behind so many tokens, as random programs are described. */
const behind = (start: number): RandomProgram => {
  const described = (x: Tensor) => {
    const shape = x.shape.map(Number)
    return { id: idOf(x), dtype: x.dtype, shape, capacity: shape }
  }
  return {
    steps: [],
    program: made.program,
    inputs: made.buffers.filter((x) => x !== made.out).map((x, i) => ({
      ...described(x),
      data: Float32Array.from({ length: Shape.maxElements(x.shape) }, (_, k) => Math.sin(k * 0.7 + i) / 4)
    })),
    // sums of some hundred terms in another order
    outputs: [{ ...described(made.out), tolerance: 1e-4 }],
    vars: { start }
  }
}

it.effect("has the values of the equation at every stage", () =>
  Effect.gen(function*() {
    const { schedule } = yield* Pipeline
    const plan = yield* schedule(made.sink)
    const choose = (kernel: Parameters<typeof Heuristics.choose>[0]) => Heuristics.choose(kernel, h200)
    const pieces = plan.steps.find(({ name }) => name === "attention_4_2_4_64_40")
    if (pieces?.kind !== "kernel") return assert.fail(plan.steps.map(({ name }) => name).join(", "))
    assert.isTrue(isCascade(pieces.ast))
    // groups of heads and pieces tell workgroups apart
    const apart = [...loopsBetween(pieces.ast)].map(Loops.toLoop)
    assert.deepStrictEqual(apart.filter(({ isSymbolic }) => !isSymbolic).map(({ size }) => size), [4, 2])
    const options = { choose, hasGrid: true, subgroupSize: 32, profile: h200 }
    for (const [stage, start] of [["opted", 300], ["linear", 63], ["linear", 300]] as const) {
      const program = behind(start)
      const got = runSchedule(program, plan, stages[stage](options))
      assert.isUndefined(difference(program, runTensor(program), got), `${stage}, behind ${start}`)
    }
  }).pipe(
    Effect.provide(Pipeline.layer.pipe(Layer.provide([Reference.renderer(), Profile.layer(h200)]))),
    Effect.provideService(Checked, true)
  ))
