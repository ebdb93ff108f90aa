/** What the host of kernels is like: what programs are rendered for where nobody says otherwise. */
import type { Simd } from "./internal/dot.ts"
import type { Memory } from "./internal/kernel.ts"

/** What kernels and devices use where nobody says otherwise. */
export const defaultMemory = (): Memory => typeof SharedArrayBuffer === "function" ? "shared" : "own"

/**
 * A module that multiplies bytes of 127 by bytes of 255, which are more than the instruction's 7 bits:
 *
 *     (func (export "f") (result i32)
 *       (i32x4.extract_lane 0 (i32x4.relaxed_dot_i8x16_i7x16_add_s
 *         (i8x16.splat (i32.const 127)) (i8x16.splat (i32.const 255)) (v128.const i32x4 0 0 0 0))))
 */
const probe = Uint8Array.from(
  [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 38, 1, 36, 0].concat(
    [65, 255, 0, 253, 15, 65, 255, 1, 253, 15, 253, 12],
    Array<number>(16).fill(0),
    [253, 147, 2, 253, 27, 0, 11]
  )
)

/** Only a processor that makes words of two sums of 16 bits saturates them, each at 2^15 - 1. */
const simdOfHost = (): Simd => {
  if (!WebAssembly.validate(probe)) return "plain"
  const { f } = new WebAssembly.Instance(new WebAssembly.Module(probe)).exports as { readonly f: () => number }
  return f() === 2 * (2 ** 15 - 1) ? "pairs" : "words"
}

let hostSimd: Simd | undefined

/** What kernels use where nobody says otherwise: the host is asked once. */
export const defaultSimd = (): Simd => hostSimd ??= simdOfHost()
