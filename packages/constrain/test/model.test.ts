/** A real model under random schemas. TG_FULL=1 tries 300 of them. */
import { assert, it } from "@effect/vitest"
import * as Engine from "@tg/engine/Engine"
import * as ByteSource from "@tg/gguf/ByteSource"
import * as Models from "@tg/models/Models"
import * as Devices from "@tg/node/Devices"
import { Ajv2020 } from "ajv/dist/2020.js"
import addFormats from "ajv-formats"
import { Effect, Layer, Result, Stream } from "effect"
import { readFileSync } from "node:fs"
import { JsonSchema, Matcher, TokenTable } from "../src/index.ts"
import { bounded, randomDocument, randomFrom } from "./support/randomSchemas.ts"
import { tiny } from "./support/vocabularies.ts"

const wanted = 12
const rounds = Array.from({ length: process.env["TG_FULL"] === "1" ? 25 : 1 }, (_, i) => i + 1)
const maxTokens = 250

const bytes = new Uint8Array(readFileSync(new URL("../../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url)))
const model = Engine.Engine.layer({ context: 512 }).pipe(
  Layer.provide([ByteSource.ByteSource.layerBytes("tg-tiny", bytes), Models.layer]),
  Layer.provide(Devices.layer("wasm", { threads: 1 }))
)
const table = TokenTable.make(tiny())

/** The text of a seed's schema; undefined if the model had not come to an end after `maxTokens`. */
const generate = Effect.fnUntraced(function*(schema: unknown, seed: number) {
  const grammar = JsonSchema.compile(schema)
  if (Result.isFailure(grammar)) return "refused" as const
  const { generate, tokenizer } = yield* Engine.Engine
  const codec = yield* tokenizer
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, seed }
  const constraint = Matcher.make(grammar.success, table)
  const tokens = codec.encode("What is 17 + 25?")
  const parts = yield* Stream.runCollect(generate({ tokens, maxTokens, sampling, constraint }))
  const text = parts.map((part) => part.text).join("")
  return constraint.isComplete() ? { text } : "cut" as const
})

it.live.each(rounds)(
  `${wanted} texts of tg-tiny under random schemas validate with ajv: round %i`,
  (round) =>
    Effect.gen(function*() {
      const counts = { valid: 0, refused: 0, cut: 0 }
      for (let seed = 1000 * round; counts.valid < wanted; seed++) {
        const schema = bounded(randomDocument(randomFrom(seed)))
        const made = yield* generate(schema, seed)
        if (typeof made === "string") {
          counts[made]++
          continue
        }
        const ajv = addFormats.default(new Ajv2020({ strict: false }))
        const validate = ajv.compile(schema as object)
        const { text } = made
        assert.isTrue(validate(JSON.parse(text)), `seed ${seed}: ${text} under ${JSON.stringify(schema)}`)
        counts.valid++
      }
      console.log(`${counts.valid} texts validate; ${counts.refused} schemas refused, ${counts.cut} texts were cut`)
      assert.isBelow(counts.refused + counts.cut, wanted)
    }).pipe(Effect.provide(model))
)
