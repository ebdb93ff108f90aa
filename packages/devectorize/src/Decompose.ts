import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise, type Op } from "@tg/core-uop/Op"
import type { UOp } from "@tg/core-uop/UOp"
import { graphRewrite, type Tracing } from "@tg/pattern-matcher/GraphRewrite"
import { make, type PatternMatcher, rule, rules } from "@tg/pattern-matcher/PatternMatcher"
import * as P from "@tg/pattern-matcher/UPat"

/** The decomposition of an operation into simpler ones. */
type Meaning = (node: UOp) => UOp

const { add, and, bitcast, cast, eq, like, lt, mul, or, shl, shr, sub, where, xor } = Expr
const { f32, i32, u32 } = DType

/** `c[0] + x (c[1] + x (c[2] + ...))`. The coefficients are minimax, found by Remez exchange and rounded to f32. */
const horner = (x: UOp, coefficients: ReadonlyArray<number>): UOp => {
  const [last, ...rest] = coefficients.toReversed()
  return rest.reduce((sum, c) => add(mul(sum, x), c), like(x, last!))
}

/** 1.5 * 2^23: added to a float below 2^22 it leaves the nearest integer in the low bits. */
const rounder = 12582912
const rounderBits = 0x4b400000

/** The nearest integer of a float below 2^22 in magnitude, as a float and as an i32. */
const nearest = (x: UOp): { readonly float: UOp; readonly integer: UOp } => {
  const shifted = add(x, rounder)
  return { float: sub(shifted, rounder), integer: sub(bitcast(shifted, i32), rounderBits) }
}

/** `2^n` for -126 <= n <= 127, from the exponent field. */
const powerOfTwo = (n: UOp): UOp => bitcast(shl(add(n, 127), 23), f32)

/**
 * `2^x = 2^n 2^f`, n the nearest integer. The scale is applied in two halves, so that subnormal results are rounded
 * once and overflow gives infinity. Below 1.5 ulp where the machine keeps subnormals (else those results are 0).
 */
const exp2: Meaning = ({ src: [x] }) => {
  const clamped = where(lt(x!, -160), like(x!, -160), where(lt(like(x!, 160), x!), like(x!, 160), x!))
  const n = nearest(clamped)
  const f = sub(clamped, n.float)
  const fraction = add(mul(f, horner(f, exp2Coefficients)), 1)
  const half = shr(n.integer, 1)
  return mul(mul(fraction, powerOfTwo(half)), powerOfTwo(sub(n.integer, half)))
}
/** (2^f - 1) / f on [-1/2, 1/2], 2e-9 relative to the result. */
const exp2Coefficients = [
  0.6931471824645996,
  0.24022650718688965,
  0.055503278970718384,
  0.009618003852665424,
  0.0013400234747678041,
  0.00015476279077120125
]

/**
 * `log2 x = e + log2 m` with m in [sqrt 1/2, sqrt 2). Subnormals are scaled up first. Below 2 ulp; 0 gives -infinity
 * and negative numbers NaN.
 */
const log2: Meaning = ({ src: [x] }) => {
  const subnormal = lt(x!, 2 ** -126)
  const bits = bitcast(where(subnormal, mul(x!, 2 ** 23), x!), i32)
  const exponent = shr(sub(bits, 0x3f3504f3), 23) // the bits of sqrt 1/2
  const f = sub(bitcast(sub(bits, shl(exponent, 23)), f32), 1)
  const e = cast(where(subnormal, sub(exponent, 23), exponent), f32)
  const finite = add(mul(f, horner(f, log2Coefficients)), e)
  const positive = where(lt(x!, Infinity), finite, x!) // infinity and NaN are their own logarithms
  return where(lt(like(x!, 0), x!), positive, where(eq(x!, 0), like(x!, -Infinity), like(x!, NaN)))
}
/** log2(1 + f) / f on [sqrt 1/2 - 1, sqrt 2 - 1], 4e-9 relative. */
const log2Coefficients = [
  1.4426950216293335,
  -0.7213473320007324,
  0.4808982312679291,
  -0.3606966435909271,
  0.2885673940181732,
  -0.23961740732192993,
  0.20460061728954315,
  -0.19106274843215942,
  0.18617495894432068,
  -0.10994954407215118
]

/**
 * `sin x = (-1)^n sin(x - n pi)`. Pi is split so that the products of its first two parts with n are exact for
 * n < 2^15: for |x| <= 10^5 the error is below 2e-7. Beyond, accuracy decays with |x|.
 */
