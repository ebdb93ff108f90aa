import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { fromModel } from "@tg/engine/Engine"
import * as Sampler from "@tg/engine/Sampler"
import { fromBytes } from "@tg/gguf/ByteSource"
import { Device } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Effect } from "effect"
import * as Devices from "../../src/Devices.ts"
import { open } from "./support/open.ts"

const bytes = new Uint8Array(readFileSync(new URL("../../../../test/vectors/oracle/c03.gguf", import.meta.url)))

/** Loads a small model, reads a prompt, draws a few tokens, and closes it. Answers with the memory it had. */
const use = Effect.gen(function*() {
  const device = yield* Device
  const source = fromBytes("c03", bytes)
  const model = yield* open(source)
  const { session } = yield* fromModel(source, model, { context: 128, prepare: ["last"] })
  const tokens = [1, 2, 3, 4, 5]
  for (let i = 0; i < 3; i++) tokens.push(yield* session.next(tokens, { ...Sampler.greedy, temperature: 1 }))
  return device.allocatedBytes()
}).pipe(Effect.scoped)

const test = (choice: Devices.Choice) =>
  it.live("memory of the device is as before after each of ten models", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const before = device.allocatedBytes()
      for (let i = 0; i < 10; i++) {
        assert.isAbove(yield* use, before + 2_500_000)
        assert.strictEqual(device.allocatedBytes(), before)
      }
    }).pipe(Effect.provide(Devices.layer(choice))))

describe("on wasm", () => test("wasm"))
describe.skipIf((await availableAdapter()) === undefined)("on WebGPU", () => test("webgpu"))
