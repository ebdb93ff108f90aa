import type { UOp } from "@tg/core-uop/UOp"
import { alu, constantLike, isBool, not } from "../internal/values.ts"
import { rule, rules } from "../PatternMatcher.ts"
import * as P from "../UPat.ts"

const c = P.any("c")
const d = P.any("d")
const x = P.any("x")
const y = P.any("y")

const where = (condition: UOp, a: UOp, b: UOp): UOp => a.arena.make("WHERE", a.dtype, [condition, a, b])

/** Choices. */
export const choices = rules("where", [
  rule("true", P.where(P.yes, x, y), ({ x }) => x),
  rule("false", P.where(P.no, x, y), ({ y }) => y),
  rule("same", P.where(c, x, x), ({ x }) => x),
  rule("not", P.where(P.not(c), x, y), ({ c, x, y }) => where(c, y, x)),
  rule("condition", P.where(c, P.yes, P.no), ({ c }) => c),
  rule("negation", P.where(c, P.no, P.yes), ({ c }) => not(c)),
  rule("and", P.where(c, x, P.no), ({ c, x }) => alu("AND", c, x), { when: isBool }),
  rule("or", P.where(c, P.yes, x), ({ c, x }) => alu("OR", c, x), { when: isBool }),
  rule("and-not", P.where(c, P.no, x), ({ c, x }) => alu("AND", not(c), x), { when: isBool }),
  rule("or-not", P.where(c, x, P.yes), ({ c, x }) => alu("OR", not(c), x), { when: isBool }),
  rule("then-same", P.where(c, P.where(c, x, P.anything), y), ({ c, x, y }) => where(c, x, y)),
  rule("else-same", P.where(c, x, P.where(c, P.anything, y)), ({ c, x, y }) => where(c, x, y)),
  rule("both", P.where(c, P.where(d, x, y), y), ({ c, d, x, y }) => where(alu("AND", c, d), x, y)),
  rule("either", P.where(c, x, P.where(d, x, y)), ({ c, d, x, y }) => where(alu("OR", c, d), x, y)),
  rule("self-then", P.where(c, c, y), ({ c, y }) => alu("OR", c, y)),
  rule("self-else", P.where(c, x, c), ({ c, x }) => alu("AND", c, x)),
  rule(
    "known-true",
    P.where(c, P.op(["AND", "OR"], c, y), x),
    ({ c, x, y }, node) => where(c, node.src[1]!.op === "AND" ? y : constantLike(y, true), x)
  )
])
