import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import { mandatory, type Op } from "@tg/core-uop/Op"
import type { UOp } from "@tg/core-uop/UOp"
import { type PairSums, relaxedSum, type Simd, vectorDot } from "./dot.ts"
import { halfToFloat } from "./half.ts"
import { uniformShift } from "./placement.ts"
import { constantOf, isPowerOfTwo, prefix, type ValueType } from "./value.ts"

/** What instruction selection needs from the function being written. */
export interface Body {
  /** The code of a value. */
  readonly value: (node: UOp) => string
  /** Code that computes and keeps a value, and code that reads it again afterwards. */
  readonly twice: (code: string, type: ValueType) => readonly [string, string]
  /** The name of a helper function, which the module will contain. */
  readonly helper: (name: Helper) => string
  /** Whether the code of a value stands where its only user is. */
  readonly isInlined: (node: UOp) => boolean
  /** Code that reads a literal of a vector, `(v128.const ..)`. */
  readonly literal: (code: string) => string
  /** The conversions of halves that are few among other instructions. */
  readonly rareHalves: ReadonlySet<UOp>
  readonly simd: Simd
  readonly pairSums: PairSums
}

/** Functions of the module besides the kernel. Division by zero gives 0. */
export const helpers = {
  floordiv: `(func $floordiv (param $a i32) (param $b i32) (result i32) (local $q i32) (local $r i32)
    (if (i32.eqz (local.get $b)) (then (return (i32.const 0))))
    (if (i32.eq (local.get $b) (i32.const -1)) (then (return (i32.sub (i32.const 0) (local.get $a)))))
    (local.set $q (i32.div_s (local.get $a) (local.get $b)))
    (local.set $r (i32.sub (local.get $a) (i32.mul (local.get $q) (local.get $b))))
    (i32.sub (local.get $q)
      (i32.and (i32.ne (local.get $r) (i32.const 0)) (i32.shr_u (i32.xor (local.get $r) (local.get $b)) (i32.const 31)))))`,
  floormod: `(func $floormod (param $a i32) (param $b i32) (result i32) (local $r i32)
    (if (i32.eqz (local.get $b)) (then (return (i32.const 0))))
    (local.set $r (i32.rem_s (local.get $a) (local.get $b)))
    (if (result i32) (i32.and (i32.ne (local.get $r) (i32.const 0)) (i32.shr_u (i32.xor (local.get $r) (local.get $b)) (i32.const 31)))
      (then (i32.add (local.get $r) (local.get $b))) (else (local.get $r))))`,
  udiv: `(func $udiv (param $a i32) (param $b i32) (result i32)
    (if (result i32) (i32.eqz (local.get $b)) (then (i32.const 0)) (else (i32.div_u (local.get $a) (local.get $b)))))`,
  umod: `(func $umod (param $a i32) (param $b i32) (result i32)
    (if (result i32) (i32.eqz (local.get $b)) (then (i32.const 0)) (else (i32.rem_u (local.get $a) (local.get $b)))))`,
  dot4i8: `(func $dot4i8 (param $a i32) (param $b i32) (result i32)
    (i32.add
      (i32.add
        (i32.mul (i32.extend8_s (local.get $a)) (i32.extend8_s (local.get $b)))
        (i32.mul (i32.extend8_s (i32.shr_u (local.get $a) (i32.const 8))) (i32.extend8_s (i32.shr_u (local.get $b) (i32.const 8)))))
      (i32.add
        (i32.mul (i32.extend8_s (i32.shr_u (local.get $a) (i32.const 16))) (i32.extend8_s (i32.shr_u (local.get $b) (i32.const 16))))
        (i32.mul (i32.shr_s (local.get $a) (i32.const 24)) (i32.shr_s (local.get $b) (i32.const 24))))))`
} as const
export type Helper = keyof typeof helpers

const isVector = (dtype: DType.DType): boolean => dtype.lanes === 4
const isUnsigned = (dtype: DType.DType): boolean => dtype.scalar === "u32"

