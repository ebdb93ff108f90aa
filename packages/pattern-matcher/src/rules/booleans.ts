import { alu, constantLike, isBool, isFloat, not, valueOf } from "../internal/values.ts"
import { rule, rules } from "../PatternMatcher.ts"
import type { UOp } from "@tg/core-uop/UOp"
import * as P from "../UPat.ts"

const x = P.any("x")
const y = P.any("y")
const when = isBool
const comparesBools = (node: UOp): boolean => isBool(node.src[0]!)
const comparesNumbers = (node: UOp): boolean => !isFloat(node.src[0]!)

/** Boolean algebra. NOT is XOR with true. */
export const booleans = rules("booleans", [
  rule("and-true", P.and(x, P.yes), ({ x }) => x, { when }),
  rule("and-false", P.and(x, P.no), (_, node) => constantLike(node, false), { when }),
  rule("or-false", P.or(x, P.no), ({ x }) => x, { when }),
  rule("or-true", P.or(x, P.yes), (_, node) => constantLike(node, true), { when }),
  rule("xor-false", P.xor(x, P.no), ({ x }) => x, { when }),
  rule("and-self", P.and(x, x), ({ x }) => x, { when }),
  rule("or-self", P.or(x, x), ({ x }) => x, { when }),
  rule("xor-self", P.xor(x, x), (_, node) => constantLike(node, false), { when }),
  rule("not-not", P.not(P.not(x)), ({ x }) => x),
  rule("and-not", P.and(x, P.not(x)), (_, node) => constantLike(node, false), { when }),
  rule("or-not", P.or(x, P.not(x)), (_, node) => constantLike(node, true), { when }),
  rule("and-twice", P.and(P.and(x, y), x), (_, node) => node.src[0]!.op === "AND" ? node.src[0] : node.src[1], {
    when
  }),
  rule("or-twice", P.or(P.or(x, y), x), (_, node) => node.src[0]!.op === "OR" ? node.src[0] : node.src[1], { when }),
  rule("absorb-and", P.and(x, P.or(x, y)), ({ x }) => x, { when }),
  rule("absorb-or", P.or(x, P.and(x, y)), ({ x }) => x, { when }),
  rule("max", P.max(x, y), ({ x, y }) => alu("OR", x, y), { when }),
  rule("min", P.min(x, y), ({ x, y }) => alu("AND", x, y), { when }),
  rule("equal", P.eq(x, y), ({ x, y }) => not(x.arena.make("XOR", x.dtype, [x, y])), { when: comparesBools }),
  rule("not-equal", P.ne(x, y), ({ x, y }) => x.arena.make("XOR", x.dtype, [x, y]), { when: comparesBools }),
  rule("less", P.lt(x, y), ({ x, y }) => alu("AND", not(x), y), { when: comparesBools }),
  // NaN differs from itself, so these hold for floats too
  rule("not-equality", P.not(P.eq(x, y)), (_, node) => opposite(node, "CMPNE"), { when: onMachineValues }),
  rule("not-inequality", P.not(P.ne(x, y)), (_, node) => opposite(node, "CMPEQ")),
  rule("less-self", P.lt(x, x), (_, node) => constantLike(node, false)),
  rule("equal-self", P.eq(x, x), (_, node) => constantLike(node, true), { when: comparesNumbers }),
  rule("not-equal-self", P.ne(x, x), (_, node) => constantLike(node, false), { when: comparesNumbers })
])

/** Index conditions keep `!(a == b)`, the form of their clauses. */
function onMachineValues(node: UOp): boolean {
  return node.src.every((s) => s.src.every((v) => v.dtype.scalar !== "index"))
}

function opposite(node: UOp, op: "CMPEQ" | "CMPNE"): UOp {
  const comparison = valueOf(node.src[1]!) === true ? node.src[0]! : node.src[1]!
  return node.arena.make(op, node.dtype, comparison.src)
}
