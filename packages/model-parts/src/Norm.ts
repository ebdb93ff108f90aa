/** Norms by the root of the mean square, alone and as the operand of products. */
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import { keep } from "./Order.ts"
import {
  hasBlocks,
  inPlace,
  type Lookup,
  type Manner,
  need,
  ofFewRows,
  ofTokens,
  type Operand,
  plain,
  type Weight
} from "./Product.ts"
import { isWorthRounding } from "./ProductCost.ts"

/** What a norm computes with. */
export interface NormInput extends Manner {
  readonly epsilon: number
  readonly weights: Lookup
}

/** The norm of each token; its factor is computed once where it is worth storing. */
export const norm = ({ epsilon, order, weights }: NormInput, x: Tensor, role: string): Tensor =>
  x.mul(keep(order, Nn.rmsScale(x, epsilon).label(role))).mul(plain(need(weights, role))).label(role)

/** The norm of each token, for several products. */
export const normed = (input: NormInput, x: Tensor, role: string): Tensor => keep(input.order, norm(input, x, role))

/**
 * The norm of each token, for the product with the matrix of a role, and others. If that rounds its operand, the factor of the
 * norm scales the results, so that rounding need not wait for it.
 */
export const normedFor = (input: NormInput, x: Tensor, role: string, reader: string): Operand => {
  const { epsilon, weights } = input
  const values = normed(input, x, role)
  // of several tokens, each workgroup would round all
  if (x.dim(0) !== 1) return ofTokens(values, input)
  if (!roundsItself(input, x, need(weights, reader))) return ofFewRows(values, input)
  // the squares of a block are added up where its quants are made
  const blocks = x.reshape([...x.shape.slice(0, -1), Number(x.dim(-1)) / Int8.blockValues, Int8.blockValues])
  const means = blocks.mul(blocks).mean(-1).label("int8")
  return {
    values,
    int8: inPlace(x.mul(plain(need(weights, role)))),
    factor: means.mean({ axis: -1, keepDims: true }).add(epsilon).rsqrt().label(role)
  }
}

const roundsItself = ({ activations, profile }: Manner, x: Tensor, { layout: { shape } }: Weight): boolean =>
  activations === "int8" && hasBlocks(x) &&
  isWorthRounding({ columns: Number(x.dim(-1)), rows: shape.slice(0, -1).reduce((n, d) => n * d, 1) }, profile)
