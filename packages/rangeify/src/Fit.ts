/** Kernels whose arguments a device can bind. */
import { toposort } from "@tg/core-uop/UOp"
import type { Kernel, Temporary } from "./FitLoops.ts"
import { cutToFit } from "./FitWindows.ts"
import { type BindingLimits, isLarge, sizesOf } from "./Bindings.ts"

/**
 * Kernels equivalent to this one, in order, within the limits; `undefined` if one needs more buffers than allowed. A kernel that is
 * split has one END.
 */
export const fit = (kernel: Kernel, limits: BindingLimits, temporary: Temporary): ReadonlyArray<Kernel> | undefined => {
  const sizes = sizesOf(limits)
  const params = toposort(kernel.ast).filter((node) => node.op === "PARAM")
  // unchanged, so it may have several ENDs
  if (params.some((param) => isLarge(param, sizes))) return cutToFit(kernel, { limits, sizes, temporary })
  return params.length > limits.maxStorageBuffers ? undefined : [kernel]
}
