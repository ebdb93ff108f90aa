import * as Bounds from "@tg/core-uop/Bounds"
import type { UOp } from "@tg/core-uop/UOp"
import { fold } from "../internal/fold.ts"
import { constantLike, isMachineInteger, valueOf } from "../internal/values.ts"
import { rule, rules } from "../PatternMatcher.ts"
import * as P from "../UPat.ts"

const x = P.any("x")
const y = P.any("y")
const a = P.uniform("a")
const b = P.uniform("b")
const when = isMachineInteger
const isUnsigned = (node: UOp): boolean => node.dtype.scalar === "u32"

const number = (node: UOp): number => Number(valueOf(node))
const binary = (node: UOp, op: UOp["op"], x: UOp, y: UOp): UOp => node.arena.make(op, node.dtype, [x, y])

/** `x (op) (a (by) b)` with the constants folded; undefined when that has no value. */
const combined = (node: UOp, op: UOp["op"], by: UOp["op"], x: UOp, a: UOp, b: UOp): UOp | undefined => {
  const value = fold(by, node.dtype.scalar, node.dtype.scalar, [number(a), number(b)])
  return value === undefined ? undefined : binary(node, op, x, constantLike(a, value))
}

const associative = ["ADD", "MUL", "AND", "OR", "XOR", "MAX", "MIN"] as const

/** All bits of the dtype. */
const ones = (node: UOp): number => isUnsigned(node) ? 2 ** 32 - 1 : -1

