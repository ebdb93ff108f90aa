/** The codecs of block types: planes, the conversion from GGUF blocks to them, and the decoding. */
import * as DType from "@tg/core-uop/DType"
import { cat } from "@tg/tensor/Nn"
import { full, type Tensor } from "@tg/tensor/Tensor"
import type { Name } from "./GgufType.ts"
import {
  bytesOf,
  counting,
  join,
  lookupSigned,
  pack,
  packBits,
  split,
  splitSigned,
  unpack,
  unpackBits,
  unpackSigned
} from "./LayoutPacking.ts"

/** A plane: `words` words for every `group` neighbouring blocks of the tensor. */
export interface PlaneSpec {
  readonly name: string
  readonly group: number
  readonly words: number
}

/** Access to the planes of one tensor (or of chosen items of its first axis) by name. */
export interface Planes {
  /** Words of a plane with group 1, `[.., blocks of a row, words]`; larger groups give `[.., groups of a row, words]`. */
  readonly words: (name: string) => Tensor
  /** One small field per block, `[.., blocks of a row]`: for planes that pack `group` of them into a word. */
  readonly fields: (name: string) => Tensor
  /** The words of the type's code book. */
  readonly book: () => Tensor
}

/** A tensor type in planes. */
export interface Codec {
  readonly planes: ReadonlyArray<PlaneSpec>
  /** The planes, `[groups, words]` each, of `blocks` blocks (a multiple of all groups) of raw bytes. */
  readonly relayout: (raw: Tensor, blocks: number) => Readonly<Record<string, Tensor>>
  /** Values, `f32`: the row is spread over several axes behind the leading ones of the planes. */
  readonly decode: (planes: Planes) => Tensor
  /** The code book, the same for all tensors of the type. */
  readonly book?: Uint32Array
}

/** Parameters of a layout beside the type. */
export interface RowInfo {
  /** Blocks in a row of the tensor. */
  readonly blocksPerRow: number
}

export const plane = (name: string, words: number, group = 1): PlaneSpec => ({ name, group, words })
export const u16 = (bytes: Tensor, at: number): Tensor =>
  bytes.slice(1, at, 1).squeeze(1).or(bytes.slice(1, at + 1, 1).squeeze(1).shl(8))
export const part = (bytes: Tensor, at: number, count: number): Tensor => bytes.slice(1, at, count)
export const halves = (bytes: Tensor, at: number): Tensor => {
  const d = u16(bytes, at)
  return join(d.reshape([Number(d.dim(0)) / 2, 2]), 16)
}
/** A block's own words of a plane, `[.., n]`: word i. */
export const word = (words: Tensor, i: number): Tensor => words.slice(-1, i, 1).squeeze(-1)
/** Appends axes of size 1. */
export const spread = (x: Tensor, axes: number): Tensor =>
  x.reshape([...x.shape, ...Array.from({ length: axes }, () => 1)])
/** Replaces the last `from` axes by `to`. */
export const regroup = (x: Tensor, from: number, to: ReadonlyArray<number>): Tensor =>
  x.reshape([...x.shape.slice(0, x.rank - from), ...to])
export const float = (x: Tensor): Tensor => x.cast(DType.f32)
export const low = (x: Tensor): Tensor => x.halfToFloat()
export const high = (x: Tensor): Tensor => x.shr(16).halfToFloat()

/** Values j = 0..31 of 16 bytes: low nibbles, then high ones. */
const nibbles32 = (q: Tensor): Tensor => {
  const blocks = Number(q.dim(0))
  return q.unsqueeze(1).shr(counting(q.arena, 2, 4, 1)).and(15).reshape([blocks, 32])
}

/** 256 two-bit (or one-bit) fields: field k = 128a + 32g + l is bits `bits g` of byte 32a + l. */
export const strided = (q: Tensor, groups: number, bits: number): Tensor => {
  const blocks = Number(q.dim(0))
  const runs = Number(q.dim(1)) / 32
  return q.reshape([blocks, runs, 1, 32]).shr(counting(q.arena, groups, bits, 1)).and(2 ** bits - 1)
    .reshape([blocks, runs * groups * 32])
}

