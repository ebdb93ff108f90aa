/** Gradients of tensor programs, as tensor programs. */
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { full, type Tensor } from "@tg/tensor/Tensor"
import { sweep } from "./internal/backward.ts"
import { fail } from "./GradError.ts"
import { none, type Rules, standard } from "./Rules.ts"

/** How gradients are made. */
export interface Options {
  /** The derivatives of the operations; `Rules.standard` by default. */
  readonly rules?: Rules
}

/** A value of one element, and its gradients. */
export interface ValueAndGradients {
  readonly value: Tensor
  /** By the numbers of the inputs, in their shapes, as floats. */
  readonly gradients: ReadonlyArray<Tensor>
}

/**
 * The gradients of `value`, of one element, with respect to tensors that it was computed from, by reverse mode. Zeros for floats that
 * it does not depend on. An input of words (`u32`, `i32`) counts as the floats that its bits are.
 */
export const gradients = (
  value: Tensor,
  inputs: ReadonlyArray<Tensor>,
  { rules = standard }: Options = {}
): ReadonlyArray<Tensor> => {
  if (value.dtype !== DType.f32 || value.shape.some((d) => d !== 1)) {
    const found = `${DType.print(value.dtype)} ${Shape.print(value.shape)}`
    return fail("gradients", "a value of one float", found, "sum it first, or weigh it and sum")
  }
  const nodes = inputs.map(({ node }) => node)
  if (new Set(nodes).size < nodes.length) {
    return fail("gradients", "different inputs", "the same tensor twice", "pass it once; its gradient counts all uses")
  }
  const found = sweep([{ node: value.node, gradient: full(value.arena, value.shape, 1) }], nodes, rules)
  return inputs.map(({ dtype, node }, i) => {
    const gradient = found.get(node)
    if (gradient !== undefined) return gradient
    if (dtype === DType.f32) return none(node)
    const remedy = "differentiate floats, or words that the value reads with bitcast(f32), such as weights of type F32"
    return fail("gradients", `the gradient of input ${i}`, `${DType.print(dtype)} that no float is read from`, remedy)
  })
}

/** The function that gives the value of `fn`, and its gradients, at the inputs. */
export const valueAndGrad =
  (fn: (...inputs: ReadonlyArray<Tensor>) => Tensor, options?: Options) =>
  (...inputs: ReadonlyArray<Tensor>): ValueAndGradients => {
    const value = fn(...inputs)
    return { value, gradients: gradients(value, inputs, options) }
  }

/** The function that gives the gradients of `fn` at the inputs. */
export const grad =
  (fn: (...inputs: ReadonlyArray<Tensor>) => Tensor, options?: Options) =>
  (...inputs: ReadonlyArray<Tensor>): ReadonlyArray<Tensor> => valueAndGrad(fn, options)(...inputs).gradients
