import * as DType from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"

/** WebAssembly's types of the values that kernels use. */
export type ValueType = "i32" | "f32" | "v128"

/** How a value is held: booleans are 0 or 1, and in vectors lanes of all zeros or all ones. */
export const valueType = (dtype: DType.DType): ValueType =>
  dtype.lanes === 4 ? "v128" : DType.isFloat(dtype) ? "f32" : "i32"

/** Instruction prefix of the lanes' type: `f32`, `i32x4`. */
export const prefix = (dtype: DType.DType): string =>
  (DType.isFloat(dtype) ? "f32" : "i32") + (dtype.lanes === 4 ? "x4" : "")

const float = (value: number): string => {
  const x = Math.fround(value)
  if (Number.isNaN(x)) return "nan"
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf"
  // the shortest decimal of a double that is exactly an f32 reads back as that f32
  return Object.is(x, -0) ? "-0" : String(x)
}

const lane = (node: UOp): string => {
  const value = Number(node.arg)
  if (DType.isFloat(node.dtype)) return float(value)
  return String(node.dtype.scalar === "bool" ? -value : value | 0)
}

/** The one scalar in all lanes of a vector, if it is made that way. */
export const uniform = (node: UOp): UOp | undefined =>
  node.op === "STACK" && node.src.every((s) => s === node.src[0]) ? node.src[0] : undefined

/** The constant that a scalar, or every lane of a vector, is. */
export const constantOf = (node: UOp): number | undefined => {
  const scalar = uniform(node) ?? node
  return scalar.op === "CONST" ? Number(scalar.arg) : undefined
}

export const isConstant = (node: UOp): boolean =>
  node.op === "CONST" || (node.op === "STACK" && node.src.every((s) => s.op === "CONST"))

/** A literal: `(f32.const 1.5)`, `(v128.const i32x4 0 1 2 3)`. */
export const literal = (node: UOp): string => {
  if (node.op === "STACK") return `(v128.const ${prefix(node.dtype)} ${node.src.map(lane).join(" ")})`
  if (node.dtype.lanes === 4) return `(v128.const ${prefix(node.dtype)} ${Array(4).fill(lane(node)).join(" ")})`
  return node.dtype.scalar === "bool"
    ? `(i32.const ${Number(node.arg)})`
    : `(${prefix(node.dtype)}.const ${lane(node)})`
}

export const zero = (dtype: DType.DType): string =>
  dtype.lanes === 4 ? "(v128.const i32x4 0 0 0 0)" : `(${valueType(dtype)}.const 0)`

/** Where the lanes of a `STACK` come from, if all are lanes of at most two vectors. */
export const shuffle = (
  node: UOp
): { readonly vectors: ReadonlyArray<UOp>; readonly lanes: ReadonlyArray<number> } | undefined => {
  if (node.op !== "STACK" || node.dtype.scalar === "void" || node.src.some((s) => s.op !== "LANE")) return undefined
  const vectors = [...new Set(node.src.map((s) => s.src[0]!))]
  if (vectors.length > 2) return undefined
  return { vectors, lanes: node.src.map((s) => 4 * vectors.indexOf(s.src[0]!) + Number(s.arg)) }
}

export const isPowerOfTwo = (x: number | undefined): x is number =>
  x !== undefined && Number.isInteger(x) && x > 0 && Number.isInteger(Math.log2(x))
