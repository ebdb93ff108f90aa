/** Layouts of the types of one and two bits, and of NVFP4. */
import * as DType from "@tg/core-uop/DType"
import { cat } from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import { type Codec, float, halves, low, part, plane, type Planes, regroup, spread, strided } from "./LayoutCodec.ts"
import { bytesOf, counting, join, lookupSigned, pack, split, unpack } from "./LayoutPacking.ts"

/** Fields of one or two bits, less `zero`, times the scale of their block. */
const centred = (p: Planes, bits: number, zero: number): Tensor => {
  const q = unpack(p.words("q"), bits)
  return spread(low(p.fields("d")), 3).mul(float(q.cast(DType.i32).sub(zero)))
}

/** 256 fields of two bits: 0, 1 and 2 are -1, 0 and 1 (3, which nobody writes, is 2). */
const ternary = (blockBytes: number, scaleAt: number, fields: (bytes: Tensor) => Tensor): Codec => ({
  planes: [plane("q", 16), plane("d", 1, 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, blockBytes)
    return { q: pack(fields(bytes), 2), d: halves(bytes, scaleAt).reshape([blocks / 2, 1]) }
  },
  decode: (p) => centred(p, 2, 1)
})

/** Ternary digits of bytes, which hold them as a fraction, the first digit in front: `[N, m]` to `[N, count m]`. */
const digits = (bytes: Tensor, count: number): Tensor =>
  cat(Array.from({ length: count }, (_, n) => bytes.mul(3 ** n).and(255).mul(3).shr(8)), 1)

/** Repacked from five digits a byte to two bits a digit, so that kernels need no arithmetic to unpack them. */
const tq1_0 = ternary(
  54,
  52,
  (bytes) => cat([digits(part(bytes, 0, 32), 5), digits(part(bytes, 32, 16), 5), digits(part(bytes, 48, 4), 4)], 1)
)

const tq2_0 = ternary(66, 64, (bytes) => strided(part(bytes, 0, 64), 4, 2))

/** [.., blocks, 1, 16, 4]: 64 fields of two bits in order. */
const q2_0: Codec = {
  planes: [plane("q", 4), plane("d", 1, 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 18)
    const fields = part(bytes, 2, 16).unsqueeze(-1).shr(counting(raw.arena, 4, 2)).and(3)
    return { q: pack(fields.reshape([blocks, 64]), 2), d: halves(bytes, 0).reshape([blocks / 2, 1]) }
  },
  decode: (p) => centred(p, 2, 1)
}

/** [.., blocks, 1, 32, 4]: 128 signs in order, 1 for plus. */
const q1_0: Codec = {
  planes: [plane("q", 4), plane("d", 1, 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 18)
    const fields = part(bytes, 2, 16).unsqueeze(-1).shr(counting(raw.arena, 8, 1)).and(1)
    return { q: pack(fields.reshape([blocks, 128]), 1), d: halves(bytes, 0).reshape([blocks / 2, 1]) }
  },
  decode: (p) => {
    const sign = unpack(p.words("q"), 1).cast(DType.i32).mul(2).sub(1)
    return spread(low(p.fields("d")), 3).mul(float(sign))
  }
}

/** Twice the E2M1 values. */
export const fp4Table = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]

/** [.., blocks, 4, 4, 4]: four groups of 16 with a scale each. */
const nvfp4: Codec = {
  planes: [plane("q", 8), plane("e", 1)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 36)
    const groups = part(bytes, 4, 32).reshape([blocks, 4, 1, 8])
    const fields = groups.shr(counting(raw.arena, 2, 4, 1)).and(15)
    return { q: pack(fields.reshape([blocks, 64]), 4), e: join(part(bytes, 0, 4), 8) }
  },
  decode: (p) => {
    const values = lookupSigned(fp4Table, regroup(unpack(p.words("q"), 4), 3, [4, 4, 4]))
    return spread(scalesNVFP4(p), 2).mul(float(values))
  }
}

/** Scales of NVFP4, halved because the values are doubled, `[.., blocks, 4]`: unsigned E4M3, of which 0x7f is zero. */
export const scalesNVFP4 = (p: Planes): Tensor => {
  const words = p.words("e")
  const code = split(words, 8).reshape([...words.shape.slice(0, -1), 4]).and(127)
  const mantissa = code.and(7)
  const exponent = code.shr(3)
  const normal = exponent.add(127 - 8).shl(23).or(mantissa.shl(20)).bitcast(DType.f32)
  const value = exponent.eq(0).where(float(mantissa).mul(2 ** -10), normal)
  return code.eq(127).where(0, value)
}

/** The types of this file. */
export const smallCodecs = { TQ1_0: tq1_0, TQ2_0: tq2_0, Q1_0: q1_0, Q2_0: q2_0, NVFP4: nvfp4 } as const
