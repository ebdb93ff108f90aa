import { assert, describe, it } from "@effect/vitest"
import type { Step } from "@tg/rangeify/Schedule"
import * as Cuts from "../src/internal/cuts.ts"
import { missedMicros } from "../src/internal/instructionCache.ts"

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
  const plans = Cuts.plans(runs, weigh, { code: { bytesOf: () => bytes, kernelOf }, cutters: [Cuts.cheapest(0)] })
  return { plans, best: plans.reduce((a, b) => b.micros < a.micros ? b : a) }
}

const twelve = Array.from({ length: 12 }, (_, i) => i)

/** Half of them are of one kind, half of another. */
const mixed = layers(twelve.map((i) => i % 2 === 0 ? "q4" : "q6"))

describe("launches of layers", () => {
  it("are one each, of programs of their own where their code is held, or all are alike", () => {
    for (const { best, plans } of [planned(mixed, 1000), planned(layers(twelve.map(() => "q4")), 18_000)]) {
      assert.deepStrictEqual([best.launches, best.merges, plans.length], [12, false, 1])
    }
  })

  it("are variants of one program where the instruction cache does not hold one for each kind", () => {
    // as phases 36 KB of code a step: 4 steps are held, two programs of 4 are not
    const { best, plans } = planned(mixed, 18_000)
    assert.deepStrictEqual([best.launches, best.merges], [12, true])
    const [apart, merged] = plans
    assert.deepStrictEqual(merged!.cuts, apart!.cuts)
    assert.isAbove(apart!.micros - merged!.micros, 12)
  })

  it("are of programs of their own where most of their steps differ", () => {
    const kernels = twelve.flatMap((i) => ["q", "down", "out"].map((name) => `${name}${i % 2}`).concat("attention"))
    assert.strictEqual(planned(kernels, 18_000).plans.length, 1)
  })

  it("fetch no code again that is held until it runs again, and all of it where others took its place", () => {
    const code = (bytes: number) => ({ bytesOf: () => bytes, kernelOf: (step: number) => step % 4 })
    const launches = twelve.map((layer) => [4 * layer, 4 * layer + 1])
    // kernels 0 and 1 in one launch, 2 and 3 in another, in turns
    const turns = launches.map(([a, b], layer) => layer % 2 === 0 ? [a!, b!] : [a! + 2, b! + 2])
    assert.strictEqual(missedMicros(turns, code(19_000), false), 0)
    const missed = missedMicros(turns, code(21_000), false)
    assert.closeTo(missed, 24 * 21_000 * 1.6 * 1.25 * 7.3 / 137_000, 1e-6)
    assert.strictEqual(missedMicros(launches, code(21_000), false), 0)
  })
})
