/** Gradients that somebody wrote, kept beside the call they belong to. */
import type { UOp } from "@tg/core-uop/UOp"
import * as Program from "@tg/tensor/Program"
import type { Tensor } from "@tg/tensor/Tensor"
import { fail } from "./GradError.ts"

/** A call whose arguments' gradients are asked for. */
export interface Called {
  /** The storage arguments, in the order of the call; symbolic ones are left out. */
  readonly args: ReadonlyArray<Tensor>
  /** The values that the call returned, then the storage that it wrote (as it is then), by the numbers of its arguments. */
  readonly results: ReadonlyArray<Tensor>
  /** The gradients of the results; zeros where nothing depends on one. */
  readonly gradients: ReadonlyArray<Tensor>
}

/** The gradients of the storage arguments; left out where there is none. */
export type CallGradient = (called: Called) => ReadonlyArray<Tensor | undefined>

/** Functions are no data: they are kept beside the bodies they belong to. */
const attached = new WeakMap<UOp, CallGradient>()

const attach = (name: string, result: Tensor | undefined, gradient: CallGradient): void => {
  const call = result?.node.src[0]
  if (call?.op !== "CALL") return fail(`call ${name}`, "a result of the call", "none", "return a value or an effect")
  attached.set(call.src[0]!, gradient)
}

/** The gradient that was given for a body. */
export const gradientOf = (body: UOp): CallGradient | undefined => attached.get(body)

/** `Program.call` with a gradient of its own. Of equal bodies in one arena the gradient that was given last counts. */
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

/** `Program.custom` with a gradient: the results of the call are the buffers that the kernel writes. */
export const custom = (
  kernel: Program.CustomKernel,
  args: ReadonlyArray<Tensor>,
  gradient: CallGradient
): Tensor => {
  const effect = Program.custom(kernel, args)
  attach(kernel.name, effect, gradient)
  return effect
}
