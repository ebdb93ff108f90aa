import { h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"
import { Arena } from "@tg/core-uop/UOp"
import { kernels as kernelsOf, type Limits, limitsOf, RangeifyError, schedule } from "@tg/rangeify/Rangeify"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"

/** The kernels of a program. */
export const kernelsOfProgram = (sink: UOp, limits: Limits = { maxStorageBuffers: 8 }): ReadonlyArray<UOp> => {
  const result = schedule(sink, limits)
  if (result instanceof RangeifyError) throw result
  return kernelsOf(result).map((k) => k.ast)
}

const f32 = DType.f32
const u32 = DType.u32

const single = (
  make: (arena: Arena, buffer: (dtype: DType.DType, ...shape: ReadonlyArray<number>) => Tensor.Tensor) => Tensor.Tensor,
  limits?: Limits
): UOp => {
  const arena = new Arena()
  let id = 0
  const buffer = (dtype: DType.DType, ...shape: ReadonlyArray<number>): Tensor.Tensor =>
    Tensor.buffer(arena, id++, { shape, dtype })
  const value = make(arena, buffer)
  const out = Tensor.buffer(arena, id, { shape: value.shape, dtype: value.dtype })
  const kernels = kernelsOfProgram(Program.make([Program.assign(out, value)]).sink, limits)
  if (kernels.length !== 1) throw new Error(`${kernels.length} kernels`)
  return kernels[0]!
}

/** `rows` dot products of `columns` with a weight of 4-bit quants, 8 to a word, and a half scale for each 32. */
export const dequantMatvec = (rows: number, columns: number): UOp =>
  single((arena, buffer) => {
    const blocks = columns / 32
    const words = buffer(u32, rows, blocks, 4)
    const scales = buffer(u32, rows, blocks)
    const shifts = Tensor.iota(arena, 8).cast(u32).mul(4)
    const quants = words.unsqueeze(-1).shr(shifts).and(15).cast(f32).sub(8)
    const weight = quants.mul(scales.and(0xffff).halfToFloat().reshape([rows, blocks, 1, 1]))
    return Nn.linear(buffer(f32, 1, columns), weight)
  })

/** The same product of bytes, with a vector that each workgroup rounds for itself. */
export const roundedMatvec = (rows: number, columns: number): UOp =>
  single((arena, buffer) => {
    const blocks = columns / 32
    const quants = buffer(u32, rows, blocks, 1, 4).shr(Tensor.iota(arena, 2).cast(u32).mul(4).reshape([2, 1])).and(
      0x0f0f0f0f
    )
    const weight = { words: quants, scale: buffer(f32, rows, blocks, 1), zero: 8, minimum: undefined }
    return Int8.contract(Int8.blocks(buffer(f32, 1, columns)), weight)
  }, limitsOf(h200))

export const matvec = (rows: number, columns: number): UOp =>
  single((_, buffer) => Nn.linear(buffer(f32, 1, columns), buffer(f32, rows, columns)))

/** Elementwise over the rows, one factor for each column. */
export const elementwise = (rows: number, columns: number): UOp =>
  single((_, buffer) => buffer(f32, rows, columns).mul(buffer(f32, columns)).silu())

/** Reads along the rows, writes along the columns. */
export const transpose = (rows: number, columns: number): UOp =>
  single((_, buffer) => buffer(f32, rows, columns).transpose().mul(2))

/** Sums over a symbolic number of rows. */
export const symbolicSum = (columns: number): UOp =>
  single((arena, buffer) => buffer(f32, 4096, columns).slice(0, 0, Tensor.variable(arena, "n", 1, 4096)).sum(0))

export const sum = (length: number): UOp => single((_, buffer) => buffer(f32, length).sum())

const positions = 1024
const length = (arena: Arena) => Tensor.variable(arena, "n", 1, positions)

/** Rows of a cache in use, `[n, columns / 8, 2, 4]`: words that hold two halves each. */
const cached = (arena: Arena, words: Tensor.Tensor): Tensor.Tensor =>
  words.slice(0, 0, length(arena)).shr(Tensor.iota(arena, 2).cast(u32).mul(16).reshape([2, 1])).halfToFloat()

/** The rows of a cache, weighed by each head and added up. */
export const mixed = (heads: number, columns: number): UOp =>
  single((arena, buffer) => {
    const weights = buffer(f32, heads, positions, 1, 1, 1).slice(1, 0, length(arena))
    return weights.mul(cached(arena, buffer(u32, positions, columns / 8, 1, 4))).sum(1)
  })

/** Products of each head with the rows of a cache. */
export const scored = (heads: number, columns: number): UOp =>
  single((arena, buffer) => {
    const rows = cached(arena, buffer(u32, positions, columns / 8, 1, 4))
    return buffer(f32, heads, 1, columns / 8, 2, 4).mul(rows).sum({ axis: [-3, -2, -1] })
  })

/** Exponentials of each head's scores, less the largest. */
export const exponentials = (heads: number): UOp =>
  single((arena, buffer) => buffer(f32, heads, positions).slice(1, 0, length(arena)).sub(buffer(f32, heads, 1)).exp())
