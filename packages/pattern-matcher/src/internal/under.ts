import * as DType from "@tg/core-uop/DType"
import { key, type Range, type UOp } from "@tg/core-uop/UOp"
import * as Sum from "../Sum.ts"
import { type Fact, factsOf, flatten, narrow, negated } from "./clauses.ts"
import { decisions } from "./decisions.ts"
import { slot } from "./slot.ts"
import { not } from "./values.ts"

type Simplify = (root: UOp) => UOp

/**
 * Nodes whose sources a condition must not change. A load executes where the condition is false too, so its gate must stay; the
 * identity of a loop variable includes its size.
 */
const isOpaque = (node: UOp): boolean =>
  node.op === "LOAD" || node.op === "RANGE" || node.op === "SPECIAL" || node.op === "REDUCE"

/** Nodes under an expression, sources first, without the sources of opaque ones. */
const inside = (root: UOp): ReadonlyArray<UOp> => {
  const done = new Set<UOp>()
  const order: Array<UOp> = []
  const stack: Array<readonly [UOp, boolean]> = [[root, false]]
  while (stack.length > 0) {
    const [node, ready] = stack.pop()!
    if (done.has(node)) continue
    if (ready || isOpaque(node)) {
      done.add(node)
      order.push(node)
      continue
    }
    stack.push([node, true])
    for (let i = node.src.length - 1; i >= 0; i--) stack.push([node.src[i]!, false])
  }
  return order
}

const weight = (node: UOp): number =>
  node.op === "CONST" ? 0 : node.op === "FLOORDIV" || node.op === "FLOORMOD" || node.op === "WHERE" ? 4 : 1

/** The weighted number of operations of an expression; divisions count as several. */
const cost = (root: UOp): number => inside(root).reduce((n, node) => n + weight(node), 0)

/** Replaces nodes, the outermost first; `rest` may rewrite what is rebuilt. */
const replace = (root: UOp, map: ReadonlyMap<UOp, UOp>, rest: (node: UOp) => UOp = (node) => node): UOp => {
  const done = new Map(map)
  for (const node of inside(root)) {
    if (done.has(node)) continue
    const changed = !isOpaque(node) && node.src.some((s) => done.get(s) !== s)
    done.set(node, rest(changed ? node.with(node.src.map((s) => done.get(s)!)) : node))
  }
  return done.get(root)!
}

/** A fresh variable for a node, with the bounds it has where the condition holds. Its name is the structural key. */
const stand = (node: UOp, { max, min }: Range): UOp =>
  min === max
    ? node.arena.make("CONST", DType.index, [], min)
    : node.arena.make("VAR", DType.index, [], { name: `~${key(node)}`, min, max })

/** Occurrences of several terms of a sum, in the same proportion, become one variable. */
const replaceTerms = (expression: UOp, part: Sum.Sum, by: UOp): UOp =>
  replace(expression, new Map(), (node) => {
    if (node.dtype !== DType.index || (node.op !== "ADD" && node.op !== "MUL")) return node
    const sum = Sum.of(node)
    const m = Sum.coefficientOf(sum, part.terms[0]!) / part.coefficients[0]!
    if (m === 0 || !Number.isInteger(m)) return node
    if (part.terms.some((t, i) => Sum.coefficientOf(sum, t) !== m * part.coefficients[i]!)) return node
    return Sum.toNode(Sum.add(Sum.addScaled(sum, part, -m), Sum.scale(Sum.of(by), m)), node.arena)
  })

/** Simplifies under a substitution, substitutes back, and keeps the cheaper expression. */
const attempt = (
  expression: UOp,
  simplify: Simplify,
  there: (x: UOp) => UOp,
  back: ReadonlyMap<UOp, UOp>
): UOp => {
  const moved = there(expression)
  if (moved === expression) return expression
  const result = simplify(replace(simplify(moved), back))
  return cost(result) < cost(expression) ? result : expression
}

/** Replaces each clause by true, and what a negated clause negates by false. */
const underTruth = (clauses: ReadonlyArray<UOp>, expression: UOp, simplify: Simplify): UOp => {
  const map = new Map<UOp, UOp>()
  for (const clause of clauses) {
    map.set(clause, clause.arena.make("CONST", DType.bool, [], true))
    const inner = negated(clause)
    if (inner !== undefined) map.set(inner, clause.arena.make("CONST", DType.bool, [], false))
  }
  const result = replace(expression, map)
  return result === expression ? expression : simplify(result)
}

