/**
 * An interpreter with a budget. Every node is a step, and every text and list that it makes is charged. Operations that amplify
 * (`replace`, `join`, `indent`, `tojson`, printing a list) are measured before they run.
 */
import { Machine, type Node, type Scope, type Value, withValue } from "./jinja.ts"
import type { Meter } from "./meter.ts"

// Charges in characters, approximate: a value beside its text, an entry of a list, a method looked up on a text.
const perValue = 16
const perList = 64
const perEntry = 4
const perLookup = 128
/** For each iteration of a loop while it runs: the engine keeps a scope for each. */
const perRound = 16
/** For every part of a split text. */
const perPart = 64
/** A character of JSON can become an escape of six. */
const escaped = 6

/** Nodes that make no new value, or whose text is charged with its block. */
const references = new Set([
  "Identifier",
  "StringLiteral",
  "IntegerLiteral",
  "FloatLiteral",
  "Ternary",
  "SelectExpression",
  "Program",
  "If"
])

const conversions = new Set(["tojson", "string", "join"])
const searches = new Set(["selectattr", "rejectattr", "map", "unique"])

/** The first two values of a node's children. */
interface Frame {
  readonly node: Node | undefined
  first: Value | undefined
  second: Value | undefined
  count: number
  /** The charge to release when the node is done. */
  held: number
}

const isText = (value: Value | undefined): value is Value & { readonly value: string } =>
  typeof value?.value === "string"

const isList = (value: Value | undefined): value is Value & { readonly value: ReadonlyArray<Value> } =>
  Array.isArray(value?.value)

const isMapping = (value: Value | undefined): value is Value & { readonly value: ReadonlyMap<string, Value> } =>
  value?.value instanceof Map

const isContainer = (value: Value | undefined): value is Value => isList(value) || isMapping(value)

const sizeOf = (value: Value): number => {
  if (isText(value)) return perValue + value.value.length
  if (isList(value)) return perList + perEntry * value.value.length
  if (isMapping(value)) return perList + 2 * perEntry * value.value.size
  return 0
}

/** Evaluates within the meter's budget. */
export class Bounded extends Machine {
  protected readonly meter: Meter
  private frame: Frame = { node: undefined, first: undefined, second: undefined, count: 0, held: 0 }
  private readonly printed = new WeakSet<Node>()
  private readonly filtered = new Map<unknown, readonly [name: string, operand: Value]>()

  constructor(scope: Scope, meter: Meter) {
    super(scope)
    this.meter = meter
  }

  override evaluate(node: Node | undefined, scope: Scope): Value {
    if (node === undefined) return super.evaluate(node, scope)
    const { frame: outer, meter } = this
    const own: Frame = { node, first: undefined, second: undefined, count: 0, held: 0 }
    meter.step()
    meter.enter()
    this.frame = own
    try {
      const value = this.settle(own, this.evaluateNode(node, scope))
      this.report(outer, value)
      return value
    } finally {
      this.frame = outer
      meter.release(own.held)
      meter.leave()
    }
  }

  /** What the engine, or a subclass, makes of a node. */
  protected evaluateNode(node: Node, scope: Scope): Value {
    return super.evaluate(node, scope)
  }

  override evaluateBlock(statements: ReadonlyArray<Node>, scope: Scope): Value {
    this.meter.step()
    for (const statement of statements) this.printed.add(statement)
    const made = super.evaluateBlock(statements, scope)
    if (made.value !== "") this.meter.charge(sizeOf(made))
    return made
  }

  override applyFilter(operand: Value, filter: Node, scope: Scope): Value {
    const isCall = filter.type === "CallExpression"
    const name = String((isCall ? filter["callee"] as Node : filter)["value"])
    if (isContainer(operand)) this.beforeContainerFilter(name, operand)
    if (isText(operand) && name === "indent") this.beforeIndent(operand.value, 4)
    if (isText(operand) && name === "join") this.meter.require(perPart * operand.value.length)
    if (isCall) this.filtered.set(filter["args"], [name, operand])
    return super.applyFilter(operand, filter, scope)
  }

  override evaluateArguments(args: ReadonlyArray<Node>, scope: Scope): Arguments {
    const filtered = this.filtered.get(args)
    this.filtered.delete(args)
    const made = super.evaluateArguments(args, scope)
    if (filtered !== undefined) this.beforeFilterCall(filtered[0], filtered[1], made)
    return made
  }

  /** Charges a new value; if it is printed, there must be room for its text. */
  private settle({ first, node, second }: Frame, value: Value): Value {
    const { meter } = this
    if (this.printed.has(node!) && isContainer(value)) meter.require(textOf(value, meter))
    if (node!.type === "MemberExpression") {
      if (value.type !== "FunctionValue" || !isText(first)) {
        const isSlice = (node!["property"] as Node).type === "SliceExpression"
        if (isSlice) meter.charge(sizeOf(value))
        return value
      }
      meter.charge(perLookup)
      const method = node!["computed"] === true ? second?.value : (node!["property"] as Node)["value"]
      const call = value.value as (args: ReadonlyArray<Value>, scope: Scope) => Value
      return withValue(value, (args: ReadonlyArray<Value>, scope: Scope) => {
        if (method === "replace") this.beforeReplace(first.value, args)
        if (method === "split") this.beforeSplit(first.value, args[0])
        return call(args, scope)
      })
    }
    if (!references.has(node!.type)) meter.charge(sizeOf(value))
    return value
  }

