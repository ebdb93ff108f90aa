/** From the keywords of a schema to the values it allows. Every keyword is enforced, is an annotation, or is refused. */
import { Result } from "effect"
import { language } from "../Regex.ts"
import * as CharDfa from "./charDfa.ts"
import { atLeast, maxRemainders, multiplesOf } from "./decimals.ts"
import { after } from "./doubles.ts"
import type { Documents } from "./documents.ts"
import { formatOf } from "./formats.ts"
import { type Formula, type Formulas, type SchemaNode, TooComplex } from "./formula.ts"
import { isArray, type Json, Keywords } from "./keywords.ts"
import { isEmpty, not, spelledOut } from "./negate.ts"
import * as Normal from "./normal.ts"
import * as Numbers from "./numbers.ts"
import { at, child, Refusal } from "./refusal.ts"
import { unevaluatedItems, unevaluatedProperties } from "./unevaluated.ts"

/** More patterns than this for the properties of one object are refused: names are told apart by all their combinations. */
const maxPatterns = 8

/** Reads the schemas of one compilation. */
export class SchemaReader {
  private readonly formulas: Formulas
  private readonly documents: Documents
  private readonly format: "assert" | "annotate"
  private readonly known = new Map<Formula, Normal.Normal>()
  private readonly open = new Set<Formula>()

  constructor(formulas: Formulas, documents: Documents, format: "assert" | "annotate") {
    this.formulas = formulas
    this.documents = documents
    this.format = format
  }

