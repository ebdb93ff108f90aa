import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { StepsTogether } from "@tg/engine/Ahead"
import { fromModel } from "@tg/engine/Engine"
import * as Random from "@tg/engine/Random"
import * as Sampler from "@tg/engine/Sampler"
import * as Shaping from "@tg/engine/Shaping"
import { fromBytes } from "@tg/gguf/ByteSource"
import { Jit } from "@tg/jit/Jit"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Effect } from "effect"
import * as Devices from "../../src/Devices.ts"
import { tg } from "../support/run.ts"
import { isFull } from "./support/full.ts"
import { open } from "./support/open.ts"

const path = new URL("../../../../test/vectors/oracle/c03.gguf", import.meta.url)
const source = fromBytes("c03", new Uint8Array(readFileSync(path)))
const prompt = [1, 2, 3, 4]
const wild: Sampler.Settings = { temperature: 1.2, topK: 0, topP: 1, minP: 0, seed: 7 }
const ways: ReadonlyArray<Sampler.Settings> = [
  wild,
  Sampler.greedy,
  { ...wild, topK: 40, topP: 0.9, minP: 0.01 }
]

describe.skipIf((await availableAdapter()) === undefined)("decoding that runs ahead on WebGPU", () => {
  it.live("takes the tokens that the host takes step by step, whatever the settings, masked or not", () =>
    Effect.gen(function*() {
      const { session } = yield* fromModel(source, yield* open(source), { context: 128 })
      // every third token, other ones each time; and none in between
      const thirds = (position: number) =>
        position % 4 === 3
          ? undefined
          : Uint32Array.from({ length: Math.ceil(session.vocabulary / 32) }, () => 0x49249249 << (position % 3))
      for (const maskAt of [() => undefined, thirds]) {
        // settings change in the middle of a text
        const settings = ways.flatMap((way) => Array.from({ length: 5 }, () => way))
        const ahead = [...prompt]
        for (const way of settings) ahead.push(yield* session.next(ahead, way, maskAt(ahead.length)))
        yield* session.reset
        const host = [...prompt]
        for (const way of settings) {
          const logits = yield* session.advance(host)
          const mask = maskAt(host.length)
          const row = mask === undefined ? logits : Shaping.masked(logits, mask)
          host.push(Sampler.sample(row, way, Random.words(way.seed, host.length))!)
        }
        assertEquals(ahead, host)
        yield* session.reset
      }
    }).pipe(
      // one, two and then four steps in a submission
      Effect.provideService(StepsTogether, 4),
      Effect.scoped,
      Effect.provide(Devices.layer("webgpu"))
    ))

  it.live("has nothing left to compile once it was prepared", () =>
    Effect.gen(function*() {
      const jit = yield* Jit
      let prepared = 0
      const counted = Jit.of({
        ...jit,
        prepare: (...args) => Effect.tap(jit.prepare(...args), () => Effect.sync(() => prepared++))
      })
      const { session } = yield* fromModel(source, yield* open(source), {
        context: 128,
        prepare: ["last", wild]
      }).pipe(Effect.provideService(Jit, counted))
      const before = prepared
      // what is prepared is the program of a question's length; a GPU has others for fewer tokens
      const tokens = [...prompt, ...prompt, ...prompt]
      for (let i = 0; i < 3; i++) tokens.push(yield* session.next(tokens, wild))
      assert.strictEqual(prepared, before)
    }).pipe(Effect.scoped, Effect.provide(Devices.layer("webgpu"))))

  // a model more to compile, for draws that the first test compares already
  if (isFull) {
    it.live("equal seeds print equal texts, on a GPU as without one", () =>
      Effect.gen(function*() {
        const told = (device: string) =>
          Effect.map(
            tg([
              "generate",
              "--device",
              device,
              "--raw",
              "-n",
              "8",
              "--temperature",
              "0.8",
              "--seed",
              "3",
              "Once upon"
            ]),
            ({ stdout }) => stdout
          )
        const text = yield* told("webgpu")
        assert.isAbove(text.length, 10)
        assert.strictEqual(yield* told("wasm"), text)
      }))
  }
})
