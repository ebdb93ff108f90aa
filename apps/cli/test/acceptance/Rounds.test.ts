/** Drafts of a prediction block on WebGPU (TG_FULL=1): rounds that run ahead, and conversations in one step. */
import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Drafter from "@tg/engine/Drafter"
import { fromModel } from "@tg/engine/Engine"
import * as Parallel from "@tg/engine/Parallel"
import * as Sampler from "@tg/engine/Sampler"
import { fromBytes } from "@tg/gguf/ByteSource"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Effect, Schema } from "effect"
import * as Devices from "../../src/Devices.ts"
import { isFull } from "./support/full.ts"
import { open } from "./support/open.ts"

const vector = (name: string) =>
  readFileSync(new URL(`../../../../test/vectors/oracle-families/${name}`, import.meta.url))
const source = fromBytes("mtp01", new Uint8Array(vector("mtp01.gguf")))
const { drafts, next, prompt } = Schema.decodeUnknownSync(Schema.Struct({
  prompt: Schema.Array(Schema.Int),
  next: Schema.Int,
  drafts: Schema.Array(Schema.Int)
}))(JSON.parse(vector("mtp01.json").toString()))

const exact = { context: 96, cache: "f32", activations: "float" } as const
const drawn: Sampler.Settings = { temperature: 0.8, topK: 40, topP: 0.95, minP: 0, seed: 3 }

describe.skipIf(!isFull || (await availableAdapter()) === undefined)("drafts of the prediction block on WebGPU", () => {
  it.live("are verified in rounds that run ahead, and change no text", () =>
    Effect.gen(function*() {
      const { session } = yield* fromModel(source, yield* open(source), exact)
      for (const sampling of [Sampler.greedy, drawn]) {
        const first = yield* session.next(prompt, sampling)
        let text: ReadonlyArray<number> = [...prompt, first]
        for (let i = 0; i < 6; i++) {
          const round = yield* session.round(text, { guesses: [3, 2, 2, 1, 2, 3][i]!, sampling })
          if (round === undefined) assert.fail("no round")
          if (i === 0 && first === next) assertEquals(round.drafts, drafts.slice(0, 3))
          text = [...text, ...round.ids.slice(0, round.right + 1)]
        }
        yield* session.reset
        const plain = [...prompt]
        while (plain.length < text.length) plain.push(yield* session.next(plain, sampling))
        assertEquals(text, plain)
        yield* session.reset
      }
    }).pipe(
      Effect.provideService(Drafter.Drafter, Drafter.named("mtp")),
      Effect.scoped,
      Effect.provide(Devices.layer("webgpu"))
    ))

  it.live("are guessed for conversations in one step", () =>
    Effect.gen(function*() {
      const { counts, join } = yield* Parallel.open(source, yield* open(source), { ...exact, parallel: 3 })
      const found = yield* Effect.forEach([prompt, prompt.slice(0, 7), prompt], (start) =>
        Effect.gen(function*() {
          const steps = yield* join
          const text = [...start, yield* steps.next(start)]
          return { text, drafts: yield* steps.predict(text, 3) }
        }), { concurrency: "unbounded" })
      assertEquals(found.map(({ drafts }) => drafts.length), [3, 3, 3])
      assertEquals(found[0]!.drafts, drafts.slice(0, 3))
      assertEquals(found[2], found[0])
      assert.isBelow(counts().guesses, 3)
    }).pipe(
      Effect.provideService(Drafter.Drafter, Drafter.named("mtp")),
      Effect.scoped,
      Effect.provide(Devices.layer("webgpu", {}))
    ))
})
