import type { DType } from "./DType.ts"
import { elementwise, type Op, type ReduceOp } from "./Op.ts"
import { type UOp, varArg } from "./UOp.ts"

/**
 * Values of one node: `f32` in Float32Array (Float64Array in float64 mode), `i32` in Int32Array, `u32` in Uint32Array,
 * `bool` in Uint8Array, `index` in Float64Array. Storing into the array is what rounds floats and wraps integers.
 */
export type Data = Float32Array | Float64Array | Int32Array | Uint32Array | Uint8Array

/** Values of the symbolic integers. */
export type Vars = Readonly<Record<string, number>>

/** A zero-filled array for `length` scalars of this dtype. */
export const allocate = (dtype: DType, length: number, float64 = false): Data => {
  switch (dtype.scalar) {
    case "f32":
      return float64 ? new Float64Array(length) : new Float32Array(length)
    case "i32":
      return new Int32Array(length)
    case "u32":
      return new Uint32Array(length)
    case "bool":
      return new Uint8Array(length)
    case "index":
      return new Float64Array(length)
    case "void":
      throw new Error("an effect has no values")
  }
}

const halves = new Float32Array(2 ** 16)
for (let bits = 0; bits < 2 ** 16; bits++) {
  const sign = bits >= 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  halves[bits] = sign * (exponent === 31
    ? (fraction === 0 ? Infinity : NaN)
    : exponent === 0
    ? fraction * 2 ** -24
    : (1024 + fraction) * 2 ** (exponent - 25))
}

/** The value of the IEEE half in the low 16 bits. */
export const halfToFloat = (bits: number): number => halves[bits & 0xffff]!

/** The nearest IEEE half, ties to even; too large is infinity; every NaN is 0x7e00. */
export const floatToHalf = (x: number): number => {
  if (Number.isNaN(x)) return 0x7e00
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0
  const magnitude = Math.abs(x)
  if (magnitude >= 65520) return sign | 0x7c00 // half of a last place above 65504, the largest half
  // The largest exponent e with 2^e <= magnitude, but subnormals share the exponent -14.
  let e = Math.max(-14, Math.floor(Math.log2(magnitude)))
  if (2 ** e > magnitude && e > -14) e--
  if (2 ** (e + 1) <= magnitude) e++
  const scaled = magnitude * 2 ** (10 - e) // exact: a power of two
  const down = Math.floor(scaled)
  const rest = scaled - down
  const rounded = rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down
  // A normal significand has its 1024 in the exponent field; a carry out of the fraction moves the exponent up by itself.
  return sign | (e === -14 ? rounded : rounded + (e + 14) * 1024)
}

const bits = new DataView(new ArrayBuffer(4))
/** The bits of the nearest f32. */
export const floatBits = (x: number): number => {
  bits.setFloat32(0, x)
  return bits.getUint32(0)
}
/** The f32 with these bits. */
export const bitsFloat = (x: number): number => {
  bits.setUint32(0, x)
  return bits.getFloat32(0)
}

const saturate = (min: number, max: number) => (x: number): number =>
  Number.isNaN(x) ? 0 : Math.min(max, Math.max(min, Math.trunc(x)))
const toI32 = saturate(-(2 ** 31), 2 ** 31 - 1)
const toU32 = saturate(0, 2 ** 32 - 1)

/** One element of an elementwise operation. The result is still to be stored into an array of the result dtype. */
export type ScalarFunction = (x: number, y: number, z: number) => number

const cast = (from: DType, to: DType): ScalarFunction => {
  if (to.scalar === "bool") return (x) => x !== 0 ? 1 : 0
  if (to.scalar === "f32") return (x) => from.scalar === "index" ? x + 0 : x // an integer has no -0
  if (from.scalar === "f32") return to.scalar === "u32" ? toU32 : toI32
  return to.scalar === "index" ? (x) => x | 0 : (x) => x
}

const bitcast = (from: DType, to: DType): ScalarFunction => {
  if (from.scalar === "bool" || to.scalar === "bool") throw new Error("BITCAST of a bool: it has no bits")
  if (from.scalar === to.scalar) return (x) => x
  if (from.scalar === "f32") return to.scalar === "index" ? (x) => floatBits(x) | 0 : floatBits
  if (to.scalar === "f32") return bitsFloat
  return cast(from, to)
}

/** The sum of products of four signed bytes, lowest with lowest. */
export const dot4I8 = (x: number, y: number): number => {
  let sum = 0
  for (let top = 24; top >= 0; top -= 8) sum += ((x << top) >> 24) * ((y << top) >> 24)
  return sum
}

const floordiv = (x: number, y: number): number => y === 0 ? 0 : Math.floor(x / y)
const floormod = (x: number, y: number): number => y === 0 ? 0 : x - Math.floor(x / y) * y

/**
 * The meaning of an elementwise operation for operands of dtype `from`.
 *
 * Where machines differ this is the choice: `MAX` and `MIN` give the first operand when one is NaN; integer division by
 * zero gives 0; a shift counts modulo 32; float to integer saturates and NaN gives 0; `MULACC` rounds the product.
 */
