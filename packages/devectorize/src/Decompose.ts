import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise, type Op } from "@tg/core-uop/Op"
import { toposort, type UOp } from "@tg/core-uop/UOp"

/** Replaces a node of one operation; `undefined` keeps it. The sources have been rewritten already. */
export type Rule = (node: UOp) => UOp | undefined

/** At most one rule for each operation. */
export type Table = Readonly<Partial<Record<Op, Rule>>>

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
const exp2: Rule = ({ src: [x] }) => {
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
const log2: Rule = ({ src: [x] }) => {
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
const sin: Rule = ({ src: [x] }) => {
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
const halfToFloat: Rule = ({ src: [h] }) => {
  const placed = and(shr(bitcast(shl(h!, 16), i32), 3), 0x8fffe000 | 0)
  const scaled = bitcast(mul(bitcast(placed, f32), 2 ** 112), i32)
  const isSpecial = eq(and(placed, 0x0f800000), 0x0f800000)
  return bitcast(or(scaled, where(isSpecial, like(placed, 0x7f800000), like(placed, 0))), f32)
}

/**
 * Round to nearest even. Normals: add half of what is cut off, less one if that is even, and move the exponent. Below
 * 2^-14 adding 0.5 rounds at 2^-24, the unit of subnormal halves, and leaves the fraction in the low bits.
 */
const floatToHalf: Rule = ({ src: [x] }) => {
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
const dot4I8: Rule = ({ src: [x, y] }) => {
  const byte = (word: UOp, i: number): UOp => {
    const bits = bitcast(word, i32)
    return shr(i === 3 ? bits : shl(bits, 24 - 8 * i), 24)
  }
  const products = [0, 1, 2, 3].map((i) => mul(byte(x!, i), byte(y!, i)))
  return add(add(products[0]!, products[1]!), add(products[2]!, products[3]!))
}

/** How each operation is said with simpler ones, for scalars and vectors (kernel stages: constants have no shape). */
export const decompositions: Table = {
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

/** The constant in every lane. */
const constantOf = (node: UOp): number | undefined => {
  const scalar = node.op === "STACK" && node.src.every((s) => s === node.src[0]) ? node.src[0]! : node
  return scalar.op === "CONST" ? Number(scalar.arg) : undefined
}

/** The exponent of a constant power of two in every lane. */
const log2OfConstant = (node: UOp): number | undefined => {
  const exponent = Math.log2(constantOf(node) ?? NaN)
  return Number.isInteger(exponent) && exponent >= 0 && exponent < 31 ? exponent : undefined
}

/** The operand of a binary operation and the constant that is its second one. */
const withConstant = (node: UOp, op: Op): readonly [UOp, number] | undefined => {
  const constant = node.op === op ? constantOf(node.src[1]!) : undefined
  return constant === undefined ? undefined : [node.src[0]!, constant]
}

/** `((x >> a) & m) << b` is one shift and one mask, or less where the shifts cut off as much as the mask. */
const moveField: Rule = (node) => {
  const [field, up] = withConstant(node, "SHL") ?? []
  if (field === undefined || up === undefined || field.dtype.scalar !== "u32") return undefined
  const [shifted, mask] = withConstant(field, "AND") ?? [field, 0xffffffff]
  const isMasked = field !== shifted
  const isCutOff = (mask << up) === -1 << up
  const [x, down] = withConstant(shifted, "SHR") ?? []
  if (x !== undefined && down !== undefined) {
    if (isCutOff && down === up) return and(x, (-1 << up) >>> 0)
    if (isMasked && mask * 2 ** up < 2 ** 32) {
      return and(down === up ? x : down > up ? shr(x, down - up) : shl(x, up - down), mask * 2 ** up)
    }
  }
  return isMasked && isCutOff ? shl(shifted, up) : undefined
}

/** `((x & m) >> a) & n`, the shift arithmetic: the first mask goes if it keeps all that the second one does. */
const maskOnce: Rule = (node) => {
  const [shifted, mask] = withConstant(node, "AND") ?? []
  const [signed, down] = (shifted?.dtype.scalar === "i32" ? withConstant(shifted, "SHR") : undefined) ?? []
  if (mask === undefined || down === undefined || signed!.op !== "BITCAST") return undefined
  const [x, first] = withConstant(signed!.src[0]!, "AND") ?? []
  if (x === undefined || first === undefined) return undefined
  const copies = -1 << (31 - down)
  const kept = (mask << down) | ((mask & copies) === 0 ? 0 : 1 << 31)
  return (kept & ~first) === 0 ? and(shr(bitcast(x, i32), down), mask) : undefined
}

/**
 * Cheaper forms of integer division, and of moving a field from one place to another. Floor division by a power of two
 * is a shift, negative numbers included.
 */
export const strength: Table = {
  SHL: moveField,
  AND: maskOnce,
  FLOORDIV: ({ src: [x, y] }) => {
    const exponent = log2OfConstant(y!)
    return exponent === undefined ? undefined : exponent === 0 ? x! : shr(x!, exponent)
  },
  FLOORMOD: ({ src: [x, y] }) => {
    const exponent = log2OfConstant(y!)
    return exponent === undefined ? undefined : exponent === 0 ? like(x!, 0) : and(x!, 2 ** exponent - 1)
  }
}

/** Applies the rules everywhere under `root`, sources first, and to their results. Labels are kept. */
export const rewrite = (root: UOp, table: Table): UOp => {
  const done = new Map<UOp, UOp>()
  const visit = (node: UOp): UOp => {
    const known = done.get(node)
    if (known !== undefined) return known
    const rebuilt = node.with(node.src.map(visit))
    const replacement = table[rebuilt.op]?.(rebuilt)
    const result = replacement === undefined || replacement === rebuilt ? rebuilt : visit(replacement)
    if (result !== node) node.arena.inherit(result, node)
    for (const n of [node, rebuilt, result]) done.set(n, result)
    return result
  }
  // in this order the recursion is only as deep as what a rule makes
  for (const node of toposort(root)) visit(node)
  return done.get(root)!
}

/** Replaces elementwise operations that a renderer lacks. What has no decomposition stays: `undeclared` finds it. */
export const decompose = (root: UOp, supported: ReadonlySet<Op>): UOp =>
  rewrite(root, Object.fromEntries(Object.entries(decompositions).filter(([op]) => !supported.has(op as Op))))

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