const sin: Meaning = ({ src: [x] }) => {
  const n = nearest(mul(x!, Math.fround(1 / Math.PI)))
  const r = [3.140625, 0.0009670257568359375, 6.278329465203569e-07].reduce(
    (rest, part) => sub(rest, mul(n.float, part)),
    x!
  )
  const z = mul(r, r)
  const s = mul(r, add(mul(z, horner(z, sinCoefficients)), 1)) // keeps -0
  return bitcast(xor(bitcast(s, i32), shl(n.integer, 31)), f32)
}
/** (sin r - r) / r^3 as a polynomial in r^2 on [0, pi/2], 5e-9 absolute. */
const sinCoefficients = [-0.16666656732559204, 0.008333017118275166, -0.00019806614727713168, 2.6000548132287804e-06]

/**
 * From the top of a word an arithmetic shift moves exponent and fraction to their places in an f32 and keeps the sign. The
 * exponent is then 112 too small: a multiplication repairs normals and subnormals alike (exact; the machine must keep f32
 * subnormals). Infinity and NaN need all exponent bits.
 */
const halfToFloat: Meaning = ({ src: [h] }) => {
  const placed = and(shr(bitcast(shl(h!, 16), i32), 3), 0x8fffe000 | 0)
  const scaled = bitcast(mul(bitcast(placed, f32), 2 ** 112), i32)
  const isSpecial = eq(and(placed, 0x0f800000), 0x0f800000)
  return bitcast(or(scaled, where(isSpecial, like(placed, 0x7f800000), like(placed, 0))), f32)
}

/**
 * Round to nearest even. Normals: add half a unit in the last place, less one if that place is even, and rebias the exponent. Below
 * 2^-14 adding 0.5 rounds at 2^-24, the unit of subnormal halves, and leaves the fraction in the low bits.
 */
const floatToHalf: Meaning = ({ src: [x] }) => {
  const bits = bitcast(x!, i32)
  const magnitude = and(bits, 0x7fffffff)
  const odd = and(shr(magnitude, 13), 1)
  const normal = shr(add(add(magnitude, odd), 0xfff - (112 << 23)), 13)
  const subnormal = sub(bitcast(add(bitcast(magnitude, f32), 0.5), i32), 0x3f000000)
  const finite = where(lt(magnitude, 0x38800000), subnormal, normal) // 2^-14
  const half = where(lt(magnitude, 0x47800000), finite, like(bits, 0x7c00)) // 2^16
  const signed = or(half, and(shr(bits, 16), 0x8000))
  return bitcast(where(lt(like(bits, 0x7f800000), magnitude), like(bits, 0x7e00), signed), u32)
}

/** Four products of sign-extended bytes. Their sum is below 2^17. */
const dot4I8: Meaning = ({ src: [x, y] }) => {
  const byte = (word: UOp, i: number): UOp => {
    const bits = bitcast(word, i32)
    return shr(i === 3 ? bits : shl(bits, 24 - 8 * i), 24)
  }
  const products = [0, 1, 2, 3].map((i) => mul(byte(x!, i), byte(y!, i)))
  return add(add(products[0]!, products[1]!), add(products[2]!, products[3]!))
}

/** The decomposition of each operation, for scalars and vectors (kernel stages: constants have no shape). */
export const decompositions: Readonly<Partial<Record<Op, Meaning>>> = {
  EXP2: exp2,
  LOG2: log2,
  SIN: sin,
  HALF_TO_FLOAT: halfToFloat,
  FLOAT_TO_HALF: floatToHalf,
  DOT4I8: dot4I8,
  MULACC: ({ src: [a, b, c] }) => add(mul(a!, b!), c!),
  MAX: ({ src: [a, b] }) => where(lt(a!, b!), b!, a!),
  MIN: ({ src: [a, b] }) => where(lt(b!, a!), b!, a!),
  // 0 - x would turn 0 into 0 instead of -0
  NEG: ({ src: [x] }) => sub(like(x!, DType.isFloat(x!.dtype) ? -0 : 0), x!)
}

/** The number in a constant, or in every lane of a vector; NaN if there is none. */
const numberOf = (node: UOp): number => Number(P.valueOf(node) ?? NaN)

/** The exponent of a constant power of two in every lane. */
const log2OfConstant = (node: UOp): number | undefined => {
  const exponent = Math.log2(numberOf(node))
  return Number.isInteger(exponent) && exponent >= 0 && exponent < 31 ? exponent : undefined
}

const x = P.any("x")
const a = P.uniform("a")
const b = P.uniform("b")
const m = P.uniform("m")
const n = P.uniform("n")
const isWord = (node: UOp): boolean => node.dtype.scalar === "u32"

/** The mask of the bits that a left shift fills. */
const kept = (up: number): number => (-1 << up) >>> 0

/** Whether a mask is redundant in front of a left shift. */
const cutsOff = (up: number, mask: number): boolean => mask << up === -1 << up

