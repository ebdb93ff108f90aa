/** From the keywords of a schema to the values it allows. Every keyword is enforced, is an annotation, or is refused. */
import { Result } from "effect"
import { language } from "../Regex.ts"
import * as CharDfa from "./charDfa.ts"
import type { Formula, Formulas, SchemaNode } from "./formula.ts"
import * as Normal from "./normal.ts"
import * as Numbers from "./numbers.ts"
import { at, child, Refusal } from "./refusal.ts"
import type { Documents } from "./documents.ts"

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

type Json = null | boolean | number | string | ReadonlyArray<unknown> | Readonly<Record<string, unknown>>

/** Reads the schemas of one compilation. */
export class SchemaReader {
  private readonly formulas: Formulas
  private readonly documents: Documents
  private readonly known = new Map<Formula, Normal.Normal>()
  private readonly open = new Set<Formula>()

  constructor(formulas: Formulas, documents: Documents) {
    this.formulas = formulas
    this.documents = documents
  }

  /** The values that a formula allows. */
  readonly normalOf = (formula: Formula): Normal.Normal => {
    const known = this.known.get(formula)
    if (known !== undefined) return known
    if (this.open.has(formula)) {
      const path = formula._tag === "Schema" ? formula.schema.path : "#"
      throw new Refusal(path, "$ref", "the schema refers to itself without going into a part of the value")
    }
    this.open.add(formula)
    const made = this.compute(formula)
    this.open.delete(formula)
    this.known.set(formula, made)
    return made
  }

  private compute(formula: Formula): Normal.Normal {
    switch (formula._tag) {
      case "True":
        return Normal.anything(this.formulas)
      case "False":
        return Normal.nothing
      case "Schema":
        return at(formula, "schema", () => this.read(formula.schema))
      case "And":
        return at(formula, "allOf", () => this.all(formula.parts))
      case "Or":
        return at(formula, "anyOf", () => formula.parts.map(this.normalOf).reduce(Normal.or, Normal.nothing))
      case "Not":
        throw new Refusal("#", "not", "is not supported")
    }
  }

  private all(parts: ReadonlyArray<Formula>): Normal.Normal {
    return parts.map(this.normalOf).reduce((a, b) => Normal.and(this.formulas, a, b))
  }

  private read(node: SchemaNode): Normal.Normal {
    const keywords = new Keywords(node)
    const own = this.ownValues(node, keywords)
    const parts = [own, ...this.applied(node, keywords).map(this.normalOf)]
    keywords.finish()
    return parts.reduce((a, b) => Normal.and(this.formulas, a, b))
  }

  /** The values by keywords that look at the value itself. */
  private ownValues(node: SchemaNode, keywords: Keywords): Normal.Normal {
    const any = Normal.anything(this.formulas)
    const types = keywords.types()
    const has = (type: string): boolean => types === undefined || types.has(type)
    const own: Normal.Normal = {
      null: has("null"),
      true: has("boolean"),
      false: has("boolean"),
      number: has("number") ? any.number : has("integer") ? Numbers.integers() : CharDfa.nothing,
      strings: this.strings(node, keywords).filter(() => has("string")),
      arrays: this.arrays(node, keywords).filter(() => has("array")),
      objects: this.objects(node, keywords).filter(() => has("object"))
    }
    const values = keywords.values()
    if (values === undefined) return own
    return Normal.and(this.formulas, own, values.map((value) => this.constant(value)).reduce(Normal.or, Normal.nothing))
  }

  private strings(node: SchemaNode, keywords: Keywords): ReadonlyArray<Normal.Strings> {
    const pattern = keywords.string("pattern")
    const dfa = pattern === undefined ? CharDfa.anything : this.pattern(node, "pattern", pattern)
    const [min, max] = [keywords.count("minLength") ?? 0, keywords.count("maxLength") ?? Infinity]
    return min > max || CharDfa.isEmpty(dfa) ? [] : [{ dfa, min, max }]
  }

  private pattern(node: SchemaNode, keyword: string, pattern: string): CharDfa.CharDfa {
    const found = language(pattern, "search")
    if (Result.isSuccess(found)) return found.success
    throw new Refusal(node.path, keyword, found.failure.message)
  }

