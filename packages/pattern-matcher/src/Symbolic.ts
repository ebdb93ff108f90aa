import type { Arena, Range, UOp } from "@tg/core-uop/UOp"
import { graphRewrite } from "./GraphRewrite.ts"
import { make, type PatternMatcher, type Trace } from "./PatternMatcher.ts"
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

/** All rules of the simplifier. */
export const matcher: PatternMatcher<Simplifier> = make<Simplifier>(...tables)

// results depend on nothing but the node, so an arena keeps them for its lifetime
const memos = new WeakMap<Arena, Map<UOp, UOp>>()

const memoOf = (arena: Arena): Map<UOp, UOp> => {
  let memo = memos.get(arena)
  if (memo === undefined) memos.set(arena, memo = new Map())
  return memo
}

/**
 * The graph with every rule applied to the fixpoint: the same values, fewer or cheaper nodes. Integer and boolean rules
 * are exact, float rules hold for every float. Effects keep their order. A trace sees every rewrite.
 */
export const simplify = (root: UOp, options: { readonly trace?: Trace } = {}): UOp =>
  options.trace === undefined
    ? graphRewrite(root, matcher, { context, memo: memoOf(root.arena) })
    : graphRewrite(root, matcher, { context, trace: options.trace })

const context: Simplifier = { simplify: (root) => simplify(root) }

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

/** The values of an index expression where `condition` holds; where it never does, some single value. */
export const boundsUnder = (condition: UOp, x: UOp): Range => inBounds(simplify(condition), simplify(x))
