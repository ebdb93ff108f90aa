import { assert, describe, it } from "@effect/vitest"
import { meetingWords } from "@tg/core-uop/Phases"
import type { DeviceShape } from "@tg/runtime/Device"
import * as Reference from "@tg/runtime/Reference"
import { Effect } from "effect"
import { settled } from "../src/Jit.ts"
import * as Meeting from "../src/Meeting.ts"
import * as Persistent from "../src/Persistent.ts"

/** A device that takes a while to allocate. */
const slow = (): DeviceShape => {
  const device = Reference.make()
  return { ...device, allocate: (...asked) => Effect.andThen(Effect.yieldNow, device.allocate(...asked)) }
}

describe("the counters of barriers", () => {
  it.effect("are the same for programs that are bound at once: a barrier that gave up in any of them is seen", () =>
    Effect.gen(function*() {
      const device = slow()
      const persistent: Persistent.Service = { ...Persistent.off, mode: "on" }
      const { buffer, settle } = yield* Meeting.make(device, persistent)
      const [first, second] = yield* Effect.all([buffer, buffer], { concurrency: 2 })
      assert.strictEqual(first, second)
      const read = settled({ device, jit: { settle } }, [])
      yield* read
      yield* device.write(first, new Uint8Array(Uint32Array.of(264, 263).buffer), 4 * meetingWords.gaveUp)
      const { message, reason } = yield* Effect.flip(read)
      assert.strictEqual(reason, "BarriersFailed")
      assert.include(message, "a barrier that waited for 264 arrivals saw 263 on reference;")
      assert.isDefined(persistent.refused)
    }).pipe(Effect.scoped))
})