/** Applies a scalar operation to each lane: for what SIMD does not have. */
const perLane = (
  operands: ReadonlyArray<string>,
  dtype: DType.DType,
  body: Body,
  f: (lane: number, ...scalars: ReadonlyArray<string>) => string
): string => {
  const kept = operands.map((code) => body.twice(code, "v128"))
  const t = prefix(dtype)
  const at = (i: number): string =>
    f(i, ...kept.map(([first, again]) => `(${t}.extract_lane ${i} ${i === 0 ? first : again})`))
  return [1, 2, 3].reduce((vector, i) => `(${t}.replace_lane ${i} ${vector} ${at(i)})`, `(${t}.splat ${at(0)})`)
}

const bitwise: Partial<Record<Op, string>> = { AND: "and", OR: "or", XOR: "xor" }

/** Reductions and comparisons of booleans are logic. */
const onBools = (op: Op, dtype: DType.DType, a: string, b: string): string => {
  const t = isVector(dtype) ? "v128" : "i32"
  const not = (x: string): string => isVector(dtype) ? `(v128.not ${x})` : `(i32.eqz ${x})`
  switch (op) {
    case "ADD":
    case "MAX":
      return `(${t}.or ${a} ${b})`
    case "MUL":
    case "MIN":
      return `(${t}.and ${a} ${b})`
    case "CMPLT":
      return `(${t}.and ${not(a)} ${b})`
    case "CMPEQ":
      return not(`(${t}.xor ${a} ${b})`)
    default: // CMPNE
      return `(${t}.xor ${a} ${b})`
  }
}

/**
 * Maximum and minimum. For floats `a < b ? b : a` and `b < a ? b : a`: if either is NaN, the result is the first
 * operand. Scalars go through a vector register, because a select of floats compiles to a branch.
 */
const extremum = (op: "MAX" | "MIN", dtype: DType.DType, a: string, b: string, body: Body): string => {
  const name = op === "MAX" ? "max" : "min"
  const t = prefix(dtype)
  const sign = isUnsigned(dtype) ? "u" : "s"
  if (isVector(dtype)) return DType.isFloat(dtype) ? `(f32x4.p${name} ${a} ${b})` : `(i32x4.${name}_${sign} ${a} ${b})`
  if (DType.isFloat(dtype)) {
    return `(f32x4.extract_lane 0 (f32x4.p${name} (f32x4.splat ${a}) (f32x4.splat ${b})))`
  }
  const [a1, a2] = body.twice(a, "i32")
  const [b1, b2] = body.twice(b, "i32")
  return `(select ${a1} ${b1} (${t}.${op === "MAX" ? "gt" : "lt"}_${sign} ${a2} ${b2}))`
}

/** Operations that need only the code of their operands: also what an ACCUMULATE does. `dtype` is that of the operands. */
export const combine = (op: Op, dtype: DType.DType, a: string, b: string, body: Body): string => {
  const t = prefix(dtype)
  const logic = bitwise[op]
  if (logic !== undefined) return `(${isVector(dtype) ? "v128" : "i32"}.${logic} ${a} ${b})`
  if (dtype.scalar === "bool") return onBools(op, dtype, a, b)
  const order = DType.isFloat(dtype) ? "" : isUnsigned(dtype) ? "_u" : "_s"
  switch (op) {
    case "ADD":
    case "SUB":
    case "MUL":
      return `(${t}.${op.toLowerCase()} ${a} ${b})`
    case "FDIV":
      return `(${t}.div ${a} ${b})`
    case "CMPLT":
      return `(${t}.lt${order} ${a} ${b})`
    case "CMPEQ":
      return `(${t}.eq ${a} ${b})`
    case "CMPNE":
      return `(${t}.ne ${a} ${b})`
    default:
      return extremum(op as "MAX" | "MIN", dtype, a, b, body)
  }
}

