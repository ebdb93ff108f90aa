/** What a model may call, in OpenAI's form. */
import { Schema } from "effect"

/** A function with a name, what it does, and a JSON schema of its arguments. */
export const Tool = Schema.Struct({
  type: Schema.Literal("function"),
  function: Schema.StructWithRest(
    Schema.Struct({
      name: Schema.String.check(Schema.isPattern(/^[A-Za-z0-9_.-]{1,64}$/)),
      description: Schema.optionalKey(Schema.String),
      parameters: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown))
    }),
    [Schema.Record(Schema.String, Schema.Unknown)]
  )
})
/** A function that the model may call. */
export type Tool = typeof Tool.Type

/** Whether and what the model calls: optionally, nothing, at least one tool, or one tool by name. */
export type Choice = "auto" | "none" | "required" | { readonly name: string }

/** A JSON schema, as far as it is an object. */
type JsonSchema = Readonly<Record<string, unknown>>

/** The types of JSON values. An integer counts as `number`. */
export type JsonType = "string" | "number" | "boolean" | "null" | "object" | "array"

const all: ReadonlySet<JsonType> = new Set(["string", "number", "boolean", "null", "object", "array"])

/** The schema of a tool's arguments: an object without properties if it has none. */
export const parametersOf = (tool: Tool): JsonSchema =>
  tool.function.parameters ?? { type: "object", properties: {}, additionalProperties: false }

/** The types that an argument may have by the tool's schema: all of them where it does not say. */
export const typesOf = (tool: Tool | undefined, argument: string): ReadonlySet<JsonType> => {
  if (tool === undefined) return all
  const root = parametersOf(tool)
  const { additionalProperties, properties } = root
  const own = isObject(properties) && Object.hasOwn(properties, argument) ? properties[argument] : additionalProperties
  return typesOfSchema(own, root)
}

/** The type of a JSON value. */
export const typeOf = (value: unknown): JsonType =>
  value === null ? "null" : Array.isArray(value) ? "array" : typeof value as JsonType

const isObject = (value: unknown): value is JsonSchema =>
  typeof value === "object" && value !== null && !Array.isArray(value)

// longer chains of references are cyclic
const deepest = 32

/** The types that a schema allows, as far as it says so; `root` is the schema that its references are in. */
export const typesOfSchema = (schema: unknown, root: JsonSchema, depth = 0): ReadonlySet<JsonType> => {
  if (!isObject(schema) || depth > deepest) return all
  const { $ref, allOf, anyOf, const: constant, enum: values, oneOf, type } = schema
  let types = all
  if (typeof type === "string") types = named([type])
  else if (Array.isArray(type)) types = named(type)
  if (Array.isArray(values)) types = meet(types, new Set(values.map(typeOf)))
  if (constant !== undefined) types = meet(types, new Set([typeOf(constant)]))
  if (typeof $ref === "string") types = meet(types, typesOfSchema(resolve($ref, root), root, depth + 1))
  for (const choices of [anyOf, oneOf]) {
    if (!Array.isArray(choices)) continue
    const either = choices.map((choice) => typesOfSchema(choice, root, depth + 1))
    types = meet(types, new Set(either.flatMap((types) => [...types])))
  }
  for (const part of Array.isArray(allOf) ? allOf : []) {
    types = meet(types, typesOfSchema(part, root, depth + 1))
  }
  return types
}

const named = (names: ReadonlyArray<unknown>): ReadonlySet<JsonType> =>
  meet(all, new Set(names.map((name) => name === "integer" ? "number" : name)))

const meet = (types: ReadonlySet<JsonType>, others: ReadonlySet<unknown>): ReadonlySet<JsonType> =>
  new Set([...types].filter((type) => others.has(type)))

const resolve = (reference: string, root: JsonSchema): unknown => {
  if (!reference.startsWith("#")) return undefined
  let found: unknown = root
  for (const part of reference.slice(1).split("/").slice(1)) {
    if (!isObject(found)) return undefined
    found = found[decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")]
  }
  return found
}
