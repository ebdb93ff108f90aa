/** The keywords of one schema, with the shapes that the specification gives them. */
import type { SchemaNode } from "./formula.ts"
import { Refusal } from "./refusal.ts"

/** Keywords that say nothing about which values are valid. */
const annotations: ReadonlySet<string> = new Set([
  "$schema",
  "$id",
  "$anchor",
  "$dynamicAnchor",
  "$comment",
  "$defs",
  "definitions",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
  "contentEncoding",
  "contentMediaType",
  "contentSchema"
])

/** A JSON value. */
export type Json = null | boolean | number | string | ReadonlyArray<Json> | { readonly [name: string]: Json }

const maxJsonDepth = 200

const isJson = (value: unknown, depth = 0): value is Json => {
  if (value === null || typeof value === "boolean" || typeof value === "string") return true
  if (typeof value === "number") return Number.isFinite(value)
  if (typeof value !== "object" || depth > maxJsonDepth) return false
  return (isArray(value) ? value : Object.values(value)).every((part) => isJson(part, depth + 1))
}

const isJsonList = (value: unknown): value is ReadonlyArray<Json> =>
  isArray(value) && value.every((part) => isJson(part))

/** Whether a value is an array. */
export const isArray = (value: unknown): value is ReadonlyArray<unknown> => Array.isArray(value)

/** Whether a value is an object and no array. */
export const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const typeNames = new Set(["null", "boolean", "number", "integer", "string", "array", "object"])

/** The keywords of one schema, each read once, with the shape that the specification gives it. */
export class Keywords {
  private readonly node: SchemaNode
  private readonly left: Set<string>

  constructor(node: SchemaNode) {
    this.node = node
    this.left = new Set(Object.keys(node.value).filter((keyword) => !annotations.has(keyword)))
  }

  /** Refuses what no one has asked for. */
  finish(): void {
    for (const keyword of this.left) throw new Refusal(this.node.path, keyword, "is not a keyword that is enforced")
  }

  private take(keyword: string): unknown {
    this.left.delete(keyword)
    return Object.hasOwn(this.node.value, keyword) ? this.node.value[keyword] : undefined
  }

  private typed<A>(keyword: string, expected: string, is: (value: unknown) => value is A): A | undefined {
    const value = this.take(keyword)
    if (value === undefined || is(value)) return value
    throw new Refusal(this.node.path, keyword, `must be ${expected}`)
  }

  boolean(keyword: string): boolean | undefined {
    return this.typed(keyword, "a boolean", (value): value is boolean => typeof value === "boolean")
  }

  number(keyword: string): number | undefined {
    return this.typed(
      keyword,
      "a number",
      (value): value is number => typeof value === "number" && Number.isFinite(value)
    )
  }

  /** Lists of names by name. */
  namesByName(keyword: string): Readonly<Record<string, ReadonlyArray<string>>> | undefined {
    return this.typed(
      keyword,
      "an object of lists of strings",
      (value): value is Readonly<Record<string, ReadonlyArray<string>>> =>
        isRecord(value) &&
        Object.values(value).every((names) => isArray(names) && names.every((name) => typeof name === "string"))
    )
  }

  string(keyword: string): string | undefined {
    return this.typed(keyword, "a string", (value): value is string => typeof value === "string")
  }

  count(keyword: string): number | undefined {
    return this.typed(
      keyword,
      "a whole number",
      (value): value is number => typeof value === "number" && Number.isSafeInteger(value) && value >= 0
    )
  }

  /** A schema, not yet checked. */
  schema(keyword: string): unknown {
    return this.typed(
      keyword,
      "a schema: an object or a boolean",
      (value): value is unknown => typeof value === "boolean" || isRecord(value)
    )
  }

  list(keyword: string): ReadonlyArray<unknown> | undefined {
    return this.typed(
      keyword,
      "a list of schemas that is not empty",
      (value): value is ReadonlyArray<unknown> => isArray(value) && value.length > 0
    )
  }

  map(keyword: string): Readonly<Record<string, unknown>> | undefined {
    return this.typed(keyword, "an object of schemas", isRecord)
  }

  names(keyword: string): ReadonlyArray<string> | undefined {
    return this.typed(
      keyword,
      "a list of strings",
      (value): value is ReadonlyArray<string> => isArray(value) && value.every((name) => typeof name === "string")
    )
  }

  types(): ReadonlySet<string> | undefined {
    const value = this.take("type")
    if (value === undefined) return undefined
    const list = isArray(value) ? value : [value]
    if (list.length > 0 && list.every((name) => typeof name === "string" && typeNames.has(name))) {
      return new Set(list.map(String))
    }
    throw new Refusal(this.node.path, "type", `must be one or some of ${[...typeNames].join(", ")}`)
  }

  /** The values that `enum` leaves. */
  values(): ReadonlyArray<Json> | undefined {
    return this.typed("enum", "a list of JSON values", isJsonList)
  }

  /** The value that `const` leaves, in a list. */
  constant(): ReadonlyArray<Json> | undefined {
    const value = this.take("const")
    if (value === undefined) return undefined
    if (isJson(value)) return [value]
    throw new Refusal(this.node.path, "const", "must be a JSON value")
  }
}