/** Simplifies with the tighter bounds of single terms. */
const underBounds = (
  facts: ReadonlyArray<Fact>,
  expression: UOp,
  nodes: ReadonlySet<UOp>,
  simplify: Simplify
): UOp => {
  const known = narrow(facts)
  if (known === undefined) return expression
  const map = new Map<UOp, UOp>()
  const back = new Map<UOp, UOp>()
  // bounds matter only to decisions, and to terms that become constant
  const decides = decisions(expression) > 0
  for (const [term, range] of known) {
    if (!nodes.has(term) || term.op === "MUL" || term.op === "CONST") continue
    if (!decides && range.min < range.max) continue
    const variable = stand(term, range)
    map.set(term, variable)
    if (variable.op === "VAR") back.set(variable, term)
  }
  return map.size === 0 ? expression : attempt(expression, simplify, (x) => replace(x, map), back)
}

/** The bounds that facts give to a sum without constant. */
const boundsOf = (part: Sum.Sum, facts: ReadonlyArray<Fact>): Range => {
  let { max, min } = Sum.bounds(part)
  for (const fact of facts) {
    const terms = Sum.withoutConstant(fact)
    if (Sum.equals(terms, part)) max = Math.min(max, -fact.constant)
    else if (Sum.equals(terms, Sum.scale(part, -1))) min = Math.max(min, fact.constant)
  }
  return { min, max }
}

/** Simplifies with the tighter bounds of a sum of several terms. */
const underSum = (
  part: Sum.Sum,
  facts: ReadonlyArray<Fact>,
  expression: UOp,
  nodes: ReadonlySet<UOp>,
  simplify: Simplify
): UOp => {
  if (decisions(expression) === 0 || !part.terms.every((t) => nodes.has(t))) return expression
  const free = Sum.bounds(part)
  const range = boundsOf(part, facts)
  if (range.min > range.max || (range.min === free.min && range.max === free.max)) return expression
  const whole = Sum.toNode(part, expression.arena)
  const variable = stand(whole, range)
  const back = variable.op === "VAR" ? new Map([[variable, whole]]) : new Map<UOp, UOp>()
  return attempt(expression, simplify, (x) => replaceTerms(x, part, variable), back)
}

/** The sums of several terms in the facts, each once, with a positive first coefficient. */
const partsOf = (facts: ReadonlyArray<Fact>): ReadonlyArray<Sum.Sum> => {
  const parts: Array<Sum.Sum> = []
  for (const fact of facts) {
    if (fact.terms.length < 2) continue
    const part = Sum.scale(Sum.withoutConstant(fact), Math.sign(fact.coefficients[0]!))
    if (!parts.some((p) => Sum.equals(p, part))) parts.push(part)
  }
  return parts
}

const derive = (condition: UOp, expression: UOp, simplify: Simplify): UOp => {
  const isBoolean = expression.dtype === DType.bool
  const clauses = flatten(condition)
  const facts = clauses.flatMap(factsOf)
  // an index expression contains conditions only in decisions
  let result = isBoolean || decisions(expression) > 0 ? underTruth(clauses, expression, simplify) : expression
  if (facts.length === 0) return result
  let nodes: ReadonlySet<UOp> = new Set(inside(result))
  const step = (next: UOp): void => {
    if (next === result) return
    result = next
    nodes = new Set(inside(result))
  }
  step(underBounds(facts, result, nodes, simplify))
  for (const part of partsOf(facts)) step(underSum(part, facts, result, nodes, simplify))
  return result
}

/** `expression`, simplified where `condition` (both in normal form) is known to hold. */
export const under = (condition: UOp, expression: UOp, simplify: Simplify): UOp => {
  if (expression.op === "CONST") return expression
  const known = slot(expression).under?.get(condition)
  if (known !== undefined) return known
  const result = derive(condition, expression, simplify)
  remember(expression, condition, result)
  // idempotent: the result is not simplified again
  if (result !== expression) remember(result, condition, result)
  return result
}

const remember = (expression: UOp, condition: UOp, result: UOp): void => {
  const cache = slot(expression)
  cache.under ??= new Map()
  cache.under.set(condition, result)
}

/** `expression`, simplified where `condition` is known to be false. */
export const unless = (condition: UOp, expression: UOp, simplify: Simplify): UOp =>
  under(not(condition), expression, simplify)