const divide = (node: UOp, body: Body): string => {
  const [x, y] = node.src as [UOp, UOp]
  const isDiv = node.op === "FLOORDIV"
  const t = prefix(node.dtype)
  const divisor = constantOf(y)
  const vector = isVector(node.dtype)
  const positive = Bounds.of(x).min >= 0 && Bounds.of(y).min >= 0
  const unsigned = isUnsigned(node.dtype) || positive
  if (isPowerOfTwo(divisor)) {
    if (isDiv) return `(${t}.shr_${unsigned ? "u" : "s"} ${body.value(x)} (i32.const ${Math.log2(divisor)}))`
    const mask = (divisor - 1) | 0
    return vector
      ? `(v128.and ${body.value(x)} (v128.const i32x4 ${mask} ${mask} ${mask} ${mask}))`
      : `(i32.and ${body.value(x)} (i32.const ${mask}))`
  }
  const plain = unsigned && (Bounds.of(y).min > 0 || Bounds.of(y).max < 0)
  const scalar = (a: string, b: string): string =>
    plain
      ? `(i32.${isDiv ? "div" : "rem"}_u ${a} ${b})`
      : `(call ${body.helper(unsigned ? isDiv ? "udiv" : "umod" : isDiv ? "floordiv" : "floormod")} ${a} ${b})`
  return vector
    ? perLane([body.value(x), body.value(y)], node.dtype, body, (_, a, b) => scalar(a!, b!))
    : scalar(body.value(x), body.value(y))
}

/** `x >> amounts` as the high words of 64-bit products with `2^(32 - amount)`. */
const shiftRightByProduct = (x: string, amounts: ReadonlyArray<number>, sign: "s" | "u", body: Body): string => {
  const factors = `(v128.const i32x4 ${amounts.map((s) => s === 0 ? 0 : 2 ** (32 - s)).join(" ")})`
  const [first, again] = body.twice(x, "v128")
  const high =
    `(i8x16.shuffle 4 5 6 7 12 13 14 15 20 21 22 23 28 29 30 31 (i64x2.extmul_low_i32x4_${sign} ${first} ${factors}) (i64x2.extmul_high_i32x4_${sign} ${again} ${factors}))`
  return amounts.includes(0)
    ? `(v128.bitselect ${high} ${again} (v128.const i32x4 ${amounts.map((s) => s === 0 ? 0 : -1).join(" ")}))`
    : high
}

const shift = (node: UOp, body: Body): string => {
  const [x, y] = node.src as [UOp, UOp]
  const t = prefix(node.dtype)
  const sign = isUnsigned(node.dtype) ? "u" : "s"
  const name = node.op === "SHL" ? "shl" : `shr_${sign}` as const
  if (!isVector(node.dtype)) return `(i32.${name} ${body.value(x)} ${body.value(y)})`
  const amount = uniformShift(node)
  if (amount !== undefined) return `(${t}.${name} ${body.value(x)} ${body.value(amount)})`
  if (y.op === "STACK" && y.src.every((s) => s.op === "CONST")) {
    const amounts = y.src.map((s) => Number(s.arg) & 31)
    if (node.op === "SHL") {
      return `(i32x4.mul ${body.value(x)} (v128.const i32x4 ${amounts.map((s) => 2 ** s | 0).join(" ")}))`
    }
    // a signed factor of 2^31 does not exist
    if (sign === "u" || !amounts.includes(1)) return shiftRightByProduct(body.value(x), amounts, sign, body)
  }
  return perLane([body.value(x), body.value(y)], node.dtype, body, (_, a, b) => `(i32.${name} ${a} ${b})`)
}

/** Whether the values have the same meaning signed and unsigned. Signed conversions and comparisons are cheaper. */
const fitsSigned = (node: UOp): boolean => Bounds.of(node).min >= 0 && Bounds.of(node).max < 2 ** 31