// ---- types without blocks

const f32: Codec = {
  planes: [plane("value", 1)],
  relayout: (raw, blocks) => ({ value: raw.slice(0, 0, blocks).unsqueeze(1) }),
  decode: (p) => p.words("value").squeeze(-1).bitcast(DType.f32)
}

/** 16-bit floats. Rows of a multiple of 8 values keep four neighbours in four words, for vector loads; others are in pairs. */
const sixteen = (blocksPerRow: number, toFloat: (halves: Tensor) => Tensor): Codec =>
  blocksPerRow % 8 === 0
    ? {
      planes: [plane("value", 4, 8)],
      relayout: (raw, blocks) => ({ value: pack(split(raw.slice(0, 0, blocks / 2), 16).reshape([blocks / 8, 8]), 16) }),
      decode: (p) => toFloat(regroup(unpack(p.words("value"), 16), 3, [2, 4]))
    }
    : {
      planes: [plane("value", 1, 2)],
      relayout: (raw, blocks) => ({ value: raw.slice(0, 0, blocks / 2).unsqueeze(1) }),
      decode: (p) => toFloat(p.fields("value"))
    }

// ---- blocks of 32 values, decoded to [.., blocks, 8, 4]

const q4Scaled = (decode: (q: Tensor, d: Tensor) => Tensor): Codec => ({
  planes: [plane("q", 4), plane("d", 1, 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 18)
    return { q: pack(nibbles32(part(bytes, 2, 16)), 4), d: halves(bytes, 0).reshape([blocks / 2, 1]) }
  },
  decode: (p) => decode(regroup(unpack(p.words("q"), 4), 3, [8, 4]), spread(low(p.fields("d")), 2))
})

export const iq4Table = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]

const q4_0 = q4Scaled((q, d) => float(q.cast(DType.i32).sub(8)).mul(d))
const iq4_nl = q4Scaled((q, d) => d.mul(float(lookupSigned(iq4Table, q))))

const q4_1: Codec = {
  planes: [plane("q", 4), plane("dm", 1)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 20)
    return { q: pack(nibbles32(part(bytes, 4, 16)), 4), dm: join(part(bytes, 0, 4), 8) }
  },
  decode: (p) => {
    const dm = p.words("dm")
    return float(regroup(unpack(p.words("q"), 4), 3, [8, 4])).mul(spread(low(dm), 1)).add(spread(high(dm), 1))
  }
}

/** The fifth bits of 32-value blocks: four blocks share four words if the row allows, else one word per block. */
const fifthBits = (blocksPerRow: number) =>
  blocksPerRow % 4 === 0
    ? {
      plane: plane("h", 4, 4),
      relayout: (qh: Tensor, blocks: number) => pack(split(join(qh, 8), 1).reshape([blocks / 4, 128]), 1),
      decode: (p: Planes) => {
        const lead = p.words("q").shape.slice(0, -1)
        return unpack(p.words("h"), 1).reshape([...lead, 8, 4])
      }
    }
    : {
      plane: plane("h", 1),
      relayout: (qh: Tensor) => packBits(split(join(qh, 8), 1).reshape([Number(qh.dim(0)), 32])),
      decode: (p: Planes) => regroup(unpackBits(p.words("h")), 3, [8, 4])
    }

const q5_0 = ({ blocksPerRow }: RowInfo): Codec => {
  const fifth = fifthBits(blocksPerRow)
  return {
    planes: [plane("q", 4), fifth.plane, plane("d", 1, 2)],
    relayout: (raw, blocks) => {
      const bytes = bytesOf(raw, blocks, 22)
      return {
        q: pack(nibbles32(part(bytes, 6, 16)), 4),
        h: fifth.relayout(part(bytes, 2, 4), blocks),
        d: halves(bytes, 0).reshape([blocks / 2, 1])
      }
    },
    decode: (p) => {
      const q = regroup(unpack(p.words("q"), 4), 3, [8, 4]).or(fifth.decode(p).shl(4))
      return float(q.cast(DType.i32).sub(16)).mul(spread(low(p.fields("d")), 2))
    }
  }
}

