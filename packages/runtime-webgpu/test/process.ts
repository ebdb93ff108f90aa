// Run by a test: uses the device, then ends because nothing keeps it alive.
import { Device } from "@tg/runtime/Device"
import { Effect } from "effect"
import * as Testing from "../src/Testing.ts"

const main = Effect.scoped(Effect.gen(function*() {
  const device = yield* Device
  const buffer = yield* device.allocate(4, "bytes")
  yield* device.write(buffer, new Uint8Array([1, 2, 3, 4]))
  return yield* device.read(buffer)
}))

console.log(JSON.stringify(Array.from(await Effect.runPromise(Effect.provide(main, Testing.layer)))))
