import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { Acceptor, JsonSchema } from "../src/index.ts"

const accepts = (schema: unknown, text: string): boolean =>
  Acceptor.accepts(Result.getOrThrow(JsonSchema.compile(schema)), text)

const refusal = (schema: unknown): string => {
  const found = JsonSchema.compile(schema)
  return Result.isFailure(found) ? found.failure.message : "accepted"
}

describe("values", () => {
  it.each<readonly [schema: unknown, valid: ReadonlyArray<string>, invalid: ReadonlyArray<string>]>([
    [{ type: "integer", minimum: -3, exclusiveMaximum: 12 }, ["-3", "0", "11"], ["-4", "12", "11.5", "011", "1e1"]],
    [{ type: "number", exclusiveMinimum: 0.1 }, ["0.11", "0.10000000000000002", "1e+21"], [
      "0.1",
      "0.10000000000000001",
      "0",
      "-1",
      "1e-7"
    ]],
    [{ type: "number", exclusiveMaximum: 5 }, ["4.999999999999999", "-1e+300"], [
      "5",
      "4.9999999999999999999",
      "1e+21"
    ]],
    [{ type: "integer", minimum: 9007199254740992 }, ["9007199254740992", "9007199254740994", "1e+21"], [
      "9007199254740991"
    ]],
    [{ multipleOf: 0.25 }, ["0.5", "3", "-1.75", "2.50", "\"x\""], ["0.3", "1.125"]],
    [{ enum: [1.5, 2, "2", null] }, ["1.5", "1.50", "2", "\"2\"", "null"], ["1.51", "2.5", "true"]],
    [{ type: "string", maxLength: 2 }, ["\"\"", "\"😀é\"", "\"\\n\\\"\""], ["\"abc\"", "\"a\nb\""]],
    [{ type: "string", minLength: 3, maxLength: 1e9 }, ["\"abc\""], ["\"ab\""]],
    [{ type: "string", pattern: "a.c", maxLength: 4 }, ["\"abc\"", "\"xabc\"", "\"a\\\"c\""], [
      "\"ab\"",
      "\"xxabc\"",
      "\"a\\nc\""
    ]],
    [{ type: "string", format: "date" }, ["\"2024-02-29\""], ["\"2023-02-29\"", "\"2024-13-01\""]],
    [{ type: "array", items: { type: "null" }, minItems: 2, maxItems: 1e9 }, ["[null,null]"], [
      "[null]",
      "[null, null]"
    ]],
    [{ type: "array", items: { enum: [1, 2] }, uniqueItems: true }, ["[]", "[2,1]"], ["[1,1]"]],
    [{ contains: { const: 1 }, maxContains: 1 }, ["[1]", "[0,1,2]"], ["[]", "[1,1]", "[0]"]],
    [{ properties: { a: { type: "null" }, b: true }, required: ["c"] }, [
      "{\"a\":null,\"c\":0}",
      "{\"x\":1,\"c\":0}",
      "3"
    ], ["{\"a\":1,\"c\":0}", "{}"]],
    [{ type: "object", minProperties: 1, maxProperties: 2 }, ["{\"a\":1}", "{\"a\":1,\"b\":2}"], [
      "{}",
      "{\"a\":1,\"b\":2,\"c\":3}"
    ]],
    [{ patternProperties: { "^x": { type: "integer" } }, additionalProperties: false }, ["{\"x1\":1}"], [
      "{\"x1\":\"\"}",
      "{\"y\":1}"
    ]],
    [{ oneOf: [{ required: ["a"] }, { required: ["b"] }] }, ["{\"a\":1}", "{\"b\":1}"], ["{}", "{\"a\":1,\"b\":1}"]],
    [{ type: "object", not: { required: ["a"] } }, ["{\"b\":1}"], ["{\"a\":1}"]],
    [
      JSON.parse(
        "{\"type\":\"object\",\"properties\":{\"__proto__\":{\"type\":\"null\"}},\"required\":[\"__proto__\"]}"
      ),
      ["{\"__proto__\":null}"],
      ["{}", "{\"__proto__\":1}"]
    ],
    [{ $ref: "#/$defs/a", $defs: { a: { type: "array", items: { $ref: "#/$defs/a" } } } }, ["[[],[[]]]"], ["[1]"]]
  ])("of %j", (schema, valid, invalid) => {
    for (const text of valid) assert.isTrue(accepts(schema, text), text)
    for (const text of invalid) assert.isFalse(accepts(schema, text), text)
  })

  it("properties come in the order of the schema", () => {
    const schema = { type: "object", properties: { b: true, a: true } }
    assert.isTrue(accepts(schema, "{\"b\":1,\"a\":2,\"z\":3}"))
    assert.isFalse(accepts(schema, "{\"a\":2,\"b\":1}"))
  })

  it("a part that no value fits is never begun", () => {
    const schema = {
      type: "object",
      properties: { a: { type: "string", format: "date-time", maxLength: 16 }, b: { type: "null" } }
    }
    const acceptor = Result.getOrThrow(Acceptor.make(Result.getOrThrow(JsonSchema.compile(schema))))
    assert.isFalse(acceptor.push("{\"a\""))
  })
})

describe("schemas are refused with a path", () => {
  it.each<readonly [schema: unknown, message: string]>([
    [{ properties: { a: { maxlength: 3 } } }, "#/properties/a: maxlength: is not a keyword that is enforced"],
    [{ type: "strin" }, "#: type: must be one or some of null, boolean, number, integer, string, array, object"],
    [
      { anyOf: [{ pattern: "(?=a)" }] },
      "#/anyOf/0: pattern: regular expression /(?=a)/, at 3: look-around is not supported"
    ],
    [{ format: "hostname" }, "#: format: \"hostname\" is not a format that is enforced"],
    [{ $ref: "other.json" }, "#: $ref: other.json names no schema in this document, and nothing else is loaded"],
    [{ allOf: [{ $ref: "#" }] }, "#: $ref: the schema refers to itself without going into a part of the value"],
    [
      { items: { uniqueItems: true } },
      "#/items: schema: uniqueItems needs items of at most 10 different scalar values"
    ],
    [{ minProperties: 2 }, "#: schema: minProperties above 1 needs properties that are all listed"],
    [{ allOf: [{ type: "string" }, { type: "null" }] }, "#: schema: no text matches it"],
    [false, "#: schema: no text matches it"],
    [null, "#: schema: must be an object or a boolean"],
    [{ maxItems: 1.5 }, "#: maxItems: must be a whole number"]
  ])("%j", (schema, message) => assert.strictEqual(refusal(schema), message))
})
