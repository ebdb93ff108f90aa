import type { DType } from "./DType.ts"
import { copyOut, product, stridesOf } from "./EvaluateArray.ts"
import type { Data } from "./EvaluateOps.ts"
import * as Print from "./Print.ts"
import { argOf, type UOp } from "./UOp.ts"

/** The value of a tensor-stage node: row-major, dense, with every symbolic dimension at its value. */
export interface Value {
  readonly dtype: DType
  readonly shape: ReadonlyArray<number>
  readonly data: Data
}

/** A defect of the program at this node. */
export const fail = (node: UOp, problem: string): never => {
  const label = node.arena.labelOf(node)
  throw new Error(`${Print.line(node)}${label === undefined ? "" : ` # ${label}`}: ${problem}`)
}

const sameKind = (data: Data, length: number): Data => new (data.constructor as new(n: number) => Data)(length)

/** A strided box of `x` as a dense value. */
export const box = (x: Value, shape: ReadonlyArray<number>, strides: ReadonlyArray<number>, offset = 0): Value => {
  const data = sameKind(x.data, product(shape))
  copyOut(data, x.data, { shape, strides, offset })
  return { dtype: x.dtype, shape, data }
}

const shrunk = (node: UOp, x: Value, starts: ReadonlyArray<number>, sizes: ReadonlyArray<number>): Value => {
  for (const [axis, start] of starts.entries()) {
    if (start < 0 || sizes[axis]! < 0 || start + sizes[axis]! > x.shape[axis]!) {
      fail(node, `takes [${start}, ${start + sizes[axis]!}) of axis ${axis}, which has ${x.shape[axis]} elements`)
    }
  }
  const strides = stridesOf(x.shape)
  return box(x, sizes, strides, starts.reduce((p, start, axis) => p + start * strides[axis]!, 0))
}

/** The value with zeros around it. */
export const padded = (x: Value, low: ReadonlyArray<number>, high: ReadonlyArray<number>): Value => {
  const shape = x.shape.map((d, axis) => low[axis]! + d + high[axis]!)
  const data = sameKind(x.data, product(shape))
  const strides = stridesOf(shape)
  const inner = stridesOf(x.shape)
  for (let i = 0; i < x.data.length; i++) {
    const at = x.shape.reduce((p, d, axis) => p + (Math.floor(i / inner[axis]!) % d + low[axis]!) * strides[axis]!, 0)
    data[at] = x.data[i]!
  }
  return { dtype: x.dtype, shape, data }
}

/** RESHAPE, EXPAND, PERMUTE, SHRINK and FLIP of a value; `dim` evaluates the dimensions and offsets among the sources. */
export const moved = (node: UOp, x: Value, dim: (size: UOp) => number): Value => {
  const strides = stridesOf(x.shape)
  switch (node.op) {
    case "RESHAPE": {
      const shape = node.src.slice(1).map(dim)
      if (product(shape) !== product(x.shape)) fail(node, `[${x.shape}] has not as many elements as [${shape}]`)
      return { ...x, shape }
    }
    case "EXPAND": {
      const shape = node.src.slice(1).map(dim)
      for (const [axis, d] of shape.entries()) {
        if (x.shape[axis] !== d && x.shape[axis] !== 1) fail(node, `[${x.shape}] does not expand to [${shape}]`)
      }
      if (shape.length !== x.shape.length) fail(node, `[${x.shape}] does not expand to [${shape}]`)
      return box(x, shape, strides.map((s, axis) => x.shape[axis] === 1 ? 0 : s))
    }
    case "PERMUTE": {
      const order = argOf(node, "PERMUTE")
      return box(x, order.map((axis) => x.shape[axis]!), order.map((axis) => strides[axis]!))
    }
    case "SHRINK":
      return shrunk(
        node,
        x,
        x.shape.map((_, axis) => dim(node.src[1 + 2 * axis]!)),
        x.shape.map((_, axis) => dim(node.src[2 + 2 * axis]!))
      )
    case "FLIP": {
      const axes = argOf(node, "FLIP")
      const start = x.shape.reduce((p, d, axis) => axes.includes(axis) ? p + (d - 1) * strides[axis]! : p, 0)
      return box(x, x.shape, strides.map((s, axis) => axes.includes(axis) ? -s : s), start)
    }
    default:
      return fail(node, "is not a view")
  }
}
