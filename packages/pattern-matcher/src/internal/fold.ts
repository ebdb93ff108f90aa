import type { ScalarName } from "@tg/core-uop/DType"
import type { Op } from "@tg/core-uop/Op"

const f32 = new Float32Array(1)
const i32 = new Int32Array(f32.buffer)
const u32 = new Uint32Array(f32.buffer)

const toBits = (value: number, scalar: ScalarName): number => {
  if (scalar === "f32") f32[0] = value
  else u32[0] = value >>> 0
  return u32[0]!
}
const fromBits = (bits: number, scalar: ScalarName): number => {
  u32[0] = bits
  return scalar === "f32" ? f32[0]! : scalar === "i32" ? i32[0]! : u32[0]!
}

/** An IEEE half in the low 16 bits, as a number. */
export const halfToFloat = (bits: number): number => {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25)
}

/** Rounds to the nearest half, ties to even. */
export const floatToHalf = (value: number): number => {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0
  const x = Math.abs(value)
  if (x >= 65520) return sign | 0x7c00
  const exponent = Math.max(-14, Math.floor(Math.log2(x === 0 ? 1 : x)))
  // log2 may round up next to a power of two; the quotient below is then just under 1024, which is exact too
  const scaled = x / 2 ** (exponent - 10)
  const low = Math.floor(scaled)
  const half = scaled - low
  const rounded = half > 0.5 || (half === 0.5 && low % 2 === 1) ? low + 1 : low
  return x === 0 ? sign : sign | (rounded + (exponent + 14) * 1024)
}

/** The sum of products of four signed bytes. */
const dot4I8 = (x: number, y: number): number =>
  [0, 8, 16, 24].reduce((sum, at) => sum + ((x << (24 - at)) >> 24) * ((y << (24 - at)) >> 24), 0)

/** Brings a result into its dtype: machine integers wrap, floats round; undefined when it is not representable. */
const wrap = (value: number, scalar: ScalarName): number | boolean | undefined => {
  switch (scalar) {
    case "i32":
      return value | 0
    case "u32":
      return value >>> 0
    case "index":
      return Number.isSafeInteger(value) ? value + 0 : undefined
    case "f32":
      return Number.isNaN(value) ? undefined : Math.fround(value)
    default:
      return undefined
  }
}

const shifts = (y: number): boolean => y >= 0 && y < 32

const float = (op: Op, x: number, y: number, z: number): number | undefined => {
  switch (op) {
    case "ADD":
      return x + y
    case "SUB":
      return x - y
    case "MUL":
      return x * y
    case "FDIV":
      return x / y
    case "MAX":
      return Math.max(x, y)
    case "MIN":
      return Math.min(x, y)
    case "NEG":
      return -x
    case "SQRT":
      return Math.sqrt(x)
    case "EXP2":
      return 2 ** x
    case "LOG2":
      return Math.log2(x)
    case "SIN":
      return Math.sin(x)
    case "TRUNC":
      return Math.trunc(x)
    case "MULACC":
      return Math.fround(x * y) + z
    default:
      return undefined
  }
}

const integer = (op: Op, scalar: ScalarName, x: number, y: number, z: number): number | undefined => {
  const exact = scalar === "index"
  switch (op) {
    case "ADD":
      return x + y
    case "SUB":
      return x - y
    case "NEG":
      return -x
    case "MUL":
      return exact ? x * y : Math.imul(x, y)
    case "MULACC":
      return exact ? x * y + z : Math.imul(x, y) + z
    case "FLOORDIV":
      return y === 0 ? undefined : Math.floor(x / y)
    case "FLOORMOD":
      return y === 0 ? undefined : x - Math.floor(x / y) * y
    case "MAX":
      return Math.max(x, y)
    case "MIN":
      return Math.min(x, y)
    case "SHL":
      return shifts(y) ? exact ? x * 2 ** y : x << y : undefined
    case "SHR":
      return shifts(y) ? exact ? Math.floor(x / 2 ** y) : scalar === "u32" ? x >>> y : x >> y : undefined
    default:
      return bitwise(op, scalar, x, y)
  }
}

const bitwise = (op: Op, scalar: ScalarName, x: number, y: number): number | undefined => {
  // bitwise operations are defined on 32 bits only
  if (scalar === "index" && ((x | 0) !== x || (y | 0) !== y)) return undefined
  switch (op) {
    case "AND":
      return x & y
    case "OR":
      return x | y
    case "XOR":
      return x ^ y
    default:
      return undefined
  }
}

const boolean = (op: Op, x: boolean, y: boolean): boolean | undefined => {
  switch (op) {
    case "AND":
    case "MIN":
    case "MUL":
      return x && y
    case "OR":
    case "MAX":
    case "ADD":
      return x || y
    case "XOR":
      return x !== y
    default:
      return undefined
  }
}

/** The value after a conversion; undefined when it depends on the device. */
export const convert = (
  value: number | boolean,
  from: ScalarName,
  to: ScalarName
): number | boolean | undefined => {
  if (to === "bool") return Number(value) !== 0
  if (from !== "f32") {
    const x = Number(value)
    if (to === "index") return (x | 0) === x ? x : undefined
    return wrap(x, to)
  }
  const x = Math.trunc(Number(value)) + 0
  if (to === "f32") return Number(value)
  const [low, high] = to === "u32" ? [0, 2 ** 32 - 1] : [-(2 ** 31), 2 ** 31 - 1]
  return x >= low && x <= high ? x : undefined
}

/** Constant folding of an elementwise operation; undefined where devices may differ. */
export const fold = (
  op: Op,
  to: ScalarName,
  from: ScalarName,
  values: ReadonlyArray<number | boolean>
): number | boolean | undefined => {
  const [a, b, c] = values
  const x = Number(a)
  const y = Number(b)
  switch (op) {
    case "CMPLT":
      return x < y
    case "CMPEQ":
      return x === y
    case "CMPNE":
      return x !== y
    case "WHERE":
      return a === true ? b : c
    case "CAST":
      return convert(a!, from, to)
    case "BITCAST": {
      if (from === "bool" || to === "bool" || from === "index" || to === "index") return undefined
      return wrap(fromBits(toBits(x, from), to), to)
    }
    case "HALF_TO_FLOAT":
      return wrap(halfToFloat(x & 0xffff), "f32")
    case "DOT4I8":
      return dot4I8(x, y)
    case "FLOAT_TO_HALF":
      return Number.isNaN(x) ? undefined : floatToHalf(Math.fround(x))
    default: {
      if (to === "bool") return boolean(op, a === true, b === true)
      const result = to === "f32"
        ? float(op, Math.fround(x), Math.fround(y), Math.fround(Number(c)))
        : integer(op, to, x, y, Number(c))
      return result === undefined ? undefined : wrap(result, to)
    }
  }
}