const cast = (node: UOp, body: Body): string => {
  const x = node.src[0]!
  const code = body.value(x)
  const from = x.dtype.scalar
  const to = node.dtype.scalar
  const vector = isVector(node.dtype)
  if (from === to) return code
  if (to === "bool") {
    const t = prefix(x.dtype)
    return vector ? `(${t}.ne ${code} (v128.const i32x4 0 0 0 0))` : `(${t}.ne ${code} (${t}.const 0))`
  }
  if (from === "bool") {
    if (!vector) return to === "f32" ? `(f32.convert_i32_s ${code})` : code
    return to === "f32" ? `(v128.and ${code} (v128.const f32x4 1 1 1 1))` : `(i32x4.neg ${code})`
  }
  if (to === "f32") {
    const sign = from === "u32" && !fitsSigned(x) ? "u" : "s"
    return vector ? `(f32x4.convert_i32x4_${sign} ${code})` : `(f32.convert_i32_${sign} ${code})`
  }
  if (from !== "f32") return code
  const sign = to === "u32" ? "u" : "s"
  return vector ? `(i32x4.trunc_sat_f32x4_${sign} ${code})` : `(i32.trunc_sat_f32_${sign} ${code})`
}

const bitcast = (node: UOp, body: Body): string => {
  const code = body.value(node.src[0]!)
  const from = DType.isFloat(node.src[0]!.dtype)
  const to = DType.isFloat(node.dtype)
  if (isVector(node.dtype) || from === to) return code
  return to ? `(f32.reinterpret_i32 ${code})` : `(i32.reinterpret_f32 ${code})`
}

const negate = (node: UOp, body: Body): string => {
  const code = body.value(node.src[0]!)
  if (DType.isFloat(node.dtype) || isVector(node.dtype)) return `(${prefix(node.dtype)}.neg ${code})`
  return `(i32.sub (i32.const 0) ${code})`
}

const dot4I8 = (node: UOp, body: Body): string => {
  const [x, y] = node.src.map((s) => body.value(s)) as [string, string]
  return isVector(node.dtype) ? vectorDot(x, y, body) : `(call ${body.helper("dot4i8")} ${x} ${y})`
}

/** The code of an elementwise operation. */
export const elementwise = (node: UOp, body: Body): string => {
  const t = prefix(node.dtype)
  const sum = relaxedSum(node, body)
  if (sum !== undefined) return sum
  switch (node.op) {
    case "CAST":
      return cast(node, body)
    case "BITCAST":
      return bitcast(node, body)
    case "HALF_TO_FLOAT":
      return halfToFloat(node, body)
    case "NEG":
      return negate(node, body)
    case "SQRT":
    case "TRUNC":
      return `(${t}.${node.op.toLowerCase()} ${body.value(node.src[0]!)})`
    case "FLOORDIV":
    case "FLOORMOD":
      return divide(node, body)
    case "SHL":
    case "SHR":
      return shift(node, body)
    case "DOT4I8":
      return dot4I8(node, body)
    case "MUL": {
      const [x, y] = node.src as [UOp, UOp]
      const factor = constantOf(y)
      return node.dtype.lanes === 4 && !DType.isFloat(node.dtype) && node.dtype.scalar !== "bool" &&
          isPowerOfTwo(factor)
        ? `(i32x4.shl ${body.value(x)} (i32.const ${Math.log2(factor)}))`
        : combine("MUL", x.dtype, body.value(x), body.value(y), body)
    }
    case "WHERE": {
      const [condition, a, b] = node.src as [UOp, UOp, UOp]
      // all ones or all zeros
      if (isVector(node.dtype) && Object.is(constantOf(b), 0)) {
        return `(v128.and ${body.value(condition)} ${body.value(a)})`
      }
      return isVector(node.dtype)
        ? `(v128.bitselect ${body.value(a)} ${body.value(b)} ${body.value(condition)})`
        : `(select ${body.value(a)} ${body.value(b)} ${body.value(condition)})`
    }
    case "CMPLT": {
      const [a, b] = node.src as [UOp, UOp]
      const signed = isUnsigned(a.dtype) && fitsSigned(a) && fitsSigned(b)
      return combine("CMPLT", signed ? DType.make("i32", a.dtype.lanes) : a.dtype, body.value(a), body.value(b), body)
    }
    default: {
      const [a, b] = node.src as [UOp, UOp]
      return combine(node.op, a.dtype, body.value(a), body.value(b), body)
    }
  }
}

/** Operations rendered for every dtype that the linear spec allows. */
export const rendered: ReadonlySet<Op> = new Set<Op>([...mandatory, "NEG", "MAX", "MIN", "DOT4I8", "HALF_TO_FLOAT"])
