/** What a device can bind as a whole. */
import { bindingAlignment } from "@tg/core-uop/DeviceLimits"
import type { UOp } from "@tg/core-uop/UOp"
import { fixedSize } from "@tg/core-uop/View"

/** The memory limits of a device. Sizes in bytes; a limit that is left out does not bind. */
export interface BindingLimits {
  /** Storage buffers one kernel may bind, the output included. */
  readonly maxStorageBuffers: number
  /** Bytes of one binding. */
  readonly maxBindingBytes?: number | undefined
  /** Bytes of a segment of a buffer: no binding crosses a multiple of it. */
  readonly maxBufferBytes?: number | undefined
  /** Alignment of windows, 256 by default. */
  readonly bindingAlignment?: number | undefined
}

/** The same in words of 4 bytes, as far as bindings of parts go. */
export interface Sizes {
  readonly binding: number
  readonly segment: number
  readonly alignment: number
}

/** Every element is a word. */
export const wordBytes = 4

/** Limits in words. A binding's size is a multiple of 16 bytes, a segment starts where a window may. */
export const sizesOf = (limits: BindingLimits): Sizes => {
  const alignment = (limits.bindingAlignment ?? bindingAlignment) / wordBytes
  return {
    binding: Math.floor((limits.maxBindingBytes ?? Infinity) / 16) * 4,
    segment: Math.floor((limits.maxBufferBytes ?? Infinity) / wordBytes / alignment) * alignment,
    alignment
  }
}

/** Elements of a parameter. */
export const lengthOf = (param: UOp): number => fixedSize(param)!

/** Whether a parameter has to be bound in windows. */
export const isLarge = (param: UOp, { binding, segment }: Sizes): boolean =>
  lengthOf(param) > Math.min(binding, segment)
