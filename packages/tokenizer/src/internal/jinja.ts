/** The template engine behind a small typed face: its own types do not resolve under NodeNext. */
import * as engine from "@huggingface/jinja"
import type { Meter } from "./meter.ts"

/** A node of a parsed template. Children are properties: nodes, arrays of nodes, or a map from nodes to nodes. */
export interface Node {
  type: string
  [property: string]: unknown
}

/** A value while a template runs. Strings, arrays and mappings hold a string, an array and a `Map` of values. */
export interface Value {
  readonly type: string
  readonly value: unknown
}

/** The variables of a template by scope. */
export interface Scope {
  readonly set: (name: string, value: unknown) => unknown
}

/**
 * The interpreter of templates. A subclass may evaluate nodes of its own, and observe steps that are not nodes. These methods are not
 * public in the engine, so its version is pinned, and tests fail without them.
 */
export interface Machine {
  run(program: Node): Value
  evaluate(node: Node | undefined, scope: Scope): Value
  /** Statements one after the other, as one text. */
  evaluateBlock(statements: ReadonlyArray<Node>, scope: Scope): Value
  applyFilter(operand: Value, filter: Node, scope: Scope): Value
  /** The arguments of a call, or of a filter. */
  evaluateArguments(
    args: ReadonlyArray<Node>,
    scope: Scope
  ): readonly [positional: ReadonlyArray<Value>, named: ReadonlyMap<string, Value>]
}

/** The engine's interpreter. */
export const Machine = engine.Interpreter as unknown as new(scope: Scope) => Machine

const Environment = engine.Environment as unknown as new() => Scope

/** Reads a template. Chat templates are written for `trim_blocks` and `lstrip_blocks`. */
export const parse = (source: string): Node =>
  engine.parse(engine.tokenize(source, { lstrip_blocks: true, trim_blocks: true })) as unknown as Node

/** A scope with the usual globals and the given variables, which win. */
export const scope = (variables: Readonly<Record<string, unknown>>, now: Date, meter: Meter): Scope => {
  const made = new Environment()
  for (const [name, value] of Object.entries({ ...globals(now, meter), ...variables })) made.set(name, value)
  return made
}

/** A value of the same type with another content. */
export const withValue = (like: Value, value: unknown): Value => {
  const Same = like.constructor as new(value: unknown) => Value
  return new Same(value)
}

/** The template refuses a conversation. */
export class Raised extends Error {}

const globals = (now: Date, meter: Meter): Record<string, unknown> => ({
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  range: (first: unknown, second?: unknown, step: unknown = 1) => range(meter, first, second, step),
  raise_exception: (reason: unknown) => {
    throw new Raised(printable(reason))
  },
  strftime_now: (format: unknown) => {
    const text = printable(format)
    meter.require(perField * text.length)
    return strftime(now, text)
  }
})

// a list may be exponentially large as text
const printable = (value: unknown): string =>
  typeof value === "object" && value !== null ? "a value that is no text" : String(value)

/** Characters that an entry of a range counts for: each is a value of its own. */
const perNumber = 32
/** Of the name of a month or a day. */
const perField = 9

const range = (meter: Meter, ...given: readonly [unknown, unknown, unknown]): ReadonlyArray<number> => {
  const [first, second, step] = given
  const [start, stop] = second === undefined ? [0, first] : [first, second]
  if (typeof start !== "number" || typeof stop !== "number" || typeof step !== "number") {
    throw new Error("range() needs numbers")
  }
  if (step === 0) throw new Error("range() needs a step other than 0")
  const length = Math.max(0, Math.ceil((stop - start) / step))
  if (Number.isNaN(length)) throw new Error("range() needs numbers")
  meter.charge(perNumber * length)
  return Array.from({ length }, (_, i) => start + i * step)
}

const months = "January February March April May June July August September October November December".split(" ")
const days = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ")

const two = (value: number): string => String(value).padStart(2, "0")

// Python's directives, in local time and English, as the templates' authors saw them.
const strftime = (now: Date, format: string): string => {
  const fields: Readonly<Record<string, string>> = {
    Y: String(now.getFullYear()),
    y: two(now.getFullYear() % 100),
    m: two(now.getMonth() + 1),
    d: two(now.getDate()),
    e: String(now.getDate()).padStart(2),
    B: months[now.getMonth()]!,
    b: months[now.getMonth()]!.slice(0, 3),
    A: days[now.getDay()]!,
    a: days[now.getDay()]!.slice(0, 3),
    H: two(now.getHours()),
    I: two((now.getHours() + 11) % 12 + 1),
    p: now.getHours() < 12 ? "AM" : "PM",
    M: two(now.getMinutes()),
    S: two(now.getSeconds()),
    "%": "%"
  }
  return format.replace(/%(-?)([a-zA-Z%])/g, (directive, dash: string, letter: string) => {
    const field = fields[letter]
    if (field === undefined) return directive
    return dash === "" ? field : field.replace(/^[ 0](?=.)/, "")
  })
}
