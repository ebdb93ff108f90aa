import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import type { Op } from "@tg/core-uop/Op"
import type { UOp } from "@tg/core-uop/UOp"
import type { Helper } from "./helpers.ts"
import { atom, compound, laneOf, operand, Refusal, splatValue, type Text, typeName } from "./text.ts"

/** What the text of an operation depends on besides its operands. */
export interface Context {
  /** True when unpack2x16float keeps subnormal halves. */
  readonly halfSubnormals: boolean
  /** True when pack2x16float rounds to nearest even. */
  readonly halfRounding: boolean
  readonly use: (helper: Helper) => void
}

/** A half inside a word: what HALF_TO_FLOAT reads, seen through the shift or mask that moves it to the low bits. */
interface Half {
  readonly word: UOp
  readonly high: boolean
}

const halfOf = (source: UOp): Half => {
  if (source.op === "SHR" && source.src[0]!.op !== "REG" && splatValue(source.src[1]!) === 16) {
    return { word: source.src[0]!, high: true }
  }
  if (source.op === "AND" && source.src[0]!.op !== "REG" && splatValue(source.src[1]!) === 0xffff) {
    return { word: source.src[0]!, high: false }
  }
  return { word: source, high: false }
}

const shiftOf = (divisor: UOp): number | undefined => {
  const value = splatValue(divisor)
  if (value === undefined || value < 1 || value > 2 ** 30) return undefined
  const shift = Math.log2(value)
  return Number.isInteger(shift) ? shift : undefined
}

/** True when WGSL's division agrees with floor division: it truncates, and its x / 0 is x. */
const plainDivision = (node: UOp): boolean => Bounds.of(node.src[0]!).min >= 0 && Bounds.of(node.src[1]!).min > 0

const isUnsigned = (node: UOp): boolean => node.dtype.scalar === "u32"

/** True when the operation is scalarised: its text calls a function for each lane. */
const perLane = (node: UOp): boolean => {
  switch (node.op) {
    case "HALF_TO_FLOAT":
    case "FLOAT_TO_HALF":
    case "SIN":
    case "DOT4I8":
      return true
    case "FLOORDIV":
    case "FLOORMOD":
      return !isUnsigned(node) && !plainDivision(node) && shiftOf(node.src[1]!) === undefined
    default:
      return false
  }
}

/** The operands of an operation; a half's shift or mask is part of the conversion. */
export const operands = (node: UOp, halfSubnormals: boolean): ReadonlyArray<UOp> =>
  node.op === "HALF_TO_FLOAT" && halfSubnormals ? [halfOf(node.src[0]!).word] : node.src

/** The operands, repeated if the text contains them more than once. */
export const inputs = (node: UOp, halfSubnormals: boolean): ReadonlyArray<UOp> => {
  const nodes = operands(node, halfSubnormals)
  const repeats = perLane(node)
    ? node.dtype.lanes > 1
    : node.op === "FLOORDIV" && isUnsigned(node) && !plainDivision(node)
  return repeats ? [...nodes, ...nodes] : nodes
}

/** `a op b` for the operations of reductions. */
export const combine = (op: Op, dtype: DType.DType, a: Text, b: Text): Text => {
  if (dtype.scalar === "bool") {
    return compound(`${operand(a)} ${op === "MAX" || op === "ADD" ? "|" : "&"} ${operand(b)}`)
  }
  switch (op) {
    case "ADD":
      return compound(`${operand(a)} + ${operand(b)}`)
    case "MUL":
      return compound(`${operand(a)} * ${operand(b)}`)
    case "MAX":
      return atom(`max(${a.code}, ${b.code})`)
    case "MIN":
      return atom(`min(${a.code}, ${b.code})`)
    default:
      throw new Refusal(`${op} does not combine values`)
  }
}

const lanes = (dtype: DType.DType, make: (i: number) => string): Text =>
  dtype.lanes === 1
    ? atom(make(0))
    : atom(`${typeName(dtype)}(${Array.from({ length: dtype.lanes }, (_, i) => make(i)).join(", ")})`)

const call = (node: UOp, name: Helper, args: ReadonlyArray<Text>, context: Context): Text => {
  context.use(name)
  const n = node.dtype.lanes
  return lanes(node.dtype, (i) => `${name}(${args.map((a) => laneOf(a, n, i)).join(", ")})`)
}

const halfToFloat = (node: UOp, [word]: ReadonlyArray<Text>, context: Context): Text => {
  if (!context.halfSubnormals) return call(node, "half_to_float", [word!], context)
  const component = halfOf(node.src[0]!).high ? "y" : "x"
  return lanes(node.dtype, (i) => `unpack2x16float(${laneOf(word!, node.dtype.lanes, i)}).${component}`)
}

const floatToHalf = (node: UOp, args: ReadonlyArray<Text>, context: Context): Text =>
  context.halfRounding
    ? lanes(node.dtype, (i) => `pack2x16float(vec2<f32>(${laneOf(args[0]!, node.dtype.lanes, i)}, 0.0))`)
    : call(node, "float_to_half", args, context)

/** A constant, broadcast to the lanes. */
const splat = (dtype: DType.DType, value: string): string => dtype.lanes === 1 ? value : `${typeName(dtype)}(${value})`

