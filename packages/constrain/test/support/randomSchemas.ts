/** Random schemas of the keywords that are enforced. */

/** Whole numbers below a limit, from a seed. */
export type Random = (below: number) => number

export const randomFrom = (seed: number): Random => {
  let state = (seed * 2654435761) % 2147483646 + 1
  return (below) => (state = (state * 48271) % 2147483647) % below
}

const pick = <A>(random: Random, list: ReadonlyArray<A>): A => list[random(list.length)]!

const patterns = [
  "^[a-c]+$",
  "x",
  "^\\d{2,4}$",
  "^(?:ab|é)*$",
  "\\bword\\b",
  "^[^\"\\\\]{0,5}$",
  "^\\p{Lu}\\p{Ll}+$",
  "[\\u4e00-\\u4eff]"
]
const formats = [
  "date",
  "time",
  "date-time",
  "duration",
  "uuid",
  "ipv4",
  "ipv6",
  "json-pointer",

  "uri-reference",
  "uri"
]
const bounds = [-7.5, -3, 0, 0.1, 1, 2.5, 10, 99, 1e6, 123456789.125]

const numberSchema = (random: Random): Record<string, unknown> => {
  const found: Record<string, unknown> = { type: pick(random, ["number", "integer"]) }
  const [a, b] = [pick(random, bounds), pick(random, bounds)].sort((x, y) => x - y) as [number, number]
  if (random(2) === 0) found[pick(random, ["minimum", "exclusiveMinimum"])] = a
  if (random(2) === 0) found[pick(random, ["maximum", "exclusiveMaximum"])] = b + 5
  if (found["type"] === "integer" && random(4) === 0) found["multipleOf"] = pick(random, [1, 2, 3, 7, 25])
  return found
}

const stringSchema = (random: Random): Record<string, unknown> => {
  const found: Record<string, unknown> = { type: "string" }
  const kind = random(4)
  if (kind === 0) found["pattern"] = pick(random, patterns)
  if (kind === 1) found["format"] = pick(random, formats)
  if (kind === 2 || random(3) === 0) {
    found["minLength"] = random(4)
    found["maxLength"] = 4 + random(kind === 1 ? 100 : 12)
  }
  return found
}

const arraySchema = (random: Random, depth: number): Record<string, unknown> => {
  const found: Record<string, unknown> = {
    type: "array",
    items: randomSchema(random, depth - 1),
    maxItems: 1 + random(4)
  }
  if (random(3) === 0) found["minItems"] = random(2)
  if (random(4) === 0) found["prefixItems"] = [randomSchema(random, depth - 1), randomSchema(random, depth - 1)]
  if (random(5) === 0) Object.assign(found, { items: { enum: ["a", "b", 1, null, true] }, uniqueItems: true })
  else if (random(6) === 0) {
    Object.assign(found, { items: numberSchema(random), contains: { type: "integer" } })
    // ajv 8.20 takes an empty array where prefixItems and contains are together; the suite and we do not
    delete found["prefixItems"]
  }
  return found
}

const objectSchema = (random: Random, depth: number): Record<string, unknown> => {
  const names = ["a", "b", "name", "x y", "é", "list", "\"q\""].slice(random(4), 4 + random(4))
  const properties = Object.fromEntries(names.map((name) => [name, randomSchema(random, depth - 1)]))
  const found: Record<string, unknown> = {
    type: "object",
    properties,
    required: names.filter(() => random(2) === 0),
    additionalProperties: random(3) > 0 ? false : randomSchema(random, 0)
  }
  if (random(4) === 0) found["patternProperties"] = { "^x": randomSchema(random, 0) }
  if (random(5) === 0) found["propertyNames"] = { maxLength: 6 }
  if (random(5) === 0) found["maxProperties"] = names.length + 1
  if (random(5) === 0 && names.length > 1) found["dependentRequired"] = { [names[0]!]: [names[1]!] }
  return found
}

const combined = (random: Random, depth: number): Record<string, unknown> => {
  switch (random(5)) {
    case 0:
      return { anyOf: [randomSchema(random, depth - 1), randomSchema(random, depth - 1)] }
    case 1:
      return { oneOf: [stringSchema(random), numberSchema(random), { type: "boolean" }] }
    case 2:
      return { allOf: [numberSchema(random), { type: "number" }] }
    case 3:
      return { type: ["string", "integer"], not: { enum: ["", 0, 1] } }
    default:
      return {
        type: "object",
        properties: { kind: { enum: ["s", "n"] }, value: { type: ["string", "number"] } },
        required: ["kind", "value"],
        additionalProperties: false,
        if: { properties: { kind: { const: "s" } } },
        // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
        then: { properties: { value: { type: "string", maxLength: 10 } } },
        else: { properties: { value: { type: "number" } } }
      }
  }
}

/** A schema with parts up to a depth. */
export const randomSchema = (random: Random, depth: number): Record<string, unknown> => {
  const kind = random(depth > 0 ? 10 : 5)
  if (kind === 0) return { enum: ["red", "green", 3, null, [1, "x"], { k: true }].slice(random(4)) }
  if (kind === 1) return { type: pick(random, ["boolean", "null"]) }
  if (kind === 2) return numberSchema(random)
  if (kind <= 4) return stringSchema(random)
  if (kind <= 6) return objectSchema(random, depth)
  if (kind === 7) return arraySchema(random, depth)
  if (kind === 8) return combined(random, depth)
  return { $ref: "#/$defs/list" }
}

/** A whole schema, with the definitions that its parts refer to. */
export const randomDocument = (random: Random): Record<string, unknown> => ({
  ...randomSchema(random, 3),
  $defs: {
    list: {
      type: "object",
      properties: { v: { type: "integer" }, next: { $ref: "#/$defs/list" } },
      required: ["v"],
      additionalProperties: false
    }
  }
})

/** The same schema, with strings and objects that are short: a model under it comes to an end by itself. */
export const bounded = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(bounded)
  if (typeof schema !== "object" || schema === null) return schema
  const found: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(schema)) {
    found[key] = ["enum", "const", "required", "type"].includes(key) ? value : bounded(value)
  }
  const types = [found["type"]].flat()
  if (types.includes("string")) found["maxLength"] ??= found["format"] === undefined ? 12 : 40
  if (types.includes("object")) found["maxProperties"] ??= Object.keys(found["properties"] ?? {}).length + 1
  return found
}
