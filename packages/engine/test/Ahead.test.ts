import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect } from "effect"
import * as Ahead from "../src/Ahead.ts"
import * as Sampler from "../src/Sampler.ts"

const pending: Ahead.Submission = { steps: 1, read: Effect.runFork(Effect.succeed([])) }

describe("steps that are submitted together", () => {
  it("take some ten milliseconds, and are eight at most", () => {
    assertEquals([undefined, 40, 6, 2.7, 1.5, 0.5, 0.01].map((millis) => Ahead.togetherOf("auto", millis)), [
      1,
      1,
      1,
      3,
      6,
      8,
      8
    ])
  })

  it("are as many as was asked for, within what the device draws at once", () => {
    assertEquals([0, 1, 5, 16, 99].map((asked) => Ahead.togetherOf(asked, 100)), [1, 1, 5, 16, 16])
  })

  it("know the time of a step from those that came back, the later ones more", () => {
    const pace = new Ahead.Pace()
    assert.isUndefined(pace.stepMillis)
    pace.add(30, 10)
    assert.strictEqual(pace.stepMillis, 3)
    for (let i = 0; i < 100; i++) pace.add(8, 8)
    assert.closeTo(pace.stepMillis!, 1, 0.01)
  })

  it("begin with one and are twice as many each time, two submissions at a time", () => {
    const running = Ahead.begin(Sampler.greedy, [1, 2, 3])
    assert.strictEqual(running.position, 2)
    const submit = (room: number, together: number): number => {
      const steps = Ahead.stepsNow(running, { room, together })
      if (steps > 0) {
        running.pending.push({ ...pending, steps })
        running.steps = steps
      }
      return steps
    }
    assertEquals([submit(100, 6), submit(100, 6), submit(100, 6)], [1, 2, 0])
    running.pending.shift()
    assertEquals([submit(100, 6), submit(100, 6)], [4, 0])
    running.pending.shift()
    assertEquals([submit(100, 6), submit(100, 6)], [6, 0])
    running.pending.shift()
    // no further than the context
    assertEquals(submit(2, 6), 2)
    running.pending.shift()
    assertEquals(submit(0, 6), 0)
  })

  it("are three submissions where each is a single step", () => {
    const running = Ahead.begin(Sampler.greedy, [1])
    assert.strictEqual(
      Ahead.stepsNow({ ...running, steps: 1, pending: [pending, pending] }, { room: 9, together: 1 }),
      1
    )
    assert.strictEqual(
      Ahead.stepsNow({ ...running, steps: 1, pending: [pending, pending, pending] }, { room: 9, together: 1 }),
      0
    )
  })
})
