/** Norms by the root of the mean square, alone and as the operand of products. */
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
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
import { hidesRounding, isWorthRounding } from "./ProductCost.ts"
import { shared } from "./Schedule.ts"

/** What a norm computes with. */
export interface NormInput extends Manner {
  readonly epsilon: number
  readonly weights: Lookup
}

/** The norm of each token; its factor is computed once where it is worth storing. */
export const norm = ({ epsilon, order, weights }: NormInput, x: Tensor, role: string): Tensor =>
  x.mul(shared({ order }, Nn.rmsScale(x, epsilon).label(role))).mul(plain(need(weights, role))).label(role)

/** The norm of each token, for several products. */
export const normed = (input: NormInput, x: Tensor, role: string): Tensor => shared(input, norm(input, x, role))

/**
 * The norm of each token, for the product with the matrix of a role, and others. Only a few rows read it: what is not rounded in place
 * stays floats.
 */
export const normedFor = (input: NormInput, x: Tensor, role: string, reader: string): Operand => {
  const values = normed(input, x, role)
  // of several tokens, each workgroup would round all
  if (x.dim(0) !== 1) return ofTokens(values, input)
  const { columns, rows } = matrixOf(need(input.weights, reader))
  return canRound(input, x) && isWorthRounding({ columns, rows }, input.profile)
    ? inPlace(values)
    : ofFewRows(values, input)
}

/** The norm of each token, for products with large matrices, which read bytes wherever they are rounded; one of them has this role. */
export const normedForLarge = (input: NormInput, x: Tensor, role: string, reader: string): Operand => {
  const values = normed(input, x, role)
  return x.dim(0) === 1 && canRound(input, x) &&
      hidesRounding(need(input.weights, reader).layout.words * 4, input.profile)
    ? inPlace(values)
    : ofTokens(values, input)
}

const canRound = ({ activations }: Manner, x: Tensor): boolean => activations === "int8" && hasBlocks(x)

const matrixOf = ({ layout: { shape } }: Weight): { readonly rows: number; readonly columns: number } => ({
  columns: shape.at(-1)!,
  rows: shape.slice(0, -1).reduce((n, d) => n * d, 1)
})
