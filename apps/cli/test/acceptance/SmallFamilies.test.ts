import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Engine, fromModel } from "@tg/engine/Engine"
import { fromBytes } from "@tg/gguf/ByteSource"
import { Effect, Layer } from "effect"
import * as Devices from "../../src/Devices.ts"
import { open } from "./support/open.ts"
import * as Oracle from "./support/oracle.ts"
import * as Small from "./support/small.ts"

const expected = new Float32Array(
  Uint8Array.from(
    readFileSync(new URL("../../../../test/vectors/small-families/logits.f32.bin", import.meta.url))
  ).buffer
)
const names = Object.keys(Small.models)
const row = expected.length / names.length / Small.rows.length

const logits = (
  name: string,
  device: Devices.Choice,
  { cache, ...options }: Setting,
  model = Small.models[name]!
) =>
  Effect.map(
    Oracle.logitsOf(Small.tokens),
    (rows) => Float32Array.from(Small.rows.flatMap((at) => Array.from(rows[at]!)))
  ).pipe(
    Effect.provide(
      Layer.effect(
        Engine,
        Effect.gen(function*() {
          const bytes = fromBytes(name, Small.file(model))
          return yield* fromModel(bytes, yield* open(bytes), { cache, activations: "float", ...options })
        })
      ).pipe(Layer.provideMerge(Devices.layer(device)))
    )
  )

interface Setting {
  readonly cache: Oracle.Cache
  readonly chunk?: number
  readonly batchFrom?: number
}

const expectedOf = (name: string): Float32Array => {
  const size = Small.rows.length * row
  return expected.subarray(names.indexOf(name) * size, (names.indexOf(name) + 1) * size)
}

/** What arithmetic of float32 leaves; the half precision table of GELU that llama.cpp has moves Gemma by 4e-4. */
const near = (name: string, found: Float32Array, { cache }: Setting): void => {
  const { largest, rms } = Oracle.distance(found, expectedOf(name))
  const limit = Oracle.limits[cache]
  assert.isAtMost(rms, limit.rms)
  assert.isAtMost(largest, limit.largest)
}

const settings: ReadonlyArray<readonly [string, Setting]> = [
  ["as the device has it", { cache: "f32" }],
  ["token by token", { cache: "f16", chunk: 1, batchFrom: Infinity }]
]

describe("forms of models that the oracle's files do not have, as llama.cpp computes them, on wasm", () => {
  for (const name of names) {
    for (const [what, setting] of settings) {
      it.live(`${name}: ${what}`, () =>
        Effect.map(logits(name, "wasm", setting), (found) => near(name, found, setting)))
    }
  }
})

describe("and on the reference device", () => {
  for (const name of process.env["TG_FULL"] === "1" ? names : ["llama, experts", "gemma3, windows alone"]) {
    it.live(
      name,
      () => Effect.map(logits(name, "reference", { cache: "f32" }), (found) => near(name, found, { cache: "f32" }))
    )
  }
})

describe("keys that scale angles or hide positions are seen in these logits", () => {
  const seen = [
    "llama, YaRN, keys of each head",
    "llama, linear scaling and factors",
    "qwen3, YaRN",
    "gemma3, windows alone"
  ]
  for (const name of seen) {
    it.live(name, () =>
      Effect.map(
        logits(name, "wasm", { cache: "f32" }, { ...Small.models[name]!, keys: {} }),
        (found) => assert.isAbove(Oracle.distance(found, expectedOf(name)).rms, 0.02)
      ))
  }
})
