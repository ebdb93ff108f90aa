/**
 * Provenance (taint tracking): which characters of a rendered template come from the template itself.
 *
 * The texts a template prints are written in a private alphabet, those it is given stay as they are. So that it behaves the same, it
 * sees plain text wherever it decides something: in comparisons, subscripts, and arguments of string searches.
 */
import type { Alphabet } from "./alphabet.ts"
import { Bounded } from "./bounded.ts"
import { type Machine, type Node, type Scope, type Value, withValue } from "./jinja.ts"
import type { Meter } from "./meter.ts"

const comparisons = new Set(["==", "!=", "in", "not in", "<", ">", "<=", ">="])
const predicates = new Set(["startswith", "endswith"])
const searches = new Set(["split", "replace"])
const functions = new Set(["raise_exception", "range", "strftime_now"])
const conversions = new Set([
  "upper",
  "lower",
  "title",
  "capitalize",
  "int",
  "float",
  "selectattr",
  "rejectattr",
  "sort"
])

/** Instruments a parsed template in place. `tracingMachine` runs the result. */
export const trace = (node: Node, alphabet: Alphabet): Node => {
  const visit = (child: Node): Node => trace(child, alphabet)
  switch (node.type) {
    case "StringLiteral":
      return Object.assign(node, { value: alphabet.mark(node["value"] as string) })
    case "ObjectLiteral": {
      const entries = node["value"] as Map<Node, Node>
      for (const [key, value] of entries) entries.set(key, visit(value))
      return node
    }
    case "BinaryExpression": {
      const wrap = comparisons.has((node["operator"] as Value).value as string) ? plain : same
      return Object.assign(node, { left: wrap(visit(node["left"] as Node)), right: wrap(visit(node["right"] as Node)) })
    }
    case "MemberExpression": {
      node["object"] = visit(node["object"] as Node)
      const property = node["property"] as Node
      if (node["computed"] === true && property.type !== "StringLiteral" && property.type !== "SliceExpression") {
        node["property"] = plain(visit(property))
      }
      return node
    }
    case "CallExpression":
      return traceCall(children(node, visit))
    case "FilterExpression":
    case "FilterStatement":
      return traceFilter(node, visit)
    case "TestExpression":
      return Object.assign(node, { operand: plain(visit(node["operand"] as Node)) })
    default:
      return children(node, visit)
  }
}

const same = (node: Node): Node => node

// The engine dispatches on the class of nodes, so a wrapper has the prototype of the node inside.
const wrapper = (inner: Node, fields: Node): Node => Object.assign(Object.create(Object.getPrototypeOf(inner)), fields)

const plain = (inner: Node): Node => wrapper(inner, { type: "Plain", inner })

const needle = (inner: Node, hay: Node): Node => wrapper(inner, { type: "Needle", inner, hay })

const isNode = (value: unknown): value is Node => typeof value === "object" && value !== null && "type" in value

const children = (node: Node, visit: (child: Node) => Node): Node => {
  for (const [name, value] of Object.entries(node)) {
    if (name === "operator") continue
    if (Array.isArray(value)) node[name] = value.map((item: unknown) => isNode(item) ? visit(item) : item)
    else if (isNode(value)) node[name] = visit(value)
  }
  return node
}

const mapArguments = (call: Node, map: (argument: Node, index: number) => Node): Node => {
  call["args"] = (call["args"] as ReadonlyArray<Node>).map((argument, index) =>
    argument.type === "KeywordArgumentExpression"
      ? Object.assign(argument, { value: map(argument["value"] as Node, index) })
      : argument.type.endsWith("SpreadExpression")
      ? argument
      : map(argument, index)
  )
  return call
}

const traceCall = (call: Node): Node => {
  const callee = call["callee"] as Node
  if (callee.type === "Identifier" && functions.has(callee["value"] as string)) return mapArguments(call, plain)
  if (callee.type !== "MemberExpression" || callee["computed"] === true) return call
  const method = (callee["property"] as Node)["value"] as string
  const hay = callee["object"] as Node
  if (predicates.has(method) || conversions.has(method)) callee["object"] = plain(hay)
  if (predicates.has(method)) return mapArguments(call, plain)
  if (method === "get") return mapArguments(call, (argument, index) => index === 0 ? plain(argument) : argument)
  if (searches.has(method)) {
    return mapArguments(call, (argument, index) => index === 0 ? needle(argument, hay) : argument)
  }
  return call
}

const traceFilter = (node: Node, visit: (child: Node) => Node): Node => {
  const filter = node["filter"] as Node
  const call = filter.type === "CallExpression" ? filter : undefined
  const name = ((call?.["callee"] as Node | undefined) ?? filter)["value"] as string
  if (node.type === "FilterStatement") {
    if (call !== undefined) mapArguments(call, visit)
    return Object.assign(node, { body: (node["body"] as ReadonlyArray<Node>).map(visit) })
  }
  const operand = visit(node["operand"] as Node)
  node["operand"] = conversions.has(name) ? plain(operand) : operand
  if (call === undefined || name === "selectattr" || name === "rejectattr") return node // these take literals only
  mapArguments(call, (argument, index) => {
    const traced = visit(argument)
    if (name === "replace" && index === 0) return needle(traced, operand)
    return name === "map" || name === "sort" || name === "tojson" ? plain(traced) : traced
  })
  return node
}

/** Evaluates the nodes that `trace` puts in. */
export const tracingMachine = (scope: Scope, alphabet: Alphabet, meter: Meter): Machine =>
  new Tracing(scope, alphabet, meter)

class Tracing extends Bounded {
  readonly alphabet: Alphabet

  constructor(scope: Scope, alphabet: Alphabet, meter: Meter) {
    super(scope, meter)
    this.alphabet = alphabet
  }

  protected override evaluateNode(node: Node, scope: Scope): Value {
    if (node.type === "Plain") return this.toPlain(this.evaluate(node["inner"] as Node, scope), 2)
    if (node.type !== "Needle") return super.evaluateNode(node, scope)
    const sought = this.evaluate(node["inner"] as Node, scope)
    const hay = this.evaluate(node["hay"] as Node, scope)
    if (typeof sought.value !== "string" || typeof hay.value !== "string") return this.toPlain(sought, 0)
    this.meter.work(sought.value.length * hay.value.length)
    const isPrinted = hay.value.includes(sought.value)
    return isPrinted ? sought : this.toPlain(sought, 0)
  }

  /** Strings become plain, also inside `depth` levels of arrays and mappings. What needs no change stays the same. */
  toPlain(value: Value, depth: number): Value {
    if (typeof value.value === "string") {
      return this.alphabet.touches(value.value) ? withValue(value, this.alphabet.unmark(value.value)) : value
    }
    if (depth === 0 || (value.type !== "ArrayValue" && value.type !== "TupleValue" && value.type !== "ObjectValue")) {
      return value
    }
    let isChanged = false
    const inside = (item: Value): Value => {
      const made = this.toPlain(item, depth - 1)
      isChanged ||= made !== item
      return made
    }
    const content = Array.isArray(value.value)
      ? value.value.map(inside)
      : new Map([...value.value as ReadonlyMap<string, Value>].map(([key, item]) => [key, inside(item)]))
    return isChanged ? withValue(value, content) : value
  }
}
