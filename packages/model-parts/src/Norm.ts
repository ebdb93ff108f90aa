/** Norms by the root of the mean square, alone and as the operand of products. */
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import { type Lookup, type Manner, need, ofTokens, type Operand, plain } from "./Product.ts"
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

/** The norm of each token, as products read it. */
export const operand = (input: NormInput, x: Tensor, role: string): Operand => ofTokens(normed(input, x, role), input)