const q5_1 = ({ blocksPerRow }: RowInfo): Codec => {
  const fifth = fifthBits(blocksPerRow)
  return {
    planes: [plane("q", 4), fifth.plane, plane("dm", 1)],
    relayout: (raw, blocks) => {
      const bytes = bytesOf(raw, blocks, 24)
      return {
        q: pack(nibbles32(part(bytes, 8, 16)), 4),
        h: fifth.relayout(part(bytes, 4, 4), blocks),
        dm: join(part(bytes, 0, 4), 8)
      }
    },
    decode: (p) => {
      const q = regroup(unpack(p.words("q"), 4), 3, [8, 4]).or(fifth.decode(p).shl(4))
      const dm = p.words("dm")
      return float(q).mul(spread(low(dm), 1)).add(spread(high(dm), 1))
    }
  }
}

const q8_0: Codec = {
  planes: [plane("q", 8), plane("d", 1, 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 34)
    return { q: pack(part(bytes, 2, 32), 8), d: halves(bytes, 0).reshape([blocks / 2, 1]) }
  },
  decode: (p) => float(unpackSigned(p.words("q"), 8)).mul(spread(low(p.fields("d")), 3)) // [.., blocks, 2, 4, 4]
}

const mxfp4: Codec = {
  planes: [plane("q", 4), plane("e", 1, 4)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 17)
    return { q: pack(nibbles32(part(bytes, 1, 16)), 4), e: join(part(bytes, 0, 1).reshape([blocks / 4, 4]), 8) }
  },
  decode: (p) => {
    const q = regroup(unpack(p.words("q"), 4), 3, [8, 4])
    // doubled E2M1 magnitudes 0 1 2 3 4 6 8 12 are the nibbles of one word
    const magnitude = q.and(7).mul(4)
    const v = full(q.arena, [], 0xc8643210, DType.u32).shr(magnitude).and(15).cast(DType.i32)
    const value = q.lt(8).where(v, v.neg())
    return spread(powersOfTwo(p), 2).mul(float(value))
  }
}

/** Scales of MXFP4, 2^(e - 128): e - 1 is the exponent field; 2^-128 and 2^-127 are the subnormals of bits 21 and 22. */
export const powersOfTwo = (p: Planes): Tensor => {
  const e = p.fields("e")
  return e.lt(2).where(e.and(1).add(1).shl(21), e.sub(1).shl(23)).bitcast(DType.f32)
}

// ---- blocks of 256 values

/** [.., blocks, 4, 4, 4, 4]: k = 64c + 16g + 4t + w; group 4c + g has its own scale and minimum. */
const q2_k: Codec = {
  planes: [plane("q", 16), plane("sc", 4), plane("dm", 1)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 84)
    return {
      q: pack(strided(part(bytes, 16, 64), 4, 2), 2),
      sc: join(part(bytes, 0, 16), 8),
      dm: join(part(bytes, 80, 4), 8)
    }
  },
  decode: (p) => {
    const q = float(regroup(unpack(p.words("q"), 2), 3, [4, 4, 4, 4]))
    const { minimum, scale } = scalesQ2K(p)
    return spread(scale, 2).mul(q).sub(spread(minimum, 2))
  }
}

/** Scales and minima of Q2_K, `[.., blocks, 4, 4]`. */
export const scalesQ2K = (p: Planes): { readonly scale: Tensor; readonly minimum: Tensor } => {
  const sc = split(p.words("sc"), 8)
  const dm = p.words("dm")
  return {
    scale: low(dm).unsqueeze(-1).mul(float(sc.and(15))),
    minimum: high(dm).unsqueeze(-1).mul(float(sc.shr(4)))
  }
}

