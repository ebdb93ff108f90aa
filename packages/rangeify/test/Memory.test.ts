import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { randomProgram } from "@tg/tensor/Random"
import { planMemory } from "../src/Memory.ts"
import type { Schedule } from "../src/Schedule.ts"
import { scheduled } from "./support/programs.ts"

const ast = new Arena().make("SINK", DType.none)

/** A schedule of the memory use alone: for each step, the temporaries it touches. */
const using = (
  sizes: ReadonlyArray<number>,
  steps: ReadonlyArray<ReadonlyArray<number>>,
  results: ReadonlyArray<number> = []
): Schedule => ({
  steps: steps.map((ids) => ({
    kind: "kernel",
    name: "k",
    ast,
    args: ids.map((id) => ({ kind: "temporary", id } as const)),
    boundaries: []
  })),
  temporaries: sizes.map((bytes) => ({ bytes })),
  results
})

/** The steps at which each temporary is alive: from its first use to its last, results to the end. */
const lives = (schedule: Schedule): ReadonlyArray<ReadonlySet<number>> =>
  schedule.temporaries.map((_, id) => {
    const used = schedule.steps.flatMap((step, i) =>
      step.args.some((a) => a.kind === "temporary" && a.id === id) ? [i] : []
    )
    if (used.length === 0) return new Set()
    const end = schedule.results.includes(id) ? schedule.steps.length : used.at(-1)!
    return new Set(Array.from({ length: end - used[0]! + 1 }, (_, i) => used[0]! + i))
  })

/** No two temporaries that are alive together share a block, and every block is large enough. */
const check = (schedule: Schedule): void => {
  const plan = planMemory(schedule)
  const alive = lives(schedule)
  schedule.temporaries.forEach((a, i) => {
    if (alive[i]!.size === 0) return
    assert.isAtLeast(plan.blocks[plan.blockOf[i]!]!, a.bytes)
    for (let j = 0; j < i; j++) {
      if (plan.blockOf[i] !== plan.blockOf[j]) continue
      assert.isTrue(alive[i]!.isDisjointFrom(alive[j]!), `${i} and ${j} share block ${plan.blockOf[i]}`)
    }
  })
  const used = schedule.temporaries.filter((_, i) => alive[i]!.size > 0)
  const total = (bytes: ReadonlyArray<number>): number => bytes.reduce((n, b) => n + b, 0)
  assert.isAtMost(total(plan.blocks), total(used.map((t) => t.bytes)))
}

describe("Memory", () => {
  it("shares a block between lives that do not overlap", () => {
    const plan = planMemory(using([16, 32, 16], [[0], [0, 1], [1, 2]]))
    assert.deepStrictEqual(plan, { blockOf: [0, 1, 0], blocks: [16, 32] })
  })

  it("does not reuse a temporary's block in the step that reads it last", () => {
    assert.deepStrictEqual(planMemory(using([16, 16], [[0], [0, 1]])).blockOf, [0, 1])
  })

  it("takes the smallest block that is large enough", () => {
    const plan = planMemory(using([64, 16, 32, 8, 12], [[0, 1, 2], [3], [4]]))
    assert.deepStrictEqual(plan.blockOf, [0, 1, 2, 1, 1])
    assert.deepStrictEqual(plan.blocks, [64, 16, 32])
  })

  it("grows the largest free block when none is large enough", () => {
    assert.deepStrictEqual(planMemory(using([16, 32, 40], [[0, 1], [2]])), { blockOf: [0, 1, 1], blocks: [16, 40] })
  })

  it("keeps results to the end", () => {
    assert.deepStrictEqual(planMemory(using([16, 16], [[0], [1]], [0])).blockOf, [0, 1])
    assert.deepStrictEqual(planMemory(using([16, 16], [[0], [1]], [])).blockOf, [0, 0])
  })

  it("gives no memory to what no step touches", () => {
    assert.deepStrictEqual(planMemory(using([16, 16], [[1]])), { blockOf: [-1, 0], blocks: [16] })
  })

  it("never lets two live temporaries overlap: random uses", () => {
    let state = 1
    const next = (n: number): number => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0
      return Math.floor(state / 2 ** 32 * n)
    }
    for (let run = 0; run < 300; run++) {
      const sizes = Array.from({ length: 1 + next(12) }, () => 4 * (1 + next(40)))
      const steps = Array.from(
        { length: 1 + next(16) },
        () => Array.from({ length: next(4) }, () => next(sizes.length))
      )
      const touched = new Set(steps.flat())
      check(using(sizes, steps, [...touched].filter(() => next(8) === 0)))
    }
  })

  it("never lets two live temporaries overlap: schedules of random programs", () => {
    for (let seed = 0; seed < 60; seed++) check(scheduled(randomProgram(seed, 30).program.sink))
  })
})
