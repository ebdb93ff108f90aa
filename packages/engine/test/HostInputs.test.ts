import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Rotary from "@tg/model-parts/Rotary"
import { Device } from "@tg/runtime/Device"
import * as Reference from "@tg/runtime/Reference"
import { Effect } from "effect"
import * as HostInputs from "../src/HostInputs.ts"
import { cacheRows } from "../src/StepProgram.ts"
import { floatsOf } from "../src/Words.ts"

const frequencies = Rotary.frequencies({ base: 10000, rotated: 8 })
const row = 8

describe("inputs of all positions of a context", () => {
  it.effect("are what the host computes for each position, and are computed once, when they are reached", () =>
    Effect.gen(function*() {
      const asked: Array<number> = []
      const model: HostInputs.Source = {
        hostWeights: [],
        inputs: [{ label: "cos_sin", row: [4, 2] }],
        inputsAt: (positions) => {
          asked.push(...positions)
          return [Rotary.table(frequencies, 1, positions)]
        }
      }
      const context = 600
      const { bound: [[, buffer] = assert.fail("no buffer")], reach } = yield* HostInputs.tables(
        model,
        new Map(),
        context
      )
      assert.strictEqual(buffer.bytes, 4 * row * cacheRows(context))
      const known = function*(positions: number) {
        const bytes = yield* (yield* Device).read(buffer)
        const values = floatsOf(bytes).slice(0, row * positions)
        assertEquals([...values], [...Rotary.table(frequencies, 1, Array.from({ length: positions }, (_, i) => i))])
      }
      yield* reach(1)
      const first = asked.length
      yield* known(first)
      yield* reach(first)
      assert.strictEqual(asked.length, first)
      yield* reach(first + 1)
      assert.strictEqual(asked.length, 2 * first)
      // a tile may end behind the context, and nothing behind the table
      yield* reach(10 * context)
      assertEquals(asked, Array.from({ length: cacheRows(context) }, (_, i) => i))
      yield* known(cacheRows(context))
    }).pipe(Effect.scoped, Effect.provide(Reference.layer)))
})
