/** Values that nearly fit a schema: some do, some do not. */
import type { Random } from "./randomSchemas.ts"

type Schema = Readonly<Record<string, unknown>>

const pick = <A>(random: Random, list: ReadonlyArray<A>): A => list[random(list.length)]!

const texts = [
  "",
  "a",
  "abc",
  "aabbcc",
  "x",
  "12",
  "1234",
  "12345",
  "abé",
  "a word",
  "Anna",
  "一",
  "red",
  "long text that goes on"
]
const numbers = [0, 1, -1, 2, 3, 7, 14, 25, 0.5, 2.5, -7.5, 0.1, 10, 99, 100, 1e6, 123456789.125, -3]
const others: ReadonlyArray<unknown> = [null, true, false, [], {}, ["a"], { a: 1 }]

const scalar = (random: Random): unknown => pick(random, [...texts, ...numbers, ...others])

/** A value that is made along a schema. Keywords that it does not know make it wrong sometimes, as it should be. */
export const sample = (schema: unknown, random: Random, root: Schema, depth = 4): unknown => {
  if (typeof schema !== "object" || schema === null || depth < 0) return scalar(random)
  const of = schema as Schema
  const inner = (part: unknown): unknown => sample(part, random, root, depth - 1)
  if (Array.isArray(of["enum"])) return pick(random, of["enum"] as ReadonlyArray<unknown>)
  if ("const" in of) return of["const"]
  if (typeof of["$ref"] === "string") {
    const [, , name] = of["$ref"].split("/")
    return inner((root["$defs"] as Schema)[name!])
  }
  for (const keyword of ["anyOf", "oneOf", "allOf"]) {
    if (Array.isArray(of[keyword])) return inner(pick(random, of[keyword] as ReadonlyArray<unknown>))
  }
  switch (pick(random, [of["type"]].flat())) {
    case "null":
      return null
    case "boolean":
      return random(2) === 0
    case "integer":
      return pick(random, numbers.filter(Number.isInteger))
    case "number":
      return pick(random, numbers)
    case "string":
      return pick(random, texts)
    case "array": {
      const prefix = (of["prefixItems"] ?? []) as ReadonlyArray<unknown>
      return Array.from({ length: random(4) }, (_, i) => inner(prefix[i] ?? of["items"]))
    }
    case "object": {
      const required = (of["required"] ?? []) as ReadonlyArray<string>
      const entries = Object.entries((of["properties"] ?? {}) as Schema)
      const kept = entries.filter(([name]) => required.includes(name) || random(3) === 0)
      return Object.fromEntries(kept.map(([name, part]) => [name, inner(part)]))
    }
    default:
      return scalar(random)
  }
}

/** The value with one thing changed somewhere in it. */
export const mutated = (value: unknown, random: Random): unknown => {
  if (random(4) === 0 || typeof value !== "object" || value === null) return changed(value, random)
  if (Array.isArray(value)) {
    const at = random(value.length + 1)
    if (at === value.length || random(4) === 0) return [...value, scalar(random)]
    return random(3) === 0 ? value.toSpliced(at, 1) : value.with(at, mutated(value[at], random))
  }
  const entries = Object.entries(value)
  const at = random(entries.length + 1)
  if (at === entries.length) {
    return { ...value, [pick(random, ["a", "name", "x1", "xy", "zzz", "toolong"])]: scalar(random) }
  }
  const [name, inner] = entries[at]!
  if (random(3) === 0) return Object.fromEntries(entries.toSpliced(at, 1))
  return { ...value, [name]: mutated(inner, random) }
}

const changed = (value: unknown, random: Random): unknown => {
  if (typeof value === "number" && random(2) === 0) return value + pick(random, [-1, 1, 0.5, 1e-9])
  if (typeof value === "string" && random(2) === 0) return random(2) === 0 ? `${value}a` : value.slice(1)
  return scalar(random)
}
