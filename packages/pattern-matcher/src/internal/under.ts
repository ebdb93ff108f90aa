import * as DType from "@tg/core-uop/DType"
import { key, type Range, type UOp } from "@tg/core-uop/UOp"
import * as Sum from "../Sum.ts"
import { type Fact, factsOf, flatten, narrow, negated } from "./clauses.ts"
import { not } from "./values.ts"

type Simplify = (root: UOp) => UOp

/**
 * Nodes whose inside a condition must not change. A load runs where the condition is false too, so its own gate has to
 * stay as it is; a loop variable is known by its size.
 */
const isOpaque = (node: UOp): boolean =>
  node.op === "LOAD" || node.op === "RANGE" || node.op === "SPECIAL" || node.op === "REDUCE"

/** Nodes under an expression, sources first, without the inside of opaque ones. */
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

/** Operations an expression takes, divisions counted as several. */
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

/** Stands for a node that has these bounds where the condition holds. The name comes from the structure. */
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

/** Simplifies with replacements, undoes them, and keeps the cheaper of the two. */
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

/** Under `clauses`, each of them is true, and what it negates is false. */
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

/** Under facts, single terms have sharper bounds. */
const underBounds = (facts: ReadonlyArray<Fact>, expression: UOp, simplify: Simplify): UOp => {
  const known = narrow(facts)
  if (known === undefined) return expression
  const map = new Map<UOp, UOp>()
  const back = new Map<UOp, UOp>()
  for (const [term, range] of known) {
    if (term.op === "MUL" || term.op === "CONST") continue
    const variable = stand(term, range)
    map.set(term, variable)
    if (variable.op === "VAR") back.set(variable, term)
  }
  return map.size === 0 ? expression : attempt(expression, simplify, (x) => replace(x, map), back)
}

/** Under one fact about several terms, their sum has sharper bounds. */
const underSum = (fact: Fact, expression: UOp, simplify: Simplify): UOp => {
  if (fact.terms.length < 2) return expression
  // a positive first coefficient, so that the part is found in either direction
  const sign = Math.sign(fact.coefficients[0]!)
  const part = Sum.scale(Sum.withoutConstant(fact), sign)
  const { max, min } = Sum.bounds(part)
  const range: Range = sign > 0
    ? { min, max: Math.min(max, -fact.constant) }
    : { min: Math.max(min, fact.constant), max }
  if (range.min > range.max || (range.min === min && range.max === max)) return expression
  const whole = Sum.toNode(part, expression.arena)
  const variable = stand(whole, range)
  const back = variable.op === "VAR" ? new Map([[variable, whole]]) : new Map<UOp, UOp>()
  return attempt(expression, simplify, (x) => replaceTerms(x, part, variable), back)
}

/** `expression`, simplified where `condition` (both in normal form) is known to hold. */
export const under = (condition: UOp, expression: UOp, simplify: Simplify): UOp => {
  const clauses = flatten(condition)
  const facts = clauses.flatMap(factsOf)
  let result = underTruth(clauses, expression, simplify)
  result = underBounds(facts, result, simplify)
  for (const fact of facts) result = underSum(fact, result, simplify)
  return result
}

/** `expression`, simplified where `condition` is known to be false. */
export const unless = (condition: UOp, expression: UOp, simplify: Simplify): UOp =>
  under(not(condition), expression, simplify)
