/** Custom gradients, kept beside the call they belong to. */
import type { UOp } from "@tg/core-uop/UOp"
import * as Program from "@tg/tensor/Program"
import type { Tensor } from "@tg/tensor/Tensor"
import { fail } from "./GradError.ts"

/** A call, as its custom gradient sees it. */
export interface Called {
  /** The storage arguments, in the order of the call; symbolic ones are left out. */
  readonly args: ReadonlyArray<Tensor>
  /** The values that the call returned, then the storage that it wrote (as it is then), by the numbers of its arguments. */
  readonly results: ReadonlyArray<Tensor>
  /** The gradients of the results; zeros where nothing depends on one. */
  readonly gradients: ReadonlyArray<Tensor>
}

/** A custom vector-Jacobian product: the gradients of the storage arguments, undefined where there is none. */
export type CallGradient = (called: Called) => ReadonlyArray<Tensor | undefined>

/** A function is not data: it is kept beside its body, not in it. */
const attached = new WeakMap<UOp, CallGradient>()

const attach = (name: string, result: Tensor | undefined, gradient: CallGradient): void => {
  const call = result?.node.src[0]
  if (call?.op !== "CALL") return fail(`call ${name}`, "a result of the call", "none", "return a value or an effect")
  attached.set(call.src[0]!, gradient)
}

/** The custom gradient of a body. */
export const gradientOf = (body: UOp): CallGradient | undefined => attached.get(body)

/** `Program.call` with a custom gradient. Of equal bodies in one arena the last gradient counts. */
export const call = (
  name: string,
  args: ReadonlyArray<Tensor>,
  fn: (...params: ReadonlyArray<Tensor>) => ReadonlyArray<Tensor>,
  gradient: CallGradient
): ReadonlyArray<Tensor> => {
  const results = Program.call(name, args, fn)
  attach(name, results[0], gradient)
  return results
}

/** `Program.custom` with a custom gradient: the results of the call are the buffers that the kernel writes. */
export const custom = (
  kernel: Program.CustomKernel,
  args: ReadonlyArray<Tensor>,
  gradient: CallGradient
): Tensor => {
  const effect = Program.custom(kernel, args)
  attach(kernel.name, effect, gradient)
  return effect
}
