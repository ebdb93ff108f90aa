import * as DType from "./DType.ts"
import { comparison, type Op, type ReduceOp } from "./Op.ts"
import type { Arena, Axis, UOp } from "./UOp.ts"

/** A scalar constant. Index and integer values must be integers; booleans take the dtype `bool`. */
export const constant = (arena: Arena, dtype: DType.DType, value: number | boolean): UOp =>
  arena.make("CONST", dtype, [], dtype.scalar === "bool" ? Boolean(value) : Number(value))

/** An index constant. */
export const int = (arena: Arena, value: number): UOp => arena.make("CONST", DType.index, [], value)

/** A constant of the dtype of `x`, broadcast to its lanes. It is a scalar also where `x` has a shape (tensor stage). */
export const like = (x: UOp, value: number | boolean): UOp =>
  x.dtype.lanes === 1
    ? constant(x.arena, x.dtype, value)
    : splat(constant(x.arena, DType.scalarOf(x.dtype), value), x.dtype.lanes)

/** A symbolic integer with inclusive bounds. */
export const variable = (arena: Arena, name: string, min: number, max: number): UOp =>
  arena.make("VAR", DType.index, [], { name, min, max })

/** A loop variable counting 0 .. size-1. */
export const range = (arena: Arena, size: UOp | number, id: number, axis: Axis): UOp =>
  arena.make("RANGE", DType.index, [typeof size === "number" ? int(arena, size) : size], { id, axis })

/** Broadcasts a scalar to all lanes. */
export const splat = (x: UOp, lanes: DType.Lanes): UOp =>
  lanes === 1 ? x : x.arena.make("STACK", DType.withLanes(x.dtype, lanes), Array.from({ length: lanes }, () => x))

/** An elementwise operation; the result dtype follows from the sources (comparisons give `bool`). */
export const alu = (op: Op, ...src: ReadonlyArray<UOp>): UOp => {
  const last = src[src.length - 1]!
  const dtype = comparison.has(op)
    ? DType.withLanes(DType.bool, last.dtype.lanes)
    : op === "HALF_TO_FLOAT"
    ? DType.withLanes(DType.f32, last.dtype.lanes)
    : op === "FLOAT_TO_HALF"
    ? DType.withLanes(DType.u32, last.dtype.lanes)
    : op === "DOT4I8"
    ? DType.withLanes(DType.i32, last.dtype.lanes)
    : last.dtype
  return last.arena.make(op, dtype, src)
}

type Operand = UOp | number
const lift = (x: UOp, y: Operand): UOp => typeof y === "number" ? like(x, y) : y

export const add = (x: UOp, y: Operand): UOp => alu("ADD", x, lift(x, y))
export const sub = (x: UOp, y: Operand): UOp => alu("SUB", x, lift(x, y))
export const mul = (x: UOp, y: Operand): UOp => alu("MUL", x, lift(x, y))
export const fdiv = (x: UOp, y: Operand): UOp => alu("FDIV", x, lift(x, y))
export const floordiv = (x: UOp, y: Operand): UOp => alu("FLOORDIV", x, lift(x, y))
export const floormod = (x: UOp, y: Operand): UOp => alu("FLOORMOD", x, lift(x, y))
export const max = (x: UOp, y: Operand): UOp => alu("MAX", x, lift(x, y))
export const min = (x: UOp, y: Operand): UOp => alu("MIN", x, lift(x, y))
export const and = (x: UOp, y: Operand): UOp => alu("AND", x, lift(x, y))
export const or = (x: UOp, y: Operand): UOp => alu("OR", x, lift(x, y))
export const xor = (x: UOp, y: Operand): UOp => alu("XOR", x, lift(x, y))
export const shl = (x: UOp, y: Operand): UOp => alu("SHL", x, lift(x, y))
export const shr = (x: UOp, y: Operand): UOp => alu("SHR", x, lift(x, y))
export const lt = (x: UOp, y: Operand): UOp => alu("CMPLT", x, lift(x, y))
export const eq = (x: UOp, y: Operand): UOp => alu("CMPEQ", x, lift(x, y))
export const ne = (x: UOp, y: Operand): UOp => alu("CMPNE", x, lift(x, y))
export const neg = (x: UOp): UOp => alu("NEG", x)
/** `!x` for booleans. */
export const not = (x: UOp): UOp => alu("XOR", x, like(x, true))
export const where = (condition: UOp, a: UOp, b: UOp): UOp => alu("WHERE", condition, a, b)

/** Converts the value; float to integer truncates toward zero. */
export const cast = (x: UOp, dtype: DType.DType): UOp => {
  const to = DType.withLanes(dtype, x.dtype.lanes)
  return x.dtype === to ? x : x.arena.make("CAST", to, [x])
}

/** Reinterprets the 32 bits. */
export const bitcast = (x: UOp, dtype: DType.DType): UOp => {
  const to = DType.withLanes(dtype, x.dtype.lanes)
  return x.dtype === to ? x : x.arena.make("BITCAST", to, [x])
}

/** Kernel stages: combines `x` over the given ranges. */
export const reduce = (op: ReduceOp, x: UOp, ranges: ReadonlyArray<UOp>): UOp =>
  ranges.length === 0 ? x : x.arena.make("REDUCE", x.dtype, [x, ...ranges], { op, axes: [] })

/** The element of a buffer at a flat index. A gate predicates the access: where it is false a load gives 0, a store does nothing. */
export const element = (buffer: UOp, at: UOp, gate?: UOp): UOp =>
  buffer.arena.make("INDEX", buffer.dtype, gate === undefined ? [buffer, at] : [buffer, at, gate])

/** Reads an element, or `lanes` neighbouring ones. */
export const load = (element: UOp, lanes: DType.Lanes = 1): UOp =>
  element.arena.make("LOAD", DType.withLanes(element.dtype, lanes), [element])

export const store = (target: UOp, value: UOp): UOp => target.arena.make("STORE", DType.none, [target, value])

/** A condition besides the one of a gate, if there is one. */
export const gated = (gate: UOp | undefined, condition: UOp): UOp =>
  gate === undefined ? condition : and(gate, condition)

/** A STORE that a condition allows, besides those that it has. */
export const storeIf = (store: UOp, condition: UOp): UOp => {
  const [target, value] = store.src
  const [buffer, at, gate] = target!.src
  return store.with([element(buffer!, at!, gated(gate, condition)), value!])
}

/** One lane of a vector. */
export const lane = (x: UOp, i: number): UOp =>
  x.dtype.lanes === 1 ? x : x.op === "STACK" ? x.src[i]! : x.arena.make("LANE", DType.scalarOf(x.dtype), [x], i)

/** The neutral element of a reduction over values of this dtype. */
export const identity = (arena: Arena, op: ReduceOp, dtype: DType.DType): UOp => {
  const scalar = DType.scalarOf(dtype)
  return splat(constant(arena, scalar, identityValue(op, scalar)), dtype.lanes)
}

const identityValue = (op: ReduceOp, dtype: DType.DType): number | boolean => {
  if (dtype.scalar === "bool") return op === "MUL" || op === "MIN"
  switch (op) {
    case "ADD":
      return 0
    case "MUL":
      return 1
    case "MAX":
      return dtype.scalar === "f32" ? -Infinity : dtype.scalar === "u32" ? 0 : -(2 ** 31)
    case "MIN":
      return dtype.scalar === "f32" ? Infinity : dtype.scalar === "u32" ? 2 ** 32 - 1 : 2 ** 31 - 1
  }
}