  /** The values that a formula allows. */
  readonly normalOf = (formula: Formula): Normal.Normal => {
    const known = this.known.get(formula)
    if (known !== undefined) return known
    if (this.open.has(formula) || this.open.size > maxNesting) {
      const path = formula._tag === "Schema" ? formula.schema.path : "#"
      const reason = this.open.has(formula)
        ? "the schema refers to itself without going into a part of the value"
        : `more than ${maxNesting} schemas apply to one value`
      throw new Refusal(path, "$ref", reason)
    }
    this.open.add(formula)
    try {
      const made = this.compute(formula)
      this.known.set(formula, made)
      return made
    } finally {
      this.open.delete(formula)
    }
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
        return at(formula, "allOf", () => formula.parts.map(this.normalOf).reduce(this.both))
      case "Or":
        return at(formula, "anyOf", () => formula.parts.map(this.normalOf).reduce(Normal.or, Normal.nothing))
      case "Not":
        return at(formula, "not", () => not(this.formulas, this.normalOf(formula.part)))
    }
  }

  private readonly both = (a: Normal.Normal, b: Normal.Normal): Normal.Normal => Normal.and(this.formulas, a, b)

  private read(node: SchemaNode): Normal.Normal {
    const keywords = new Keywords(node)
    const own = this.ownValues(node, keywords)
    const formulas = [...this.applied(node, keywords), ...this.conditions(node, keywords)]
    keywords.finish()
    return formulas.map(this.normalOf).reduce(this.both, own)
  }

  /** The values by keywords that look at the value itself. */
  private ownValues(node: SchemaNode, keywords: Keywords): Normal.Normal {
    const types = keywords.types()
    const has = (type: string): boolean => types === undefined || types.has(type)
    const own: Normal.Normal = {
      null: has("null"),
      true: has("boolean"),
      false: has("boolean"),
      number: this.numbers(node, keywords, has("number") ? "number" : has("integer") ? "integer" : "none"),
      strings: this.strings(node, keywords).filter(() => has("string")),
      arrays: this.arrays(node, keywords).filter(() => has("array")),
      objects: this.objects(node, keywords).filter(() => has("object"))
    }
    return [keywords.values(), keywords.constant()].reduce(
      (left, values) => values === undefined ? left : this.both(left, this.oneOfValues(values)),
      own
    )
  }

  private numbers(node: SchemaNode, keywords: Keywords, type: "number" | "integer" | "none"): CharDfa.CharDfa {
    const all = Numbers.all()
    const bounds = [keywords.number("minimum"), keywords.number("exclusiveMinimum")] as const
    const tops = [keywords.number("maximum"), keywords.number("exclusiveMaximum")] as const
    const step = keywords.number("multipleOf")
    if (step !== undefined && step <= 0) throw new Refusal(node.path, "multipleOf", "must be above zero")
    if (type === "none") return CharDfa.nothing
    let found = type === "integer" ? Numbers.integers() : all
    const keep = (dfa: CharDfa.CharDfa): void => void (found = CharDfa.intersect(found, dfa))
    const drop = (dfa: CharDfa.CharDfa): void => void (found = CharDfa.subtract(found, dfa))
    if (bounds[0] !== undefined) keep(atLeast(all, bounds[0]))
    if (bounds[1] !== undefined) keep(atLeast(all, after(bounds[1])))
    if (tops[0] !== undefined) drop(atLeast(all, after(tops[0])))
    if (tops[1] !== undefined) drop(atLeast(all, tops[1]))
    if (step === undefined) return found
    const multiples = multiplesOf(step, type === "integer")
    if (multiples !== undefined) return CharDfa.intersect(found, multiples)
    throw new Refusal(node.path, "multipleOf", `more than ${maxRemainders} remainders, or multiples below 1e-6`)
  }

  private strings(node: SchemaNode, keywords: Keywords): ReadonlyArray<Normal.Strings> {
    const pattern = keywords.string("pattern")
    const format = keywords.string("format")
    const [min, max] = [keywords.count("minLength") ?? 0, keywords.count("maxLength") ?? Infinity]
    const own = pattern === undefined ? CharDfa.anything : this.pattern(node, "pattern", pattern)
    const isFree = format === undefined || this.format === "annotate"
    const formatted = isFree ? Normal.anyString : formatOf(format)
    if (formatted === undefined) {
      throw new Refusal(node.path, "format", `${JSON.stringify(format)} is not a format that is enforced`)
    }
    return Normal.andStrings({ dfa: own, min, max }, formatted)
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
    const condition = keywords.schema("contains")
    const [least, most] = [keywords.count("minContains") ?? 1, keywords.count("maxContains") ?? Infinity]
    const unique = keywords.boolean("uniqueItems") ?? false
    if (min > max || (condition !== undefined && least > most)) return []
    return [{
      prefix: prefix.map((item, i) => this.formulaAt(node, item, "prefixItems", i)),
      rest: items === undefined ? this.formulas.true_ : this.formulaAt(node, items, "items"),
      min,
      max,
      contains: condition === undefined || (least === 0 && most === Infinity)
        ? []
        : [{ item: this.formulaAt(node, condition, "contains"), min: least, max: most }],
      unique
    }]
  }

  private objects(node: SchemaNode, keywords: Keywords): ReadonlyArray<Normal.ObjectShape> {
    const listed = Object.entries(keywords.map("properties") ?? {})
    const patterns = Object.entries(keywords.map("patternProperties") ?? {})
    const additional = keywords.schema("additionalProperties")
    const nameSchema = keywords.schema("propertyNames")
    const required = new Set(keywords.names("required") ?? [])
    const [min, max] = [keywords.count("minProperties") ?? 0, keywords.count("maxProperties") ?? Infinity]
    if (patterns.length > maxPatterns) throw new TooComplex(`has more than ${maxPatterns} patterns of properties`)
    const rest = additional === undefined
      ? this.formulas.true_
      : this.formulaAt(node, additional, "additionalProperties")
    const names = nameSchema === undefined ? CharDfa.anything : this.nameLanguage(node, nameSchema)
    let regions: ReadonlyArray<Normal.Region> = [{ names: CharDfa.anything, value: this.formulas.true_ }]
    const matched = patterns.map(([pattern, value]) => ({
      names: this.pattern(node, "patternProperties", pattern),
      value: this.formulaAt(node, value, "patternProperties", pattern)
    }))
    for (const { names, value } of matched) regions = this.split(regions, names, value, this.formulas.true_)
    const anyMatch = matched.map((region) => region.names).reduce(CharDfa.union, CharDfa.nothing)
    // a listed property is held to the patterns that its name matches, but not to what holds for all others
    const named = new Map(listed.map(([name, value]) => {
      const own = this.formulaAt(node, value, "properties", name)
      const region = regions.find((region) => CharDfa.accepts(region.names, name))
      const allowed = region !== undefined && CharDfa.accepts(names, name)
      return [name, allowed ? this.formulas.and([own, region.value]) : this.formulas.false_]
    }))
    regions = this.split(regions, anyMatch, this.formulas.true_, rest)
    regions = this.split(regions, names, this.formulas.true_, this.formulas.false_)
    if (min > max) return []
    return [{ named, required, regions: Normal.mergeRegions(regions), min, max }]
  }

  /** Cuts regions by a language: values of names inside of it, and of those outside. */
  private split(
    regions: ReadonlyArray<Normal.Region>,
    by: CharDfa.CharDfa,
    inside: Formula,
    outside: Formula
  ): ReadonlyArray<Normal.Region> {
    return regions.flatMap(({ names, value }) =>
      [
        { names: CharDfa.intersect(names, by), value: this.formulas.and([value, inside]) },
        { names: CharDfa.subtract(names, by), value: this.formulas.and([value, outside]) }
      ].filter((region) => !CharDfa.isEmpty(region.names))
    )
  }

  private nameLanguage(node: SchemaNode, schema: unknown): CharDfa.CharDfa {
    const { strings } = this.normalOf(this.formulaAt(node, schema, "propertyNames"))
    return strings.map(spelledOut).reduce(CharDfa.union, CharDfa.nothing)
  }

  /** The formulas of keywords that apply other schemas to the same value. */
  private applied(node: SchemaNode, keywords: Keywords): ReadonlyArray<Formula> {
    const list = (keyword: string): ReadonlyArray<Formula> | undefined =>
      keywords.list(keyword)?.map((part, i) => this.formulaAt(node, part, keyword, i))
    const [allOf, anyOf, oneOf] = [list("allOf"), list("anyOf"), list("oneOf")]
    const negated = keywords.schema("not")
    const references = (["$ref", "$dynamicRef"] as const).flatMap((keyword) => {
      const reference = keywords.string(keyword)
      return reference === undefined ? [] : [this.formulaOf(this.documents.resolve(node, keyword, reference))]
    })
    const unevaluated = keywords.schema("unevaluatedProperties")
    const unevaluatedItem = keywords.schema("unevaluatedItems")
    const context = {
      documents: this.documents,
      formulas: this.formulas,
      formulaOf: (of: boolean | SchemaNode) => this.formulaOf(of)
    }
    return [
      ...(allOf ?? []),
      ...references,
      ...(anyOf === undefined ? [] : [this.formulas.or(anyOf)]),
      ...(oneOf === undefined ? [] : [this.exactlyOne(oneOf)]),
      ...(negated === undefined ? [] : [this.formulas.not(this.formulaAt(node, negated, "not"))]),
      ...(unevaluated === undefined
        ? []
        : unevaluatedProperties(context, node, this.formulaAt(node, unevaluated, "unevaluatedProperties"))),
      ...(unevaluatedItem === undefined
        ? []
        : unevaluatedItems(context, node, this.formulaAt(node, unevaluatedItem, "unevaluatedItems")))
    ]
  }

  /** The formulas of keywords that hold under conditions. */
  private conditions(node: SchemaNode, keywords: Keywords): ReadonlyArray<Formula> {
    const { formulas } = this
    const [condition, then, otherwise] = ["if", "then", "else"].map((keyword) => {
      const value = keywords.schema(keyword)
      return value === undefined ? undefined : this.formulaAt(node, value, keyword)
    })
    const found: Array<Formula> = []
    if (condition !== undefined && (then !== undefined || otherwise !== undefined)) {
      const yes = formulas.and([condition, then ?? formulas.true_])
      found.push(formulas.or([yes, formulas.and([formulas.not(condition), otherwise ?? formulas.true_])]))
    }
    const requires = (names: ReadonlyArray<string>): Formula =>
      formulas.schema({ ...node, value: formulas.requiring(names) })
    for (const [name, others] of Object.entries(keywords.namesByName("dependentRequired") ?? {})) {
      if (others.length > 0) found.push(formulas.or([formulas.not(requires([name])), requires(others)]))
    }
    for (const [name, schema] of Object.entries(keywords.map("dependentSchemas") ?? {})) {
      found.push(formulas.or([formulas.not(requires([name])), this.formulaAt(node, schema, "dependentSchemas", name)]))
    }
    return found
  }

  /** One of the parts and none of the others; a part that excludes another one need not say so. */
  private exactlyOne(parts: ReadonlyArray<Formula>): Formula {
    const overlaps = (a: Formula, b: Formula): boolean =>
      !isEmpty(this.tryNormal, this.both(this.normalOf(a), this.normalOf(b)))
    const clashes = parts.map((): Array<Formula> => [])
    parts.forEach((a, i) => {
      for (let j = 0; j < i; j++) {
        if (a !== parts[j]! && !overlaps(a, parts[j]!)) continue
        clashes[i]!.push(parts[j]!)
        clashes[j]!.push(a)
      }
    })
    return this.formulas.or(
      parts.map((part, i) => this.formulas.and([part, ...clashes[i]!.map((other) => this.formulas.not(other))]))
    )
  }

  /** As `normalOf`; a schema that is refused counts as anything. */
  private readonly tryNormal = (formula: Formula): Normal.Normal => {
    try {
      return this.normalOf(formula)
    } catch (cause) {
      if (!(cause instanceof Refusal)) throw cause
      return Normal.anything(this.formulas)
    }
  }

  private formulaAt(node: SchemaNode, value: unknown, ...steps: ReadonlyArray<string | number>): Formula {
    return this.formulaOf(this.documents.below(node, value, child(node.path, ...steps)))
  }

  /** The formula of a schema. */
  formulaOf(schema: boolean | SchemaNode): Formula {
    if (typeof schema !== "boolean") return this.formulas.schema(schema)
    return schema ? this.formulas.true_ : this.formulas.false_
  }

  private oneOfValues(values: ReadonlyArray<Json>): Normal.Normal {
    const texts = values.filter((value) => typeof value === "string")
    const numbers = values.filter((value) => typeof value === "number")
    const scalars = {
      ...Normal.nothing,
      number: numbers.length === 0 ? CharDfa.nothing : Numbers.constants(numbers),
      strings: texts.length === 0 ? [] : [{ ...Normal.anyString, dfa: CharDfa.words(texts) }]
    }
    const others = values.filter((value) => typeof value !== "string" && typeof value !== "number")
    return others.map((value) => this.constant(value)).reduce(Normal.or, scalars)
  }

  /** The values equal to one value. */
  private constant(value: Exclude<Json, string | number>): Normal.Normal {
    const { nothing } = Normal
    if (value === null) return { ...nothing, null: true }
    if (typeof value === "boolean") return { ...nothing, true: value, false: !value }
    const { constant, false_ } = this.formulas
    const formula = (part: Json): Formula =>
      this.formulas.schema({ value: constant.call(this.formulas, part), path: "#", base: "" })
    if (isArray(value)) {
      const shape = { ...Normal.anyArray(this.formulas), prefix: value.map(formula), rest: false_ }
      return { ...nothing, arrays: [{ ...shape, min: value.length, max: value.length }] }
    }
    const named = new Map(Object.entries(value).map(([name, part]) => [name, formula(part)]))
    const regions = [{ names: CharDfa.anything, value: false_ }]
    return {
      ...nothing,
      objects: [{ ...Normal.anyObject(this.formulas), named, required: new Set(named.keys()), regions }]
    }
  }
}

/** Schemas that apply to one value by way of each other. */
const maxNesting = 200
