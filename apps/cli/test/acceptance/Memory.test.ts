import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { fromModel } from "@tg/engine/Engine"
import * as ModelFile from "@tg/engine/ModelFile"
import { fromBytes } from "@tg/gguf/ByteSource"
import { Device } from "@tg/runtime/Device"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Effect, Stream } from "effect"
import * as Devices from "../../src/Devices.ts"

const bytes = new Uint8Array(readFileSync(new URL("../../models/tg-tiny-Q4_0.gguf", import.meta.url)))

/** Loads tg-tiny, reads a prompt, writes a few tokens each way, and closes it. Answers with the most memory it had. */
const use = Effect.gen(function*() {
  const device = yield* Device
  const source = fromBytes("tiny", bytes)
  const model = yield* ModelFile.open(source)
  const engine = yield* fromModel(source, model, { context: 128, prepare: ["last", "decode"] })
  const tokens = [1261, 1263, 1266, 285, 260]
  yield* Stream.runDrain(engine.generate({ tokens, maxTokens: 4 }))
  yield* Stream.runDrain(engine.generate({
    tokens,
    maxTokens: 4,
    sampling: { temperature: 1, topK: 5, topP: 0.9, minP: 0.1, seed: 1 }
  }))
  yield* Stream.runDrain(engine.logits(tokens))
  return device.allocatedBytes()
}).pipe(Effect.scoped)

const test = (choice: Devices.Choice) =>
  it.live("memory of the device is as before after each of ten models", () =>
    Effect.gen(function*() {
      const device = yield* Device
      const before = device.allocatedBytes()
      for (let i = 0; i < 10; i++) {
        assert.isAbove(yield* use, before + 7_000_000)
        assert.strictEqual(device.allocatedBytes(), before)
      }
    }).pipe(Effect.provide(Devices.layer(choice))), 300_000)

describe("on wasm", () => test("wasm"))
describe.skipIf((await availableAdapter()) === undefined)("on WebGPU", () => test("webgpu"))
