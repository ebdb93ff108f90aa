/** What the device says about the workgroups of persistent launches: whether they met. */
import { meetingWords } from "@tg/core-uop/Phases"
import { type DeviceBuffer, DeviceError, type DeviceShape } from "@tg/runtime/Device"
import { Effect } from "effect"
import type { Service } from "./Persistent.ts"

const wordBytes = 4

/** Fails if a workgroup has given up. */
export const settle = (
  device: DeviceShape,
  meeting: DeviceBuffer,
  persistent: Service
): Effect.Effect<void, DeviceError> =>
  Effect.gen(function*() {
    const bytes = yield* device.read(meeting, wordBytes * meetingWords.gaveUp, wordBytes)
    if (bytes.every((byte) => byte === 0)) return
    const why = `workgroups of a persistent launch did not all run at once on ${device.profile.name}`
    if (persistent.refused === undefined) {
      persistent.refused = why
      yield* persistent.onRefused(why, device.profile)
    }
    return yield* new DeviceError({
      reason: "BarriersFailed",
      message: `${why}; kernels are launched one by one from now on: ask again, or use --no-persistent`
    })
  })
