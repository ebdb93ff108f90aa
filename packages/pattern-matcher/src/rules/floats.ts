import type { UOp } from "@tg/core-uop/UOp"
import { constantLike, isFloat, valueOf } from "../internal/values.ts"
import { rule, rules } from "../PatternMatcher.ts"
import * as P from "../UPat.ts"

const x = P.any("x")
const y = P.any("y")
const a = P.uniform("a")
const when = isFloat
const negativeZero = P.uniform("z", -0)
const binary = (op: UOp["op"], x: UOp, y: UOp): UOp => x.arena.make(op, x.dtype, [x, y])

/** A power of two whose inverse is a normal float: multiplication by the inverse is exact division. */
const isExactlyInvertible = (value: number): boolean =>
  Number.isInteger(Math.log2(Math.abs(value))) && Math.abs(Math.log2(Math.abs(value))) <= 126

/**
 * Float rules that hold for every value, NaN, -0 and infinities included. `x + 0` is not among them (-0 + 0 is 0), nor
 * `x * 0` (NaN), nor anything that changes the order of rounding.
 */
export const floats = rules("floats", [
  rule("mul-one", P.mul(x, P.one), ({ x }) => x, { when }),
  rule("div-one", P.fdiv(x, P.one), ({ x }) => x, { when }),
  rule("sub-zero", P.sub(x, P.zero), ({ x }) => x, { when }),
  rule("add-negative-zero", P.add(x, negativeZero), ({ x }) => x, { when }),
  rule("neg-neg", P.neg(P.neg(x)), ({ x }) => x, { when }),
  rule("add-neg", P.add(x, P.neg(y)), ({ x, y }) => binary("SUB", x, y), { when }),
  rule("sub-neg", P.sub(x, P.neg(y)), ({ x, y }) => binary("ADD", x, y), { when }),
  rule("mul-neg-neg", P.mul(P.neg(x), P.neg(y)), ({ x, y }) => binary("MUL", x, y), { when }),
  rule("neg-constant", P.mul(P.neg(x), a), ({ a, x }) => binary("MUL", x, constantLike(a, -Number(valueOf(a)))), {
    when
  }),
  rule("max-self", P.op(["MAX", "MIN"], x, x), ({ x }) => x, { when }),
  rule("div-power", P.fdiv(x, a), ({ a, x }) => {
    const value = Number(valueOf(a))
    return isExactlyInvertible(value) ? binary("MUL", x, constantLike(a, 1 / value)) : undefined
  }, { when }),
  rule("trunc-trunc", P.op("TRUNC", P.op("TRUNC", x)), (_, node) => node.src[0], { when }),
  rule("constant-last", P.inOrder("ADD", a, x), swapped, { when }),
  rule("constant-last", P.inOrder("MUL", a, x), swapped, { when })
])

function swapped(_: unknown, node: UOp): UOp | undefined {
  const [first, second] = node.src as [UOp, UOp]
  return valueOf(second) === undefined ? node.arena.make(node.op, node.dtype, [second, first]) : undefined
}
