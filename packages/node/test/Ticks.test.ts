import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { setImmediate as ownImmediate } from "node:timers"
import * as Ticks from "../src/Ticks.ts"

/** A loop whose turns are run by hand, with a clock that each look moves on by 1 us. */
const loop = () => {
  let micros = 0
  const turns: Array<() => void> = []
  const ran: Array<readonly [name: string, at: number]> = []
  const later = Ticks.paced(
    (run) => {
      turns.push(run)
      return setImmediate(() => {})
    },
    () => (micros += 1) / 1000
  )
  return {
    later,
    note: (name: string) => () => void ran.push([name, micros]),
    ran,
    /** How long a turn takes. */
    turn: () => {
      const before = micros
      turns.splice(0).forEach((run) => run())
      return micros - before
    }
  }
}

describe("ticks", () => {
  it("are apart, and keep no turn for long", () => {
    const { later, note, ran, turn } = loop()
    later(Ticks.asTick(note("first")))
    later(Ticks.asTick(note("second")))
    later(note("other"))
    assert.deepStrictEqual(ran, [])
    const took = [turn(), turn(), turn()]
    later(note("another"))
    while (ran.length < 4) took.push(turn())
    assert.deepStrictEqual(ran.map(([name]) => name), ["first", "other", "another", "second"])
    const [first, , , second] = ran.map(([, at]) => at) as [number, number, number, number]
    assert.isAtLeast(second - first, 50)
    assert.isAtMost(Math.max(...took), 20)
    // fewer turns than looks at the clock
    assert.isAtMost(took.length, 10)
  })

  it("are functions that no JavaScript made, or that stand for one", () => {
    const own = (): void => {}
    assert.isFalse(Ticks.isTick(own))
    assert.isTrue(Ticks.isTick(Math.random))
    assert.isTrue(Ticks.isTick(Ticks.asTick(own)))
  })

  it.effect("are paced as long as a device lives, unless somebody else has turns run", () => {
    const before = globalThis.setImmediate
    const here = Effect.sync(() => globalThis.setImmediate)
    const inside = here.pipe(Effect.provide(Ticks.layer))
    return Effect.gen(function*() {
      globalThis.setImmediate = ownImmediate
      assert.notStrictEqual(yield* inside, ownImmediate)
      assert.strictEqual(yield* here, ownImmediate)
      const other = Object.assign(() => ownImmediate(() => {}), ownImmediate)
      globalThis.setImmediate = other
      assert.strictEqual(yield* inside, other)
    }).pipe(Effect.ensuring(Effect.sync(() => {
      globalThis.setImmediate = before
    })))
  })
})
