/** The limits of a device that a schedule respects. */
import * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import type { AddLimits } from "./Additions.ts"
import type { FusionCost } from "./Fusion.ts"
import { type BindingLimits, wordBytes } from "./Bindings.ts"

/** The limits of a device, and its costs. */
export interface Limits extends AddLimits, BindingLimits {
  /** The cost model of placement. Without it nothing is staged in workgroup memory, and the rules of `Usual` decide. */
  readonly fusion?: FusionCost | undefined
  /** Whether kernels that do not depend on each other are joined, for a device that runs workgroups side by side. */
  readonly joinsKernels?: boolean | undefined
}

/** Bytes of a stored value. */
export const bytesOf = (node: UOp): number => wordBytes * Math.max(1, Shape.maxElements(Shape.of(node)))

/** Bytes of the largest buffer that is bound as a whole. */
export const mostBytes = ({ maxBindingBytes = Infinity, maxBufferBytes = Infinity }: Limits): number =>
  Math.min(maxBindingBytes, maxBufferBytes)

/** Whether a buffer takes several windows. */
export const isOverBinding = (owner: UOp, limits: Limits): boolean => bytesOf(owner) > mostBytes(limits)
