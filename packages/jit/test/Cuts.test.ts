import { assert, describe, it } from "@effect/vitest"
import type { Step } from "@tg/rangeify/Schedule"
import * as Cuts from "../src/internal/cuts.ts"

/** Kernels of layers in their order: each of three, of which the second one is of one kind or another; attention ends what can be one launch. */
const layers = (kinds: ReadonlyArray<string>): ReadonlyArray<string> =>
  kinds.flatMap((kind) => ["q", kind, "out", "attention"])

/** A launch takes so many microseconds, and each boundary between phases fewer. */
const dispatch = 2
const boundary = 1

const planned = (kernels: ReadonlyArray<string>, bytes: number) => {
  const steps = kernels.map((name): Step => ({ kind: "custom", name } as Step))
  const isOne = (from: number, to: number): boolean => !kernels.slice(from, to - 1).includes("attention")
  const weigh: Cuts.Weigh = (from, to) =>
    isOne(from, to)
      ? { micros: dispatch + boundary * (to - from - 1), launch: undefined }
      : { why: "others would wait for too much" }
  const runs = Cuts.runsOf(steps, (from, to) => kernels.slice(from, to).join(), weigh)
  const kernelOf = (step: number): number => kernels.indexOf(kernels[step]!)
  const usesOf = (step: number): number => kernels.filter((name) => name === kernels[step]).length
  const cutters = Cuts.aparts(usesOf).map((isApart) => Cuts.cheapest(0, isApart))
  const plans = Cuts.plans(runs, weigh, { code: { bytesOf: () => bytes, kernelOf }, cutters })
  return { plans, best: plans.reduce((a, b) => b.micros < a.micros ? b : a) }
}

const twelve = Array.from({ length: 12 }, (_, i) => i)

describe("launches of layers", () => {
  it("are one each where their code is held, or all are alike", () => {
    const held = planned(layers(twelve.map((i) => i % 2 === 0 ? "q4" : "q6")), 1000)
    assert.strictEqual(held.best.launches, 12)
    const alike = planned(layers(twelve.map(() => "q4")), 20_000)
    assert.strictEqual(alike.best.launches, 12)
    // there is nothing to keep apart
    assert.strictEqual(alike.plans.length, 1)
  })

  it("keep apart what some layers have and others have not, where the code of all kinds is more than the instruction cache holds", () => {
    const { best, plans } = planned(layers(twelve.map((i) => i % 2 === 0 ? "q4" : "q6")), 20_000)
    assert.isAbove(plans.length, 1)
    assert.isAbove(best.launches, 12)
    // a layer's q, its kind, and the rest of it
    assert.deepStrictEqual(
      best.cuts.map((cuts, layer) => cuts.map((step) => step - 4 * layer)),
      twelve.map(() => [0, 1, 2])
    )
    const [together] = plans
    assert.deepStrictEqual(together!.launches, 12)
    // 160 KB of code of each kind in turns, and 4 us a layer for two more launches
    assert.isBelow(best.micros, together!.micros)
  })
})
