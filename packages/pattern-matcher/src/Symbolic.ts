import type { Arena, Range, UOp } from "@tg/core-uop/UOp"
import { ArenaMemo, graphRewrite } from "./GraphRewrite.ts"
import { make, type PatternMatcher, type RuleTable, type Trace } from "./PatternMatcher.ts"
import { booleans } from "./rules/booleans.ts"
import { casts } from "./rules/casts.ts"
import { conditions, type Simplifier } from "./rules/conditions.ts"
import { constants } from "./rules/constants.ts"
import { floats } from "./rules/floats.ts"
import { index } from "./rules/index.ts"
import { integers } from "./rules/integers.ts"
import { memory } from "./rules/memory.ts"
import { choices } from "./rules/where.ts"
import { boundsUnder as inBounds } from "./internal/boundsUnder.ts"
import { under } from "./internal/under.ts"
import * as Sum from "./Sum.ts"

/** The tables of the simplifier, in the order they are tried. */
export const tables = [constants, index, booleans, choices, conditions, integers, floats, casts, memory] as const

/** Rule tables that expressions are simplified by. */
export interface Rules {
  readonly tables: ReadonlyArray<RuleTable<Simplifier>>
  readonly matcher: PatternMatcher<Simplifier>
  /** The simplifier by these rules, for rules that simplify under a condition. */
  readonly context: Simplifier
}

/** The rules of some tables, tried in this order. */
export const rulesOf = (tables: ReadonlyArray<RuleTable<Simplifier>>): Rules => {
  const made: Rules = {
    tables,
    matcher: make<Simplifier>(...tables),
    context: { simplify: (root) => simplify(root, { rules: made }) }
  }
  return made
}

/** The rules of `tables`: the default of an arena. */
export const usual: Rules = rulesOf(tables)

/** Results of an arena, for its lifetime: they depend on nothing but the node and the rules. */
interface Known {
  rules: Rules
  readonly memos: Map<Rules, ArenaMemo>
}

const knownOf = new WeakMap<Arena, Known>()

const known = (arena: Arena): Known => {
  let found = knownOf.get(arena)
  if (found === undefined) knownOf.set(arena, found = { rules: usual, memos: new Map() })
  return found
}

/**
 * Sets the rules by which expressions of an arena are simplified, in every pass. To be called by whoever makes the arena, before
 * anything is simplified there: nodes memoise normal forms.
 */
export const use = (arena: Arena, rules: Rules): void => {
  known(arena).rules = rules
}

/** The rules by which expressions of an arena are simplified. */
export const rulesIn = (arena: Arena): Rules => known(arena).rules

const memoOf = ({ memos }: Known, rules: Rules): ArenaMemo => {
  let memo = memos.get(rules)
  if (memo === undefined) memos.set(rules, memo = new ArenaMemo())
  return memo
}

/** Options of `simplify`. */
export interface Options {
  /** Told about every rewrite. With a trace the arena's memo is not used. */
  readonly trace?: Trace
  /** The rules; those of the arena if none are given. */
  readonly rules?: Rules
}

/**
 * Applies every rule to the fixpoint: the same values, fewer or cheaper nodes. Integer and boolean rules are exact, float rules
 * hold for every float. Effects keep their order.
 */
export const simplify = (root: UOp, { trace, rules: given }: Options = {}): UOp => {
  const own = known(root.arena)
  const rules = given ?? own.rules
  return trace === undefined
    ? graphRewrite(root, rules.matcher, { context: rules.context, memo: memoOf(own, rules) })
    : graphRewrite(root, rules.matcher, { context: rules.context, trace })
}

/** The largest constant known to divide an index expression (0 for the constant 0). */
export const divisor = (x: UOp): number => Sum.divisor(simplify(x))

/** `a - b`, when it is the same number for every value of the variables. */
export const difference = (a: UOp, b: UOp): number | undefined => {
  const d = Sum.sub(Sum.of(simplify(a)), Sum.of(simplify(b)))
  return Sum.isConstant(d) ? d.constant : undefined
}

/** The normal form of an index expression, simplified: terms, coefficients, constant. */
export const sum = (x: UOp): Sum.Sum => Sum.of(simplify(x))

/** An index or boolean expression, simplified where `condition` holds (elsewhere the result may be any value). */
export const simplifyUnder = (condition: UOp, expression: UOp): UOp =>
  under(simplify(condition), simplify(expression), simplify)

/** The bounds of an index expression where `condition` holds; if it never does, of some single value. */
export const boundsUnder = (condition: UOp, x: UOp): Range => inBounds(simplify(condition), simplify(x))