/** Shifts a word by a signed amount. */
const shift = (word: UOp, up: number): UOp => up === 0 ? word : up < 0 ? shr(word, -up) : shl(word, up)

/** Whether a mask is redundant in front of an arithmetic right shift and another mask. */
const keepsAll = (first: number, down: number, then: number): boolean => {
  const copies = -1 << (31 - down)
  const needed = (then << down) | ((then & copies) === 0 ? 0 : 1 << 31)
  return (needed & ~first) === 0
}

/**
 * Strength reduction: integer division and remainder by powers of two become shifts and masks (floor division, so negative numbers
 * too), and shifts and masks of bit fields are merged.
 */
export const strengthRules = rules("strength", [
  rule(
    "shift-back",
    P.shl(P.shr(x, a), b),
    ({ a, b, x }) => numberOf(a) === numberOf(b) ? and(x, kept(numberOf(b))) : undefined,
    { when: isWord }
  ),
  // ((x >> a) & m) << b is one shift and one mask
  rule("move-field", P.shl(P.inOrder("AND", P.shr(x, a), m), b), (found) => {
    const { x } = found
    const [down, mask, up] = [numberOf(found.a), numberOf(found.m), numberOf(found.b)]
    if (cutsOff(up, mask) && down === up) return and(x, kept(up))
    return mask * 2 ** up < 2 ** 32 ? and(shift(x, up - down), mask * 2 ** up) : undefined
  }, { when: isWord }),
  rule(
    "cut-off-mask",
    P.shl(P.inOrder("AND", x, m), b),
    ({ b, m, x }) => cutsOff(numberOf(b), numberOf(m)) ? shl(x, numberOf(b)) : undefined,
    { when: isWord }
  ),
  // ((x & m) >> a) & n, the shift arithmetic
  rule(
    "mask-once",
    P.inOrder("AND", P.ofType(P.shr(P.bitcast(P.inOrder("AND", x, m)), a), "i32"), n),
    ({ a, m, n, x }) =>
      keepsAll(numberOf(m), numberOf(a), numberOf(n))
        ? and(shr(bitcast(x, i32), numberOf(a)), numberOf(n))
        : undefined
  ),
  rule("divide", P.floordiv(x, a), ({ a, x }) => {
    const exponent = log2OfConstant(a)
    return exponent === undefined ? undefined : shift(x, -exponent)
  }),
  rule("remainder", P.floormod(x, a), ({ a, x }) => {
    const exponent = log2OfConstant(a)
    return exponent === undefined ? undefined : exponent === 0 ? like(x, 0) : and(x, 2 ** exponent - 1)
  })
])

/** The compiled `strengthRules`. */
export const strength: PatternMatcher = make(strengthRules)

/** Applies rules everywhere under `root`, sources first, and to their results. Labels are kept. */
export const rewrite = (root: UOp, matcher: PatternMatcher, options: Tracing = {}): UOp =>
  graphRewrite(root, matcher, options)

/** The rules for the operations that a renderer lacks. */
export const decompositionRules = (supported: ReadonlySet<Op>) =>
  rules(
    "decompose",
    Object.entries(decompositions).flatMap(([op, meaning]) =>
      supported.has(op as Op)
        ? []
        : [rule(op.toLowerCase().replaceAll("_", "-"), P.node(op as Op), (_, node) => meaning(node))]
    )
  )

// memoised by capabilities, of which a renderer has one set
const compiled = new WeakMap<ReadonlySet<Op>, PatternMatcher>()

const decomposer = (supported: ReadonlySet<Op>): PatternMatcher => {
  const known = compiled.get(supported)
  if (known !== undefined) return known
  const matcher = make(decompositionRules(supported))
  compiled.set(supported, matcher)
  return matcher
}

/** Replaces elementwise operations that a renderer lacks. What has no decomposition stays: `undeclared` finds it. */
export const decompose = (root: UOp, supported: ReadonlySet<Op>, options: Tracing = {}): UOp =>
  rewrite(root, decomposer(supported), options)

/** Hosts compute the sizes of grids and of arguments: no renderer sees them. */
const hostOnly: ReadonlySet<Op> = new Set<Op>(["SPECIAL", "PARAM"])

/** An elementwise operation under `root` that a renderer would see and does not declare, if there is one. */
export const undeclared = (root: UOp, supported: ReadonlySet<Op>): UOp | undefined => {
  const seen = new Set<UOp>([root])
  const open = [root]
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    if (elementwise.has(node.op) && !supported.has(node.op)) return node
    if (hostOnly.has(node.op)) continue
    for (const s of node.src) {
      if (seen.has(s)) continue
      seen.add(s)
      open.push(s)
    }
  }
  return undefined
}
