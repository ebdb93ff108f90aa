/** Quants of each tensor type as bytes in words, for products with 8-bit activations (DOT4I8). */
import type { Rows } from "@tg/tensor/Int8"
import type { Tensor } from "@tg/tensor/Tensor"
import type { Name } from "./GgufType.ts"
import {
  high,
  iq4Table,
  low,
  type Planes,
  powersOfTwo,
  regroup,
  scalesAndMinima,
  scalesIQ4XS,
  scalesQ2K,
  scalesQ3K,
  scalesQ6K
} from "./LayoutCodec.ts"
import { type GridCodec, gridCodecs } from "./LayoutGrids.ts"
import { fp4Table, scalesNVFP4 } from "./LayoutSmall.ts"
import { lookupBytes, unpackBitsToBytes, unpackBytes } from "./LayoutPacking.ts"

/** Joins the last axes of `x`, less the `inner` last ones, with the blocks of a row in front of them. */
const perRow = (x: Tensor, axes: number, inner: ReadonlyArray<number>): Tensor => {
  const joined = x.shape.slice(x.rank - axes).reduce<number>((n, d) => n * Number(d), 1)
  return regroup(x, axes, [joined / inner.reduce((n, d) => n * d, 1), ...inner])
}

/** Bytes of a plane: `[.., K / 32, 2, 4]`. */
const bytesOf = (p: Planes, plane: string, bits: number): Tensor => perRow(unpackBytes(p.words(plane), bits), 4, [2, 4])

const each = (x: Tensor): Tensor => x.unsqueeze(-1)

/** The fifth bits of 32-value blocks. */
const fifthBits = (p: Planes, blocksPerRow: number): Tensor =>
  blocksPerRow % 4 === 0 ? bytesOf(p, "h", 1) : unpackBitsToBytes(p.words("h"))

const plainRows = (words: Tensor, scale: Tensor, zero = 0): Rows => ({ words, scale, zero, minimum: undefined })

/** A scale for each of the `n` blocks of 32 values that share it. */
const shared = (scale: Tensor, n: number): Tensor => perRow(each(scale).expand([...scale.shape, n]), 2, [1])

const ternary: Decode = (p) => plainRows(bytesOf(p, "q", 2), shared(low(p.fields("d")), 8), 1)

/** Bytes from a code book. */
const fromGrid = (type: keyof typeof gridCodecs): Decode => (p) => {
  const { bytes, scale, zero }: GridCodec = gridCodecs[type]
  const scales = scale(p)
  return plainRows(perRow(bytes(p), 4, [2, 4]), perRow(scales, 3, [Number(scales.dim(-1))]), zero)
}

type Decode = (planes: Planes, blocksPerRow: number) => Rows

const decoders: { readonly [K in Name]?: Decode } = {
  Q4_0: (p) => plainRows(bytesOf(p, "q", 4), each(low(p.fields("d"))), 8),
  IQ4_NL: (p) => plainRows(lookupBytes(iq4Table, bytesOf(p, "q", 4)), each(low(p.fields("d")))),
  Q4_1: (p) => ({
    words: bytesOf(p, "q", 4),
    scale: low(p.words("dm")),
    zero: 0,
    minimum: high(p.words("dm")).neg()
  }),
  Q5_0: (p, blocksPerRow) =>
    plainRows(bytesOf(p, "q", 4).or(fifthBits(p, blocksPerRow).shl(4)), each(low(p.fields("d"))), 16),
  Q5_1: (p, blocksPerRow) => ({
    words: bytesOf(p, "q", 4).or(fifthBits(p, blocksPerRow).shl(4)),
    scale: low(p.words("dm")),
    zero: 0,
    minimum: high(p.words("dm")).neg()
  }),
  Q8_0: (p) => plainRows(bytesOf(p, "q", 8), each(low(p.fields("d")))),
  MXFP4: (p) => plainRows(lookupBytes(fp4Table, bytesOf(p, "q", 4)), each(powersOfTwo(p))),
  Q2_K: (p) => {
    const { minimum, scale } = scalesQ2K(p)
    return { words: bytesOf(p, "q", 2), scale: perRow(scale, 3, [2]), zero: 0, minimum: perRow(minimum, 3, [2]) }
  },
  Q3_K: (p) => plainRows(bytesOf(p, "q", 2).or(bytesOf(p, "h", 1).shl(2)), perRow(scalesQ3K(p), 4, [2]), 4),
  Q4_K: (p) => {
    const { minimum, scale } = scalesAndMinima(p)
    return { words: bytesOf(p, "q", 4), scale: perRow(scale, 3, [1]), zero: 0, minimum: perRow(minimum, 3, [1]) }
  },
  Q5_K: (p) => {
    const { minimum, scale } = scalesAndMinima(p)
    const words = bytesOf(p, "q", 4).or(bytesOf(p, "h", 1).shl(4))
    return { words, scale: perRow(scale, 3, [1]), zero: 0, minimum: perRow(minimum, 3, [1]) }
  },
  Q6_K: (p) => plainRows(bytesOf(p, "ql", 4).or(bytesOf(p, "qh", 2).shl(4)), perRow(scalesQ6K(p), 4, [2]), 32),
  IQ4_XS: (p) => plainRows(lookupBytes(iq4Table, bytesOf(p, "q", 4)), perRow(scalesIQ4XS(p), 2, [1])),
  TQ1_0: ternary,
  TQ2_0: ternary,
  Q1_0: (p) => plainRows(bytesOf(p, "q", 1).shl(1), shared(low(p.fields("d")), 4), 1),
  Q2_0: (p) => plainRows(bytesOf(p, "q", 2), shared(low(p.fields("d")), 2), 1),
  NVFP4: (p) => plainRows(lookupBytes(fp4Table, bytesOf(p, "q", 4)), perRow(scalesNVFP4(p), 2, [2])),
  IQ1_S: fromGrid("IQ1_S"),
  IQ1_M: fromGrid("IQ1_M"),
  IQ2_XXS: fromGrid("IQ2_XXS"),
  IQ2_XS: fromGrid("IQ2_XS"),
  IQ2_S: fromGrid("IQ2_S"),
  IQ3_XXS: fromGrid("IQ3_XXS"),
  IQ3_S: fromGrid("IQ3_S")
}

/** The rows of a type as bytes, if its values are small integers with scales. */
export const decoderOf = (type: Name): Decode | undefined => decoders[type]
