import { assert, describe, it } from "@effect/vitest"
import { webgpuDefault } from "@tg/core-uop/DeviceProfile"
import type { DeviceBuffer, DeviceShape } from "@tg/runtime/Device"
import { Effect } from "effect"
import * as Bench from "../src/internal/measure/bench.ts"

const bench = Bench.make({ profile: webgpuDefault } as DeviceShape, Infinity)

/** Two microseconds, and a quarter more for each step; of all readings one is as `wrong` has it. */
const deviceThat = (at: number, wrong: (micros: number) => number) => {
  let read = 0
  const timed = ({ steps = 0 }: Bench.Vars) => Effect.sync(() => read++ === at ? wrong(2 + steps / 4) : 2 + steps / 4)
  const prepared: Bench.Prepared = {
    replay: {
      timed,
      run: () => Effect.void,
      stage: () => {
        throw new Error("nothing is staged")
      }
    },
    last: {} as DeviceBuffer
  }
  return { prepared, runs: () => read }
}

describe("a slope", () => {
  const right = deviceThat(-1, (micros) => micros)

  it.effect("is what it is with any one reading that is far too short or far too long", () =>
    Effect.gen(function*() {
      const samples = yield* bench.twice(right.prepared)
      assert.deepStrictEqual(samples, [{ size: 256, micros: 66 }, { size: 1024, micros: 258 }])
      for (const factor of [0, 0.01, 100, -1e9, 1e9]) {
        for (let at = 0; at < right.runs(); at++) {
          const [few, many] = yield* bench.twice(deviceThat(at, (micros) => factor * micros).prepared)
          // a run that seems too short is followed by one of twice as many steps
          assert.include([256, 512], few.size, `reading ${at} times ${factor}`)
          assert.strictEqual((many.micros - few.micros) / (many.size - few.size), 1 / 4)
        }
      }
    }))

  it.effect("takes two readings more where one is far too short", () =>
    Effect.gen(function*() {
      const last = right.runs() - 1
      const wrong = deviceThat(last, () => 0)
      yield* bench.twice(wrong.prepared)
      assert.strictEqual(wrong.runs(), right.runs() + 2)
    }))
})