const division = (node: UOp, args: ReadonlyArray<Text>, context: Context): Text => {
  const [a, b] = args as [Text, Text]
  const divides = node.op === "FLOORDIV"
  if (splatValue(node.src[1]!) === 0) return atom(`${typeName(node.dtype)}()`)
  if (plainDivision(node)) return compound(`${operand(a)} ${divides ? "/" : "%"} ${operand(b)}`)
  if (isUnsigned(node)) {
    const remainder = compound(`${operand(a)} % ${operand(b)}`)
    const zero = `${typeName(node.dtype)}()`
    return divides ? atom(`select(${operand(a)} / ${operand(b)}, ${zero}, ${operand(b)} == ${zero})`) : remainder
  }
  const shift = shiftOf(node.src[1]!)
  if (shift === undefined) return call(node, divides ? "floor_div" : "floor_mod", [a, b], context)
  // an arithmetic shift rounds toward minus infinity, and a mask gives the remainder that belongs to it
  return divides
    ? compound(`${operand(a)} >> ${splat(DType.withLanes(DType.u32, node.dtype.lanes), `${shift}u`)}`)
    : compound(`${operand(a)} & ${splat(node.dtype, String(2 ** shift - 1))}`)
}

const shift = (node: UOp, [a, amount]: ReadonlyArray<Text>): Text => {
  const symbol = node.op === "SHL" ? "<<" : ">>"
  const type = DType.withLanes(DType.u32, node.dtype.lanes)
  const known = splatValue(node.src[1]!)
  const by = known !== undefined
    ? splat(type, `${known & 31}u`) // WGSL rejects a constant above 31
    : node.src[1]!.dtype.scalar === "u32"
    ? operand(amount!)
    : `${typeName(type)}(${amount!.code})`
  return compound(`${operand(a!)} ${symbol} ${by}`)
}

const cast = (node: UOp, x: Text): Text => {
  const from = node.src[0]!.dtype.scalar === "index" ? "i32" : node.src[0]!.dtype.scalar
  const to = node.dtype.scalar === "index" ? "i32" : node.dtype.scalar
  if (node.op === "BITCAST" && (from === "bool" || to === "bool")) {
    throw new Refusal("BITCAST of bools, which have no bits")
  }
  return from === to
    ? x
    : atom(`${node.op === "BITCAST" ? `bitcast<${typeName(node.dtype)}>` : typeName(node.dtype)}(${x.code})`)
}

const symbols: Readonly<Partial<Record<Op, string>>> = {
  ADD: "+",
  SUB: "-",
  MUL: "*",
  FDIV: "/",
  AND: "&",
  OR: "|",
  CMPLT: "<",
  CMPEQ: "==",
  CMPNE: "!="
}

const functions: Readonly<Partial<Record<Op, string>>> = {
  SQRT: "sqrt",
  EXP2: "exp2",
  LOG2: "log2",
  TRUNC: "trunc",
  MAX: "max",
  MIN: "min"
}

/** The text of an elementwise operation; `args` are the texts of its `operands`. */
export const elementwise = (node: UOp, args: ReadonlyArray<Text>, context: Context): Text => {
  const [a, b, c] = args as [Text, Text, Text]
  const isBool = node.src[0]!.dtype.scalar === "bool"
  switch (node.op) {
    case "CAST":
    case "BITCAST":
      return cast(node, a)
    case "NEG":
      return node.dtype.scalar === "u32"
        ? compound(`${splat(node.dtype, "0u")} - ${operand(a)}`)
        : compound(`-${operand(a)}`)
    case "SIN":
      return call(node, "sine", args, context)
    case "HALF_TO_FLOAT":
      return halfToFloat(node, args, context)
    case "FLOAT_TO_HALF":
      return floatToHalf(node, args, context)
    case "DOT4I8":
      return lanes(node.dtype, (i) => `dot4I8Packed(${args.map((x) => laneOf(x, node.dtype.lanes, i)).join(", ")})`)
    case "FLOORDIV":
    case "FLOORMOD":
      return division(node, args, context)
    case "SHL":
    case "SHR":
      return shift(node, args)
    case "XOR":
      if (!isBool) return compound(`${operand(a)} ^ ${operand(b)}`)
      return splatValue(node.src[1]!) === 1 ? compound(`!${operand(a)}`) : compound(`${operand(a)} != ${operand(b)}`)
    case "CMPLT":
      return isBool ? compound(`(!${operand(a)}) & ${operand(b)}`) : compound(`${operand(a)} < ${operand(b)}`)
    case "WHERE":
      return atom(`select(${c.code}, ${b.code}, ${a.code})`)
    case "MULACC":
      return node.dtype.scalar === "f32"
        ? atom(`fma(${a.code}, ${b.code}, ${c.code})`)
        : compound(`(${operand(a)} * ${operand(b)}) + ${operand(c)}`)
    default: {
      const symbol = symbols[node.op]
      if (symbol !== undefined) return compound(`${operand(a)} ${symbol} ${operand(b)}`)
      const name = functions[node.op]
      if (name !== undefined) return atom(`${name}(${args.map((x) => x.code).join(", ")})`)
      throw new Refusal(`${node.op} has no WGSL form`)
    }
  }
}