/** Arithmetic of 32-bit integers, which wraps: exact for every value. */
export const integers = rules("integers", [
  rule("add-zero", P.op(["ADD", "OR", "XOR"], x, P.zero), ({ x }) => x, { when }),
  rule("sub-zero", P.op(["SUB", "SHL", "SHR"], x, P.zero), ({ x }) => x, { when }),
  rule("mul-one", P.mul(x, P.one), ({ x }) => x, { when }),
  rule("mul-zero", P.op(["MUL", "AND"], x, P.zero), (_, node) => constantLike(node, 0), { when }),
  rule("zero-shifted", P.op(["SHL", "SHR"], P.zero, x), (_, node) => constantLike(node, 0), { when }),
  rule("div-one", P.floordiv(x, P.one), ({ x }) => x, { when }),
  rule("mod-one", P.floormod(x, P.one), (_, node) => constantLike(node, 0), { when }),
  rule("sub-self", P.op(["SUB", "XOR"], x, x), (_, node) => constantLike(node, 0), { when }),
  rule("self", P.op(["AND", "OR", "MAX", "MIN"], x, x), ({ x }) => x, { when }),
  rule("neg-neg", P.neg(P.neg(x)), ({ x }) => x, { when }),
  rule("and-ones", P.and(x, a), ({ a, x }) => number(a) === ones(a) ? x : undefined, { when }),
  rule("or-ones", P.or(x, a), ({ a }) => number(a) === ones(a) ? a : undefined, { when }),
  rule("constant-last", P.inOrder("ADD", a, x), swapped, { when }),
  rule("constant-last", P.inOrder("MUL", a, x), swapped, { when }),
  rule("constant-last", P.inOrder("AND", a, x), swapped, { when }),
  rule("constant-last", P.inOrder("OR", a, x), swapped, { when }),
  rule("constant-last", P.inOrder("XOR", a, x), swapped, { when }),
  rule("constant-last", P.inOrder("MAX", a, x), swapped, { when }),
  rule("constant-last", P.inOrder("MIN", a, x), swapped, { when }),
  // (x + a) + b = x + (a + b)
  ...associative.map((op) =>
    rule(
      `${op.toLowerCase()}-constants`,
      P.op(op, P.op(op, x, a), b),
      ({ a, b, x }, node) => combined(node, op, op, x, a, b),
      { when }
    )
  ),
  // (x + a) + y = (x + y) + a
  ...(["ADD", "MUL"] as const).map((op) =>
    rule(
      `${op.toLowerCase()}-outward`,
      P.op(op, P.op(op, x, a), y),
      ({ a, x, y }, node) => valueOf(y) === undefined ? binary(node, op, binary(node, op, x, y), a) : undefined,
      { when }
    )
  ),
  rule("sub-sub", P.sub(P.sub(x, a), b), ({ a, b, x }, node) => combined(node, "SUB", "ADD", x, a, b), { when }),
  rule("add-sub", P.sub(P.add(x, a), b), ({ a, b, x }, node) => combined(node, "ADD", "SUB", x, a, b), { when }),
  rule("sub-add", P.add(P.sub(x, a), b), ({ a, b, x }, node) => combined(node, "ADD", "SUB", x, b, a), { when }),
  rule("add-sub-same", P.sub(P.add(x, y), y), ({ x }) => x, { when }),
  rule("sub-add-same", P.add(P.sub(x, y), y), ({ x }) => x, { when }),
  // shifts
  rule("shl-shl", P.shl(P.shl(x, a), b), ({ a, b, x }, node) => shifted(node, "SHL", x, a, b), { when }),
  rule("shr-shr", P.shr(P.shr(x, a), b), ({ a, b, x }, node) => shifted(node, "SHR", x, a, b), { when }),
  rule(
    "shr-shl",
    P.shl(P.shr(x, a), a),
    ({ a, x }, node) =>
      isAmount(a) ? binary(node, "AND", x, constantLike(a, wrapLike(node, -(2 ** number(a))))) : undefined,
    { when }
  ),
  rule(
    "shl-shr",
    P.shr(P.shl(x, a), a),
    ({ a, x }, node) => isAmount(a) ? binary(node, "AND", x, constantLike(a, 2 ** (32 - number(a)) - 1)) : undefined,
    { when: isUnsigned }
  ),
  // (x & m) >> k = (x >> k) & (m >> k): then `idle-mask` often removes the mask
  rule("mask-shr", P.shr(P.and(x, a), b), ({ a, b, x }, node) =>
    isAmount(b)
      ? binary(node, "AND", binary(node, "SHR", x, b), constantLike(a, number(a) >>> number(b)))
      : undefined, { when: isUnsigned }),
  rule("idle-mask", P.and(x, a), ({ a, x }) => {
    const { max, min } = Bounds.of(x)
    return min >= 0 && isMask(number(a)) && max <= number(a) ? x : undefined
  }, { when }),
  // without overflow, the rules of mathematical integers
  rule("small-dividend", P.floormod(x, a), ({ a, x }) => {
    const { max, min } = Bounds.of(x)
    return min >= 0 && max < number(a) ? x : undefined
  }, { when }),
  rule(
    "div-div",
    P.floordiv(P.floordiv(x, a), b),
    ({ a, b, x }, node) =>
      number(a) > 0 && number(b) > 0 && number(a) * number(b) < 2 ** 31
        ? binary(node, "FLOORDIV", x, constantLike(a, number(a) * number(b)))
        : undefined,
    { when }
  ),
  rule(
    "mod-mod",
    P.floormod(P.floormod(x, a), b),
    ({ a, b, x }, node) => number(b) > 0 && number(a) % number(b) === 0 ? binary(node, "FLOORMOD", x, b) : undefined,
    { when }
  ),
  rule("max", P.max(x, y), ({ x, y }) => chosen(x, y), { when }),
  rule("min", P.min(x, y), ({ x, y }, node) => {
    const larger = chosen(x, y)
    return larger === undefined ? undefined : larger === node.src[0] ? node.src[1] : node.src[0]
  }, { when })
])

function swapped(_: unknown, node: UOp): UOp | undefined {
  const [first, second] = node.src as [UOp, UOp]
  return valueOf(second) === undefined ? binary(node, node.op, second, first) : undefined
}

function isAmount(node: UOp): boolean {
  return number(node) >= 0 && number(node) < 32
}

function wrapLike(node: UOp, value: number): number {
  return isUnsigned(node) ? value >>> 0 : value | 0
}

function isMask(value: number): boolean {
  return value > 0 && Number.isInteger(Math.log2(value + 1))
}

function shifted(node: UOp, op: "SHL" | "SHR", x: UOp, a: UOp, b: UOp): UOp | undefined {
  if (!isAmount(a) || !isAmount(b)) return undefined
  const total = number(a) + number(b)
  if (total < 32) return binary(node, op, x, constantLike(a, total))
  if (op === "SHL" || isUnsigned(node)) return constantLike(node, 0)
  return binary(node, op, x, constantLike(a, 31))
}

/** The larger of two values, if their bounds tell. */
function chosen(x: UOp, y: UOp): UOp | undefined {
  const p = Bounds.of(x)
  const q = Bounds.of(y)
  return p.min >= q.max ? x : q.min >= p.max ? y : undefined
}