/** [.., blocks, 2, 2, 4, 4, 4]: k = 128u + 64v + 16i + 4t + w; scale 8u + 4v + i. Words of `sc`: 12 bytes, then d. */
const q3_k: Codec = {
  planes: [plane("q", 16), plane("h", 8), plane("sc", 4)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 110)
    return {
      q: pack(strided(part(bytes, 32, 64), 4, 2), 2),
      h: pack(strided(part(bytes, 0, 32), 8, 1), 1),
      sc: cat([join(part(bytes, 96, 12), 8), u16(bytes, 108).unsqueeze(1)], 1)
    }
  },
  decode: (p) => {
    const lowBits = regroup(unpack(p.words("q"), 2), 3, [2, 2, 4, 4, 4])
    const highBit = regroup(unpack(p.words("h"), 1), 3, [2, 2, 4, 4, 4])
    const q = lowBits.or(highBit.shl(2)).cast(DType.i32).sub(4)
    return spread(scalesQ3K(p), 2).mul(float(q))
  }
}

/** Scales of Q3_K, `[.., blocks, 2, 2, 4]`. */
export const scalesQ3K = (p: Planes): Tensor => {
  const sc = p.words("sc")
  const { arena } = sc
  const lead = sc.shape.slice(0, -1)
  const byte = counting(arena, 4, 8)
  const nibble = sc.slice(-1, 0, 2).reshape([...lead, 1, 2, 1]).shr(counting(arena, 2, 4, 2).add(byte)).and(15)
  const top = word(sc, 2).reshape([...lead, 1, 1, 1])
    .shr(counting(arena, 2, 4, 2).add(counting(arena, 2, 2, 1)).add(byte)).and(3)
  const scale = float(nibble.or(top.shl(4)).cast(DType.i32).sub(32))
  return low(word(sc, 3)).reshape([...lead, 1, 1, 1]).mul(scale)
}

/** Scales and minima of Q4_K and Q5_K, `[.., blocks, 2, 4]` each, from the words [d dmin, s0..3, s4..7, s8..11]. */
export const scalesAndMinima = (p: Planes): { readonly scale: Tensor; readonly minimum: Tensor } => {
  const sc = p.words("sc")
  const { arena } = sc
  const at = (i: number): Tensor => word(sc, i).unsqueeze(-1)
  const first = counting(arena, 2, 1).eq(0)
  // four bytes under one mask, before any of them is taken
  const late = (nibble: number, upper: Tensor): Tensor =>
    at(3).shr(nibble).and(0x0f0f0f0f).or(upper.shr(2).and(0x30303030))
  const scale = first.where(at(1).and(0x3f3f3f3f), late(0, at(1)))
  const minimum = first.where(at(2).and(0x3f3f3f3f), late(4, at(2)))
  const dm = at(0).unsqueeze(-1)
  return {
    scale: low(dm).mul(float(split(scale, 8))),
    minimum: high(dm).mul(float(split(minimum, 8)))
  }
}

/** Nibbles of Q4_K and Q5_K in value order: sub-block j takes the low or high nibbles of bytes 32 (j / 2) .. + 31. */
const nibbles256 = (q: Tensor): Tensor => strided(q, 2, 4)

/** [.., blocks, 2, 4, 8, 4]: k = 128u + 32v + 4s + w; sub-block 4u + v. */
const q4_k: Codec = {
  planes: [plane("q", 32), plane("sc", 4)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 144)
    return { q: pack(nibbles256(part(bytes, 16, 128)), 4), sc: join(part(bytes, 0, 16), 8) }
  },
  decode: (p) => {
    const { minimum, scale } = scalesAndMinima(p)
    return spread(scale, 2).mul(float(regroup(unpack(p.words("q"), 4), 3, [2, 4, 8, 4]))).sub(spread(minimum, 2))
  }
}

