import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import { valueOf } from "../UPat.ts"

export { valueOf }

/** A constant with the dtype, lanes and shape of `x`. */
export const constantLike = (x: UOp, value: number | boolean): UOp => {
  const shape = Shape.of(x)
  if (shape.length === 0) return Expr.like(x, value)
  const dims = shape.map((d) => Shape.toUOp(x.arena, d))
  return x.arena.make("CONST", x.dtype, dims, x.dtype.scalar === "bool" ? Boolean(value) : Number(value))
}

/** A scalar of index arithmetic: not a vector, and not a tensor. */
export const isIndex = (node: UOp): boolean => node.dtype === DType.index && Shape.of(node).length === 0

export const isMachineInteger = (node: UOp): boolean => node.dtype.scalar === "i32" || node.dtype.scalar === "u32"
export const isInteger = (node: UOp): boolean => isMachineInteger(node) || node.dtype.scalar === "index"
export const isFloat = (node: UOp): boolean => node.dtype.scalar === "f32"
export const isBool = (node: UOp): boolean => node.dtype.scalar === "bool"

/** `!x` without a double negation. */
export const not = (x: UOp): UOp => {
  const value = valueOf(x)
  if (value !== undefined) return constantLike(x, value !== true)
  if (x.op === "XOR" && valueOf(x.src[1]!) === true) return x.src[0]!
  return x.arena.make("XOR", x.dtype, [x, constantLike(x, true)])
}

export const alu = (op: "AND" | "OR", a: UOp, b: UOp): UOp => a.arena.make(op, a.dtype, [a, b])