  private arrays(node: SchemaNode, keywords: Keywords): ReadonlyArray<Normal.ArrayShape> {
    const prefix = keywords.list("prefixItems") ?? []
    const items = keywords.schema("items")
    const [min, max] = [keywords.count("minItems") ?? 0, keywords.count("maxItems") ?? Infinity]
    if (min > max) return []
    return [{
      prefix: prefix.map((item, i) => this.formulaAt(node, item, "prefixItems", i)),
      rest: items === undefined ? this.formulas.true_ : this.formulaAt(node, items, "items"),
      min,
      max
    }]
  }

  private objects(node: SchemaNode, keywords: Keywords): ReadonlyArray<Normal.ObjectShape> {
    const named = Object.entries(keywords.map("properties") ?? {})
    const additional = keywords.schema("additionalProperties")
    const rest = additional === undefined
      ? this.formulas.true_
      : this.formulaAt(node, additional, "additionalProperties")
    const properties = new Map(named.map(([name, value]) => [name, this.formulaAt(node, value, "properties", name)]))
    const required = new Set(keywords.names("required") ?? [])
    return [{
      named: properties,
      required,
      regions: [{ names: CharDfa.anything, value: rest }],
      min: 0,
      max: Infinity
    }]
  }

  /** The formulas of keywords that apply other schemas to the same value. */
  private applied(node: SchemaNode, keywords: Keywords): ReadonlyArray<Formula> {
    const list = (keyword: string): ReadonlyArray<Formula> | undefined =>
      keywords.list(keyword)?.map((part, i) => this.formulaAt(node, part, keyword, i))
    const anyOf = list("anyOf")
    const reference = keywords.string("$ref")
    return [
      ...(list("allOf") ?? []),
      ...(anyOf === undefined ? [] : [this.formulas.or(anyOf)]),
      ...(reference === undefined ? [] : [this.formulaOf(this.documents.resolve(node, "$ref", reference))])
    ]
  }

  private formulaAt(node: SchemaNode, value: unknown, ...steps: ReadonlyArray<string | number>): Formula {
    return this.formulaOf(this.documents.below(node, value, child(node.path, ...steps)))
  }

  /** The formula of a schema. */
  formulaOf(schema: boolean | SchemaNode): Formula {
    if (typeof schema !== "boolean") return this.formulas.schema(schema)
    return schema ? this.formulas.true_ : this.formulas.false_
  }

  /** The values equal to one value. */
  private constant(value: Json): Normal.Normal {
    const { nothing } = Normal
    if (value === null) return { ...nothing, null: true }
    if (typeof value === "boolean") return { ...nothing, true: value, false: !value }
    if (typeof value === "number") return { ...nothing, number: Numbers.constant(value) }
    if (typeof value === "string") {
      return { ...nothing, strings: [{ ...Normal.anyString, dfa: CharDfa.words([value]) }] }
    }
    const formula = (part: unknown): Formula =>
      this.formulas.schema({ value: this.constantSchema(part), path: "#", base: "" })
    if (isArray(value)) {
      const shape = { prefix: value.map(formula), rest: this.formulas.false_, min: value.length, max: value.length }
      return { ...nothing, arrays: [shape] }
    }
    const named = new Map(Object.entries(value).map(([name, part]) => [name, formula(part)]))
    const regions = [{ names: CharDfa.anything, value: this.formulas.false_ }]
    const shape = { named, required: new Set(named.keys()), regions, min: 0, max: Infinity }
    return { ...nothing, objects: [shape] }
  }

  private readonly constants = new Map<string, Readonly<Record<string, unknown>>>()

  private constantSchema(value: unknown): Readonly<Record<string, unknown>> {
    const key = JSON.stringify(value)
    const known = this.constants.get(key) ?? { const: value }
    this.constants.set(key, known)
    return known
  }
}

const isArray = (value: unknown): value is ReadonlyArray<unknown> => Array.isArray(value)

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const typeNames = new Set(["null", "boolean", "number", "integer", "string", "array", "object"])

/** The keywords of one schema, each read once, with the shape that the specification gives it. */
class Keywords {
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
      return new Set(list as ReadonlyArray<string>)
    }
    throw new Refusal(this.node.path, "type", `must be one or some of ${[...typeNames].join(", ")}`)
  }

  /** The values that `const` and `enum` leave. */
  values(): ReadonlyArray<Json> | undefined {
    const one = this.take("const")
    const some = this.typed("enum", "a list of values", isArray)
    if (one !== undefined && some !== undefined) {
      throw new Refusal(this.node.path, "const", "beside enum is not supported")
    }
    return (one === undefined ? some : [one]) as ReadonlyArray<Json> | undefined
  }
}