const q5_k: Codec = {
  planes: [plane("q", 32), plane("h", 8), plane("sc", 4)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 176)
    return {
      q: pack(nibbles256(part(bytes, 48, 128)), 4),
      h: pack(strided(part(bytes, 16, 32), 8, 1), 1),
      sc: join(part(bytes, 0, 16), 8)
    }
  },
  decode: (p) => {
    const { minimum, scale } = scalesAndMinima(p)
    const nibble = regroup(unpack(p.words("q"), 4), 3, [2, 4, 8, 4])
    const fifth = regroup(unpack(p.words("h"), 1), 3, [2, 4, 8, 4])
    return spread(scale, 2).mul(float(nibble.or(fifth.shl(4)))).sub(spread(minimum, 2))
  }
}

/** [.., blocks, 4, 2, 2, 4, 4]: k = 64c + 32e + 16f + 4t + w; scale 4c + 2e + f. */
const q6_k: Codec = {
  planes: [plane("ql", 32), plane("qh", 16), plane("sc", 4), plane("d", 1, 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 210)
    // low nibbles: run a of 64 bytes holds values 128a + 64 nibble + 0..63
    const ql = part(bytes, 0, 128).reshape([blocks, 2, 1, 64]).shr(counting(raw.arena, 2, 4, 1)).and(15)
    return {
      ql: pack(ql.reshape([blocks, 256]), 4),
      qh: pack(strided(part(bytes, 128, 64), 4, 2), 2),
      sc: join(part(bytes, 192, 16), 8),
      d: halves(bytes, 208).reshape([blocks / 2, 1])
    }
  },
  decode: (p) => {
    const lowBits = regroup(unpack(p.words("ql"), 4), 3, [4, 2, 2, 4, 4])
    const highBits = regroup(unpack(p.words("qh"), 2), 3, [4, 2, 2, 4, 4])
    const q = float(lowBits.or(highBits.shl(4)).cast(DType.i32).sub(32))
    return spread(scalesQ6K(p), 2).mul(q)
  }
}

/** Scales of Q6_K, `[.., blocks, 4, 2, 2]`. */
export const scalesQ6K = (p: Planes): Tensor =>
  spread(low(p.fields("d")), 3).mul(regroup(float(splitSigned(p.words("sc"), 8)), 2, [4, 2, 2]))

/** [.., blocks, 8, 8, 4]: k = 32j + 4s + w. Words of `sc`: d and the high scale bits, then the low ones. */
const iq4_xs: Codec = {
  planes: [plane("q", 32), plane("sc", 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 136)
    const q = part(bytes, 8, 128).reshape([blocks * 8, 16])
    return { q: pack(nibbles32(q), 4).reshape([blocks, 32]), sc: join(part(bytes, 0, 8), 8) }
  },
  decode: (p) => {
    const q = lookupSigned(iq4Table, unpack(p.words("q"), 4))
    return spread(scalesIQ4XS(p), 2).mul(float(q))
  }
}

/** Scales of IQ4_XS, `[.., blocks, 8]`. */
export const scalesIQ4XS = (p: Planes): Tensor => {
  const sc = p.words("sc")
  const lowBits = split(word(sc, 1), 4)
  const highBits = word(sc, 0).unsqueeze(-1).shr(counting(sc.arena, 8, 2).add(16)).and(3)
  return low(word(sc, 0)).unsqueeze(-1).mul(float(lowBits.or(highBits.shl(4)).cast(DType.i32).sub(32)))
}

/** The codecs of types without code books. */
export const blockCodecs = {
  F32: () => f32,
  F16: ({ blocksPerRow }) => sixteen(blocksPerRow, low),
  BF16: ({ blocksPerRow }) => sixteen(blocksPerRow, (x) => x.shl(16).bitcast(DType.f32)),
  Q4_0: () => q4_0,
  Q4_1: () => q4_1,
  Q5_0: q5_0,
  Q5_1: q5_1,
  Q8_0: () => q8_0,
  Q2_K: () => q2_k,
  Q3_K: () => q3_k,
  Q4_K: () => q4_k,
  Q5_K: () => q5_k,
  Q6_K: () => q6_k,
  IQ4_NL: () => iq4_nl,
  IQ4_XS: () => iq4_xs,
  MXFP4: () => mxfp4
} as const satisfies { readonly [K in Name]?: (row: RowInfo) => Codec }