export const scalar = (op: Op, from: DType, to: DType): ScalarFunction => {
  const float = from.scalar === "f32"
  const machine = from.scalar === "i32" || from.scalar === "u32"
  switch (op) {
    case "CAST":
      return cast(from, to)
    case "BITCAST":
      return bitcast(from, to)
    case "NEG":
      return (x) => -x
    case "SQRT":
      return Math.sqrt
    case "EXP2":
      return (x) => 2 ** x
    case "LOG2":
      return Math.log2
    case "SIN":
      return Math.sin
    case "TRUNC":
      return Math.trunc
    case "HALF_TO_FLOAT":
      return halfToFloat
    case "FLOAT_TO_HALF":
      return floatToHalf
    case "ADD":
      return (x, y) => x + y
    case "SUB":
      return (x, y) => x - y
    case "MUL":
      return machine ? Math.imul : (x, y) => x * y
    case "FDIV":
      return (x, y) => x / y
    case "FLOORDIV":
      return floordiv
    case "FLOORMOD":
      return floormod
    case "MAX":
      return (x, y) => x < y ? y : x
    case "MIN":
      return (x, y) => y < x ? y : x
    case "AND":
      return (x, y) => x & y
    case "OR":
      return (x, y) => x | y
    case "XOR":
      return (x, y) => x ^ y
    case "SHL":
      return machine ? (x, y) => x << y : (x, y) => x * 2 ** y
    case "SHR":
      return from.scalar === "u32" ? (x, y) => x >>> y : machine ? (x, y) => x >> y : (x, y) => Math.floor(x / 2 ** y)
    case "CMPLT":
      return (x, y) => x < y ? 1 : 0
    case "CMPEQ":
      return (x, y) => x === y ? 1 : 0
    case "CMPNE":
      return (x, y) => x !== y ? 1 : 0
    case "DOT4I8":
      return dot4I8
    case "WHERE":
      return (x, y, z) => x !== 0 ? y : z
    case "MULACC":
      return float
        ? (x, y, z) => Math.fround(x * y) + z
        : machine
        ? (x, y, z) => Math.imul(x, y) + z
        : (x, y, z) => x * y + z
    default:
      throw new Error(`${op} is not elementwise`)
  }
}

/** `MULACC` without the rounding in the middle, for float64 mode. */
export const exactMulacc: ScalarFunction = (x, y, z) => x * y + z

/** The monoid of a reduction. Float sums and products are not rounded here: they are exact to float64 until stored. */
export interface Monoid {
  readonly identity: number
  readonly combine: (x: number, y: number) => number
}

/** The monoid of a reduction over values of this dtype. A NaN does not survive `MAX` and `MIN`. */
export const monoid = (op: ReduceOp, dtype: DType): Monoid => {
  const { scalar: name } = dtype
  if (name === "bool") {
    return op === "ADD" || op === "MAX"
      ? { identity: 0, combine: (x, y) => x | y }
      : { identity: 1, combine: (x, y) => x & y }
  }
  switch (op) {
    case "ADD":
      return {
        identity: 0,
        combine: name === "i32" ? (x, y) => (x + y) | 0 : name === "u32" ? (x, y) => (x + y) >>> 0 : (x, y) => x + y
      }
    case "MUL":
      return {
        identity: 1,
        combine: name === "i32" ? Math.imul : name === "u32" ? (x, y) => Math.imul(x, y) >>> 0 : (x, y) => x * y
      }
    case "MAX":
      return {
        identity: name === "f32" ? -Infinity : name === "u32" ? 0 : -(2 ** 31),
        combine: (x, y) => x < y ? y : x
      }
    case "MIN":
      return {
        identity: name === "f32" ? Infinity : name === "u32" ? 2 ** 32 - 1 : 2 ** 31 - 1,
        combine: (x, y) => y < x ? y : x
      }
  }
}

/** The value of the symbolic integer; a missing one is a defect. */
export const variable = (node: UOp, vars: Vars): number => {
  const { name } = varArg(node)
  const value = vars[name]
  if (value === undefined) throw new Error(`no value for the variable ${name}; pass it in vars`)
  return value
}

/** A scalar expression over constants and variables, such as a dimension or the size of a loop. */
export const evaluateScalar = (node: UOp, vars: Vars): number => {
  if (node.op === "CONST") return Number(node.arg)
  if (node.op === "VAR") return variable(node, vars)
  if (!elementwise.has(node.op)) {
    throw new Error(`${node.op} in a size or an offset; only constants and variables can be`)
  }
  const [x, y, z] = node.src.map((s) => evaluateScalar(s, vars))
  const cell = allocate(node.dtype, 1)
  cell[0] = scalar(node.op, node.src[node.src.length - 1]!.dtype, node.dtype)(x!, y!, z!)
  return cell[0]!
}
