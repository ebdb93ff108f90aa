/**
 * The arguments of a call that are written as pairs: a schema of an object as a sequence of keys and values. What would
 * not be enforced exactly is refused.
 */
import { ConstrainError, Grammar, JsonSchema } from "@tg/constrain"
import { Result } from "effect"
import type { PairCalls, Section, Tag } from "../ReplyStyle.ts"
import { typesOfSchema } from "../Tool.ts"

type Refused = ConstrainError.UnsupportedSchema
type Json = Readonly<Record<string, unknown>>

/** A tag as a grammar. */
export const tag = ({ id, text }: Tag): Grammar.Grammar => id === undefined ? Grammar.literal(text) : Grammar.token(id)

/** Any text without the tag, and the tag. */
export const closedBy = (close: Tag): Grammar.Grammar =>
  close.id === undefined ? Grammar.until([close.text]) : Grammar.sequence(Grammar.anyText, tag(close))

/** Keywords that are annotations. */
const annotations: ReadonlySet<string> = new Set([
  "$schema",
  "$id",
  "$comment",
  "$defs",
  "definitions",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly"
])
const objectKeywords: ReadonlySet<string> = new Set([
  "type",
  "properties",
  "required",
  "additionalProperties",
  "strict"
])

/** The pairs of an object's properties, in the order of the schema; only those that are required have to be there. */
export const pairs = (calls: PairCalls, schema: Json): Result.Result<Grammar.Grammar, Refused> =>
  Result.gen(function*() {
    const foreign = Object.keys(schema).find((keyword) => !objectKeywords.has(keyword) && !annotations.has(keyword))
    if (foreign !== undefined) return yield* refuse("#", foreign, "a call of keys and values cannot be held to it")
    const { properties = {}, required = [] } = schema
    if (!isObject(properties)) return yield* refuse("#/properties", "properties", "expected an object")
    const needed = Array.isArray(required) ? required : []
    const missing = needed.find((name) => !Object.hasOwn(properties, String(name)))
    if (missing !== undefined) {
      return yield* refuse("#/required", "required", `${JSON.stringify(missing)} is none of the properties`)
    }
    const parts: Array<Grammar.Grammar> = []
    for (const [name, property] of Object.entries(properties)) {
      const pair = Grammar.sequence(
        tag(calls.key.open),
        Grammar.literal(name),
        tag(calls.key.close),
        tag(calls.value.open),
        yield* value(property, { name, root: schema, section: calls.value })
      )
      parts.push(needed.includes(name) ? pair : Grammar.optional(pair))
    }
    return Grammar.sequence(...parts)
  })

interface Place {
  readonly name: string
  readonly root: Json
  readonly section: Section
}

/** A value and the tag behind it. */
const value = (schema: unknown, place: Place): Result.Result<Grammar.Grammar, Refused> => {
  const { name, root, section } = place
  const types = typesOfSchema(schema, root)
  const path = `#/properties/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`
  if (types.size === 1 && types.has("string")) return text(schema, path, section)
  if (!types.has("string")) {
    const own = isObject(schema)
      ? { $defs: root["$defs"] ?? {}, definitions: root["definitions"] ?? {}, ...schema }
      : schema
    return Result.map(JsonSchema.compile(own), (json) => Grammar.sequence(json, tag(section.close))).pipe(
      Result.mapError(({ keyword, path: inner, reason }) =>
        new ConstrainError.UnsupportedSchema({ path: path + inner.slice(1), keyword, reason })
      )
    )
  }
  // a text that is also JSON of another type is read as that, so all of that type has to be allowed
  return isOpen(schema)
    ? Result.succeed(closedBy(section.close))
    : refuse(path, "type", "a value that may be a string or something else cannot be held to more than its types")
}

/** A string as it is, without quotes. */
const text = (schema: unknown, path: string, { close }: Section): Result.Result<Grammar.Grammar, Refused> => {
  const { type: _, ...keywords } = withoutAnnotations(schema)
  const { const: constant, enum: values, maxLength, minLength, pattern, ...others } = keywords
  const [foreign] = Object.keys(others)
  if (foreign !== undefined) return refuse(path, foreign, "a string without quotes cannot be held to it")
  const isLong = minLength !== undefined || maxLength !== undefined
  if (constant !== undefined || values !== undefined) {
    const listed = constant !== undefined ? [constant] : Array.isArray(values) ? values : []
    const texts = listed.filter((one): one is string => typeof one === "string")
    if (pattern !== undefined || isLong || (constant !== undefined && values !== undefined)) {
      return refuse(path, "enum", "a list of strings cannot be held to another keyword as well")
    }
    return Result.succeed(Grammar.sequence(Grammar.choice(...texts.map(Grammar.literal)), tag(close)))
  }
  if (pattern === undefined && !isLong) return Result.succeed(closedBy(close))
  if (pattern !== undefined && isLong) {
    return refuse(path, "pattern", "a string without quotes cannot be held to a pattern and a length")
  }
  if (close.id === undefined) {
    return refuse(path, pattern === undefined ? "minLength" : "pattern", "the tag behind the string is text as well")
  }
  const expression = pattern === undefined
    ? `[^]{${Number(minLength ?? 0)},${maxLength === undefined ? "" : Number(maxLength)}}`
    : `[^]*(?:${String(pattern)})[^]*`
  return Result.map(Grammar.regex(expression), (grammar) => Grammar.sequence(grammar, tag(close))).pipe(
    Result.mapError(({ reason }) => new ConstrainError.UnsupportedSchema({ path, keyword: "pattern", reason }))
  )
}

/** Whether a schema restricts nothing but types. */
const isOpen = (schema: unknown): boolean => {
  if (schema === true) return true
  const keywords = withoutAnnotations(schema)
  const { type, ...others } = keywords
  const choices = Array.isArray(others["anyOf"]) ? others["anyOf"] : undefined
  if (choices !== undefined) {
    return Object.keys(keywords).length === 1 && choices.every((choice) => isOpen(choice))
  }
  const named = Array.isArray(type) ? type : [type]
  return Object.keys(others).length === 0 && !named.includes("integer")
}

const withoutAnnotations = (schema: unknown): Json =>
  isObject(schema) ? Object.fromEntries(Object.entries(schema).filter(([keyword]) => !annotations.has(keyword))) : {}

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)

const refuse = (path: string, keyword: string, reason: string): Result.Result<never, Refused> =>
  Result.fail(new ConstrainError.UnsupportedSchema({ path, keyword, reason }))