  /** Reports a value to the enclosing node, which may have both of its operands then. */
  private report(outer: Frame, value: Value): void {
    const { meter } = this
    outer.count++
    if (outer.count === 1) {
      outer.first = value
      if (outer.node?.type === "For" && isContainer(value)) {
        outer.held = perRound * (isList(value) ? value.value.length : value.value instanceof Map ? value.value.size : 0)
        meter.charge(outer.held)
      }
      // a text is cut up into characters before it is sliced
      const property = outer.node?.["property"] as Node | undefined
      if (outer.node?.type === "MemberExpression" && property?.type === "SliceExpression" && isText(value)) {
        meter.require(perEntry * value.value.length)
      }
    } else if (outer.count === 2) {
      outer.second = value
      if (outer.node?.type === "BinaryExpression") {
        this.beforeBinary((outer.node["operator"] as Value).value as string, outer.first!, value)
      }
    }
  }

  private beforeBinary(operator: string, left: Value, right: Value): void {
    const { meter } = this
    const length = (value: Value): number => {
      if (isText(value)) return value.value.length
      return isContainer(value) ? textOf(value, meter) : 32
    }
    switch (operator) {
      case "+":
      case "~": {
        const isConcat = operator === "+" && isList(left) && isList(right)
        return meter.require(isConcat ? sizeOf(left) + sizeOf(right) : length(left) + length(right))
      }
      case "==":
      case "!=":
        // a list is turned into text to be compared with one
        if (isContainer(left) !== isContainer(right)) meter.require(length(isContainer(left) ? left : right))
        return
      case "in":
      case "not in":
        if (isList(right)) return meter.work(right.value.length * (isText(left) ? left.value.length + 1 : 1))
        if (isText(left) && isText(right)) meter.work(left.value.length * right.value.length)
    }
  }

  private beforeContainerFilter(name: string, operand: Value): void {
    const { meter } = this
    if (conversions.has(name)) meter.require(textOf(operand, meter))
    const entries = isList(operand) ? operand.value.length : 0
    if (name === "sort" || name === "dictsort") {
      meter.work(measure(operand, meter).characters * 2 * Math.ceil(Math.log2(entries + 2)))
    }
    if (searches.has(name)) measure(operand, meter)
  }

  private beforeFilterCall(name: string, operand: Value, [args, named]: Arguments): void {
    const { meter } = this
    const text = (value: Value | undefined): string => isText(value) ? value.value : ""
    const number = (value: Value | undefined, otherwise: number): number =>
      typeof value?.value === "number" ? value.value : otherwise
    switch (name) {
      case "tojson": {
        if (!isContainer(operand)) return
        const { characters, depth, nodes } = measure(operand, meter)
        const separators = named.get("separators")
        const around = isList(separators) ? separators.value.reduce((sum, each) => sum + text(each).length, 0) : 2
        const indent = Math.max(0, number(named.get("indent"), 0)) * (depth + 1) + 1
        return meter.require(escaped * characters + nodes * (around + 2 * indent))
      }
      case "join": {
        const separator = text(args[0] ?? named.get("separator")).length
        const parts = isList(operand) ? operand.value.length : text(operand).length
        return meter.require(parts * separator + (isList(operand) ? measure(operand, meter).characters : 0))
      }
      case "indent":
        return this.beforeIndent(text(operand), number(args[0] ?? named.get("width"), 4))
      case "replace":
        return isText(operand) ? this.beforeReplace(operand.value, args) : undefined
      case "sort":
      case "map": {
        const path = text(args[2] ?? named.get("attribute")).length
        const entries = isList(operand) ? operand.value.length : 0
        return meter.work(entries * (path + 1) * 2 * Math.ceil(Math.log2(entries + 2)))
      }
    }
  }

  private beforeIndent(text: string, width: number): void {
    this.meter.require(text.length + (occurrences(text, "\n") + 1) * (Math.max(0, width) + perPart))
  }

  private beforeReplace(text: string, [sought, other]: ReadonlyArray<Value>): void {
    if (!isText(sought) || !isText(other)) return
    const found = this.count(text, sought.value)
    this.meter.require(text.length + found * (perPart + Math.max(0, other.value.length - sought.value.length)))
  }

  private beforeSplit(text: string, separator: Value | undefined): void {
    const parts = isText(separator) ? this.count(text, separator.value) : text.length / 2
    this.meter.require(text.length + (parts + 1) * perPart)
  }

  private count(text: string, sought: string): number {
    if (sought === "") return text.length + 1
    this.meter.work(text.length * sought.length)
    return occurrences(text, sought)
  }
}

/** The values of a call, in order and by name. */
type Arguments = readonly [positional: ReadonlyArray<Value>, named: ReadonlyMap<string, Value>]

const occurrences = (text: string, sought: string): number => {
  let count = 0
  for (let at = text.indexOf(sought); at >= 0; at = text.indexOf(sought, at + sought.length)) count++
  return count
}

/** How long a value is as JSON, at most. */
const textOf = (value: Value, meter: Meter): number => {
  const { characters, nodes } = measure(value, meter)
  return escaped * characters + 4 * nodes
}

/**
 * The characters and nodes of a value as a tree. Lists that share parts can be exponentially large as trees: measuring stops at the
 * budget for work.
 */
const measure = (value: Value, meter: Meter) => {
  const found = { characters: 0, nodes: 0, depth: 0 }
  const visit = (each: Value, level: number): void => {
    found.nodes++
    found.depth = Math.max(found.depth, level)
    if (isText(each)) found.characters += each.value.length
    else if (isList(each)) { for (const item of each.value) visit(item, level + 1) }
    else if (isMapping(each)) {
      for (const [key, item] of each.value) {
        found.characters += key.length
        visit(item, level + 1)
      }
    } else found.characters += 32
    meter.work(found.characters + 256 * found.nodes)
  }
  visit(value, 0)
  return found
}
