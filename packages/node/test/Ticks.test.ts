import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { setImmediate as ownImmediate } from "node:timers"
import * as Ticks from "../src/Ticks.ts"

/** A loop whose turns are run by hand, with a clock that each look moves on by 10 us. */
const loop = () => {
  let [micros, looks] = [0, 0]
  const turns: Array<() => void> = []
  const ran: Array<readonly [string, number]> = []
  const later = Ticks.paced(
    (run) => {
      turns.push(run)
      return setImmediate(() => {})
    },
    () => {
      looks++
      return (micros += 10) / 1000
    }
  )
  return {
    later,
    note: (name: string) => () => void ran.push([name, micros]),
    ran,
    looks: () => looks,
    turn: () => turns.splice(0).forEach((run) => run())
  }
}

describe("ticks", () => {
  it("are apart, and others are not kept", () => {
    const { later, looks, note, ran, turn } = loop()
    later(Ticks.asTick(note("first")))
    later(note("other"))
    later(Ticks.asTick(note("second")))
    assert.deepStrictEqual(ran, [])
    turn()
    assert.deepStrictEqual(ran.map(([name]) => name), ["first", "other", "second"])
    const [first, other, second] = ran.map(([, at]) => at) as [number, number, number]
    assert.strictEqual(other, first)
    assert.isAtLeast(second - first, 50)
    assert.isAtLeast(looks(), 5)
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
      const other = Object.assign(() => ownImmediate(() => {}), ownImmediate) as unknown as typeof ownImmediate
      globalThis.setImmediate = other
      assert.strictEqual(yield* inside, other)
    }).pipe(Effect.ensuring(Effect.sync(() => {
      globalThis.setImmediate = before
    })))
  })
})
