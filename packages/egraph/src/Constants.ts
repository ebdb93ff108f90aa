/**
 * Constant factors of what sums multiply, behind the sums. To a search it is all one whether keys, queries or scores are scaled, where loads hide it; but a product
 * with halves is one of halves alone.
 */
import * as DType from "@tg/core-uop/DType"
import { movement } from "@tg/core-uop/Op"
import { rebuild, reduceArg, type UOp } from "@tg/core-uop/UOp"
import { Tensor } from "@tg/tensor/Tensor"

interface Scaled {
  readonly value: UOp
  readonly factor: number
}

/** A value, which may be moved, without the constants that it is multiplied with; padding stays zero. */
export const scaledOf = (node: UOp): Scaled => {
  const [a, b] = node.src
  if (node.op === "MUL" && (a!.op === "CONST" || b!.op === "CONST")) {
    const [constant, other] = a!.op === "CONST" ? [a!, b!] : [b!, a!]
    const { factor, value } = scaledOf(other)
    return { value, factor: factor * Number(constant.arg) }
  }
  if (!movement.has(node.op)) return { value: node, factor: 1 }
  const { factor, value } = scaledOf(a!)
  return factor === 1 ? { value: node, factor } : { value: node.with([value, ...node.src.slice(1)]), factor }
}

/** A sum of products with the constant factors of both operands behind it; none where there are none. */
const ofSum = (node: UOp): UOp | undefined => {
  const product = node.src[0]!
  if (node.op !== "REDUCE" || reduceArg(node).op !== "ADD" || product.op !== "MUL" || !DType.isFloat(node.dtype)) {
    return undefined
  }
  const operands = product.src.map(scaledOf)
  const factor = operands.reduce((n, operand) => n * operand.factor, 1)
  if (factor === 1 || !Number.isFinite(factor) || factor === 0) return undefined
  return new Tensor(node.with([product.with(operands.map(({ value }) => value))])).mul(factor).node
}

/** The program whose sums of products have constant factors behind them. Sums are rounded otherwise, as by another order of summation. */
export const behindSums = (sink: UOp): UOp =>
  rebuild(sink, (node, src) => {
    const now = src === node.src ? node : node.with(src)
    const since = now.arena.size
    const made = ofSum(now)
    if (made === undefined) return now
    now.arena.inherit(made, node, since)
    return made
  })
