/** The acceptor against ajv, on values that fit and on values that nearly do. TG_FULL=1 tries 40 000 of them. */
import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import { Result } from "effect"
import { Acceptor, JsonSchema } from "../src/index.ts"
import { mutated, sample } from "./support/instances.ts"
import { randomDocument, randomFrom } from "./support/randomSchemas.ts"
import { spellings } from "./support/spellings.ts"

const wanted = 2000
const rounds = Array.from({ length: process.env["TG_FULL"] === "1" ? 20 : 1 }, (_, i) => i)

/** The schema without formats: ajv reads some of them otherwise, and the suite tries ours. */
const withoutFormats = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(withoutFormats)
  if (typeof schema !== "object" || schema === null) return schema
  return Object.fromEntries(
    Object.entries(schema).flatMap(([key, value]) => key === "format" ? [] : [[key, withoutFormats(value)]])
  )
}

/** What people's programs write: the tools of OpenAI, zod, pydantic. */
const written: ReadonlyArray<Record<string, unknown>> = [
  {
    type: "object",
    properties: {
      location: { type: "string", description: "A city" },
      unit: { type: ["string", "null"], enum: ["c", "f", null] },
      days: { type: "integer", minimum: 1, maximum: 14 }
    },
    required: ["location", "unit", "days"],
    additionalProperties: false
  },
  {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties: {
      id: { anyOf: [{ type: "string", minLength: 1 }, { type: "integer", exclusiveMinimum: 0 }] },
      tags: { default: [], type: "array", items: { type: "string", pattern: "^(?:a|ab|abc)+$" }, maxItems: 3 },
      pair: { type: "array", prefixItems: [{ type: "number" }, { type: "string" }], items: false, minItems: 2 },
      kind: { anyOf: [{ const: "a", type: "string" }, { const: 3, type: "number" }, { type: "null" }] }
    },
    required: ["id", "tags"],
    additionalProperties: false
  },
  {
    title: "Order",
    type: "object",
    $defs: {
      Item: {
        title: "Item",
        type: "object",
        properties: {
          name: { title: "Name", type: "string", maxLength: 5 },
          price: { title: "Price", type: "number", multipleOf: 0.5, minimum: 0 },
          parts: { type: "array", items: { $ref: "#/$defs/Item" }, default: [] }
        },
        required: ["name", "price"]
      }
    },
    properties: {
      items: { type: "array", items: { $ref: "#/$defs/Item" }, minItems: 1 },
      note: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
      grid: {
        type: "array",
        items: { type: "array", items: { type: "integer" }, minItems: 1, maxItems: 2 },
        maxItems: 2
      },
      extra: { type: "object", additionalProperties: { type: "integer" } }
    },
    required: ["items"]
  }
]

describe("values that nearly fit", () => {
  it.each(rounds)(
    `have a text where ajv takes them, and none where it does not: ${wanted} values, round %i`,
    (round) => {
      const counts = { valid: 0, invalid: 0, refused: 0 }
      for (let seed = 1000 * round + 1; counts.valid + counts.invalid < wanted; seed++) {
        const random = randomFrom(seed)
        const schema = (written[seed - 1] ?? withoutFormats(randomDocument(random))) as Record<string, unknown>
        const grammar = JsonSchema.compile(schema)
        if (Result.isFailure(grammar)) {
          counts.refused++
          continue
        }
        const validate = new Ajv2020({ strict: false }).compile(schema)
        let value: unknown
        for (let i = 0; i < (seed <= written.length ? 100 : 30); i++) {
          value = i % 3 === 0 ? sample(schema, random, schema) : mutated(value, random)
          const isValid = validate(value)
          const hasText = spellings(value).some((text) => Acceptor.accepts(grammar.success, text))
          assert.strictEqual(hasText, isValid, `seed ${seed}: ${JSON.stringify(value)} under ${JSON.stringify(schema)}`)
          counts[isValid ? "valid" : "invalid"]++
        }
      }
      console.log(counts)
      assert.isAbove(Math.min(counts.valid, counts.invalid), wanted / 5)
      assert.isBelow(counts.refused, wanted / 20)
    }
  )
})
