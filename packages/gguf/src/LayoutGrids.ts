/**
 * Codecs of the types with a code book (vector quantisation): IQ1, IQ2 and IQ3. The book is behind the planes of a tensor, as bytes
 * in words, so a kernel needs no further binding, and its few kilobytes stay in the cache.
 *
 * A group of 8 neighbouring values is one entry of 8 values, or two of 4. Entries of 8 are two words: byte 2v + c of word u
 * is value 4c + 2u + v, so that the bytes of two groups make the words of `Int8` with shifts alone. Entries of 4 are a word,
 * the first value in the lowest byte. Signs of seven bits and a parity are kept as eight.
 */
import * as DType from "@tg/core-uop/DType"
import type { Tensor } from "@tg/tensor/Tensor"
import { type GridName, valuesOf } from "./internal/grids.ts"
import { type Codec, float, halves, low, part, plane, type Planes, spread, word } from "./LayoutCodec.ts"
import { bytesOf, counting, join, pack, split, unpack, unpackBytes } from "./LayoutPacking.ts"

/** A code book: entries of magnitudes below 128. */
interface Book {
  /** Unpacked when they are first asked for: few models have such types. */
  readonly words: () => Uint32Array
  /** Bytes of the values at indices `[.., 8, 4 or 8]`: `u32 [.., 8, 4, 2, 4]`, value 32s + 8l + 4c + w. */
  readonly values: (book: Tensor, index: Tensor) => Tensor
  /** The same four to a word, as `Int8` has them: `u32 [.., 8, 2, 4]`. */
  readonly bytes: (book: Tensor, index: Tensor) => Tensor
}

const wordsOf = (bytes: Uint8Array): Uint32Array => {
  const view = new DataView(bytes.buffer)
  return Uint32Array.from({ length: bytes.length / 4 }, (_, i) => view.getUint32(4 * i, true))
}

const once = <A>(make: () => A): () => A => {
  let made: A | undefined
  return () => made ??= make()
}

/** The byte of a value of the book. */
type Stored = (value: number) => number
const asItIs: Stored = (value) => value
/** IQ1: eight times a value, plus a bias of 8 against negative bytes. */
const eightfold: Stored = (value) => 8 * value + 8

/** A book of entries of 8 values. */
const eights = (name: GridName, stored: Stored): Book => {
  const place = [0, 4, 1, 5, 2, 6, 3, 7] as const
  const words = once(() => {
    const values = valuesOf(name)
    return wordsOf(Uint8Array.from(values, (_, i) => stored(values[(i & ~7) + place[i & 7]!]!)))
  })
  /** `[.., 8, 4, 2]`: the two words of each entry. */
  const entries = (book: Tensor, index: Tensor): Tensor =>
    book.gather(index.mul(2).unsqueeze(-1).add(counting(book.arena, 2, 1)))
  return {
    words,
    values: (book, index) => {
      const lead = index.shape.slice(0, -2)
      // [.., 8, 4, u, c, v]: byte 2v + c
      const bytes = spread(entries(book, index), 2)
        .shr(counting(book.arena, 2, 8, 1).add(counting(book.arena, 2, 16))).and(255)
      const n = lead.length
      return bytes.permute([...lead.keys(), n, n + 1, n + 3, n + 2, n + 4]).reshape([...lead, 8, 4, 2, 4])
    },
    bytes: (book, index) => {
      const lead = index.shape.slice(0, -2)
      // [.., 8, h, group, u, v]: half of a word
      const half = entries(book, index).reshape([...lead, 8, 2, 2, 2, 1])
        .shr(counting(book.arena, 2, 16)).and(0xffff)
      return half.shl(counting(book.arena, 2, 16, 2)).sum(-3).reshape([...lead, 8, 2, 4])
    }
  }
}

/** A book of entries of 4 values. */
const fours = (name: GridName): Book => {
  const entries = (book: Tensor, index: Tensor): Tensor => book.gather(index)
  return {
    words: once(() => wordsOf(new Uint8Array(valuesOf(name).buffer))),
    values: (book, index) => {
      const lead = index.shape.slice(0, -2)
      return split(entries(book, index), 8).reshape([...lead, 8, 4, 2, 4])
    },
    bytes: (book, index) => {
      const lead = index.shape.slice(0, -2)
      // byte b of word (h, w) is value w of entry 4h + b
      const bytes = entries(book, index).reshape([...lead, 8, 2, 4, 1]).shr(counting(book.arena, 4, 8)).and(255)
      return bytes.shl(counting(book.arena, 4, 8, 1)).sum(-2)
    }
  }
}

/** A type with a code book. */
export interface GridCodec extends Codec {
  readonly book: Uint32Array
  /** The bytes, four to a word: `[.., 8, 2, 4]`. */
  readonly bytes: (planes: Planes) => Tensor
  /** Of 32 or of 16 values: `[.., 8, 1]` or `[.., 8, 2]`. */
  readonly scale: (planes: Planes) => Tensor
  /** The zero point of a byte. */
  readonly zero: number
}

// ---- fields

const signed = (x: Tensor): Tensor => x.cast(DType.i32)

/** Indices of 8 bits from a plane of words, `[.., 8, n]`. */
const indices = (p: Planes, n: number): Tensor => {
  const words = p.words("q")
  return split(words, 8).reshape([...words.shape.slice(0, -1), 8, n])
}

/** Sign bits in the order of the values, from seven of them and their parity: bytes `[N, 32]` to bytes. */
const withParity = (seven: Tensor): Tensor => {
  const four = seven.xor(seven.shr(4))
  const two = four.xor(four.shr(2))
  return seven.or(two.xor(two.shr(1)).and(1).shl(7))
}

/** Bytes of eight one-bit fields each, as a plane: `[N, 32]` to words. */
const packBytes = (bytes: Tensor): Tensor =>
  pack(bytes.unsqueeze(-1).shr(counting(bytes.arena, 8, 1)).and(1).reshape([Number(bytes.dim(0)), 256]), 1)

/** The 28 low bits of words as four fields of seven: `[N, 8]` to `[N, 32]`. */
const sevens = (words: Tensor): Tensor =>
  words.unsqueeze(-1).shr(counting(words.arena, 4, 7)).and(127).reshape([Number(words.dim(0)), 32])

const signBits = (p: Planes): Tensor => {
  const bits = unpack(p.words("g"), 1)
  return bits.reshape([...bits.shape.slice(0, -3), 8, 4, 2, 4])
}

/** Values with their signs. */
const negated = (magnitude: Tensor, negative: Tensor): Tensor => signed(magnitude).mul(signed(negative).mul(-2).add(1))

/** Negates bytes of a word: `~b + 1`. No byte is zero, so none carries into the next. */
const negatedBytes = (bytes: Tensor, p: Planes): Tensor => {
  const bits = unpackBytes(p.words("g"), 1)
  const negative = bits.reshape([...bits.shape.slice(0, -3), 8, 2, 4])
  return bytes.xor(negative.mul(255)).add(negative)
}

/** A scale for 16 or 32 values in front of `[.., 8, 4, 2, 4]`. */
const scaled = (scale: Tensor, values: Tensor): Tensor => {
  const [per, lead] = [Number(scale.dim(-1)), scale.shape.slice(0, -1)]
  const grouped = values.reshape([...lead, per, 32 / per])
  return scale.unsqueeze(-1).mul(float(grouped)).reshape(values.shape)
}

const d = (p: Planes): Tensor => spread(low(p.fields("d")), 2)

/** The differences between the types with signs. */
interface Signed {
  readonly planes: Codec["planes"]
  readonly relayout: Codec["relayout"]
  readonly index: (p: Planes) => Tensor
  readonly scale: (p: Planes) => Tensor
}

const withSigns = (book: Book, { index, planes, relayout, scale }: Signed): GridCodec => ({
  planes: [...planes, plane("g", 8), plane("d", 1, 2)],
  relayout,
  get book() {
    return book.words()
  },
  scale,
  zero: 0,
  decode: (p) => scaled(scale(p), negated(book.values(p.book(), index(p)), signBits(p))),
  bytes: (p) => negatedBytes(book.bytes(p.book(), index(p)), p)
})

/** Scales (d (0.5 + n)) f of four-bit fields. */
const aHalfMore = (p: Planes, n: Tensor, factor: number): Tensor => d(p).mul(float(n).add(0.5)).mul(factor)

/** Two nibbles for each 32 values, in bytes at the start of a plane. */
const nibblesOf = (words: Tensor): Tensor => split(words, 4).reshape([...words.shape.slice(0, -1), 8, 2])

// ---- types

const iq2_xxs = withSigns(eights("iq2_xxs", asItIs), {
  planes: [plane("q", 8), plane("sc", 1)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 66)
    const pairs = join(part(bytes, 2, 64), 8).reshape([blocks, 8, 2])
    const w = pairs.slice(-1, 1, 1).squeeze(-1)
    return {
      q: pairs.slice(-1, 0, 1).squeeze(-1),
      sc: join(w.shr(28), 4),
      g: packBytes(withParity(sevens(w))),
      d: halves(bytes, 0).reshape([blocks / 2, 1])
    }
  },
  index: (p) => indices(p, 4),
  scale: (p) => aHalfMore(p, split(p.words("sc"), 4).reshape([...p.words("sc").shape.slice(0, -1), 8, 1]), 0.25)
})

const iq2_xs = withSigns(eights("iq2_xs", asItIs), {
  planes: [plane("q", 8), plane("sc", 3)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 74)
    const v = split(join(part(bytes, 2, 64), 8), 16).reshape([blocks, 32])
    return {
      q: join(v.and(255), 8),
      sc: join(part(bytes, 66, 8), 8).pad([[0, 0], [0, 1]]).or(join(v.shr(8).and(1), 1).pad([[0, 0], [2, 0]])),
      g: packBytes(withParity(v.shr(9))),
      d: halves(bytes, 0).reshape([blocks / 2, 1])
    }
  },
  index: (p) => {
    const top = split(word(p.words("sc"), 2), 1)
    return indices(p, 4).or(top.reshape([...top.shape.slice(0, -1), 8, 4]).shl(8))
  },
  scale: (p) => aHalfMore(p, nibblesOf(p.words("sc").slice(-1, 0, 2)), 0.25)
})

const iq2_s = withSigns(eights("iq2_s", asItIs), {
  planes: [plane("q", 8), plane("sc", 4)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 82)
    return {
      q: join(part(bytes, 2, 32), 8),
      sc: join(part(bytes, 66, 16), 8),
      g: packBytes(part(bytes, 34, 32)),
      d: halves(bytes, 0).reshape([blocks / 2, 1])
    }
  },
  index: (p) => {
    const top = split(p.words("sc").slice(-1, 0, 2), 2)
    return indices(p, 4).or(top.reshape([...top.shape.slice(0, -2), 8, 4]).shl(8))
  },
  scale: (p) => aHalfMore(p, nibblesOf(p.words("sc").slice(-1, 2, 2)), 0.25)
})

const iq3_xxs = withSigns(fours("iq3_xxs"), {
  planes: [plane("q", 16), plane("sc", 1)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 98)
    const w = join(part(bytes, 66, 32), 8)
    return {
      q: join(part(bytes, 2, 64), 8),
      sc: join(w.shr(28), 4),
      g: packBytes(withParity(sevens(w))),
      d: halves(bytes, 0).reshape([blocks / 2, 1])
    }
  },
  index: (p) => indices(p, 8),
  scale: (p) => aHalfMore(p, split(p.words("sc"), 4).reshape([...p.words("sc").shape.slice(0, -1), 8, 1]), 0.5)
})

const iq3_s = withSigns(fours("iq3_s"), {
  planes: [plane("q", 16), plane("sc", 3)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 110)
    const high = join(part(bytes, 66, 8), 8).pad([[0, 0], [0, 1]])
    return {
      q: join(part(bytes, 2, 64), 8),
      sc: high.or(join(part(bytes, 106, 4), 8).pad([[0, 0], [2, 0]])),
      g: packBytes(part(bytes, 74, 32)),
      d: halves(bytes, 0).reshape([blocks / 2, 1])
    }
  },
  index: (p) => {
    const top = split(p.words("sc").slice(-1, 0, 2), 1)
    return indices(p, 8).or(top.reshape([...top.shape.slice(0, -2), 8, 8]).shl(8))
  },
  scale: (p) => {
    const n = split(word(p.words("sc"), 2), 4)
    return d(p).mul(float(n.mul(2).add(1)).unsqueeze(-1))
  }
})

/** Bytes 8v + 9 + 1 or - 1, with zero point 9: eight times the value and its delta of an eighth. */
const iq1 = ({ delta, index, planes, relayout, scale }: Signed & {
  /** 1 where the delta is negative, for each group of 8: `[.., 8, 4]`. */
  readonly delta: (p: Planes) => Tensor
}): GridCodec => {
  const book = eights("iq1", eightfold)
  return {
    planes,
    relayout,
    get book() {
      return book.words()
    },
    scale: (p) => scale(p).mul(0.125),
    zero: 9,
    decode: (p) => {
      const value = float(signed(book.values(p.book(), index(p))).sub(8)).mul(0.125)
      const negative = delta(p)
      const half = float(signed(negative).mul(-2).add(1)).mul(0.125)
      return scaled(scale(p), spread(half, 2).add(value))
    },
    bytes: (p) => {
      const bytes = book.bytes(p.book(), index(p))
      const positive = delta(p).xor(1).mul(0x0202)
      const pairs = positive.reshape([...positive.shape.slice(0, -1), 2, 2])
      return bytes.add(join(pairs, 16))
    }
  }
}

const iq1_s = iq1({
  planes: [plane("q", 8), plane("h", 4), plane("d", 1, 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 50)
    return {
      q: join(part(bytes, 2, 32), 8),
      h: join(part(bytes, 34, 16), 8),
      d: halves(bytes, 0).reshape([blocks / 2, 1])
    }
  },
  index: (p) => {
    const top = high16(p).unsqueeze(-1).shr(counting(p.words("h").arena, 4, 3)).and(7)
    return indices(p, 4).or(top.shl(8))
  },
  delta: (p) => {
    const negative = high16(p).shr(15).unsqueeze(-1)
    return negative.expand([...negative.shape.slice(0, -1), 4])
  },
  scale: (p) => d(p).mul(float(high16(p).shr(12).and(7).mul(2).add(1)).unsqueeze(-1))
})

/** Two bytes for each 32 values of IQ1_S, `[.., 8]`. */
const high16 = (p: Planes): Tensor => {
  const h = p.words("h")
  return split(h, 16).reshape([...h.shape.slice(0, -1), 8])
}

const iq1_m = iq1({
  planes: [plane("q", 8), plane("h", 4), plane("sc", 2)],
  relayout: (raw, blocks) => {
    const bytes = bytesOf(raw, blocks, 56)
    return { q: join(part(bytes, 0, 32), 8), h: join(part(bytes, 32, 16), 8), sc: join(part(bytes, 48, 8), 8) }
  },
  index: (p) => indices(p, 4).or(nibbles(p).and(7).shl(8)),
  delta: (p) => nibbles(p).shr(3),
  scale: (p) => {
    const sc = p.words("sc")
    const lead = sc.shape.slice(0, -1)
    const parts = split(sc, 16).reshape([...lead, 4])
    // the top four bits of each part are the half that scales the block
    const half = parts.shr(12).shl(counting(sc.arena, 4, 4)).sum(-1).halfToFloat()
    const t = parts.reshape([...lead, 4, 1, 1])
      .shr(counting(sc.arena, 2, 6, 1).add(counting(sc.arena, 2, 3))).and(7).reshape([...lead, 8, 2])
    return spread(half, 2).mul(float(t.mul(2).add(1)))
  }
})

/** Four bits for each group of IQ1_M, `[.., 8, 4]`. */
const nibbles = (p: Planes): Tensor => {
  const h = p.words("h")
  return split(h, 4).reshape([...h.shape.slice(0, -1), 8, 4])
}

/** The types with code books. */
export const gridCodecs = {
  IQ1_S: iq1_s,
  IQ1_M: iq1_m,
  IQ2_XXS: iq2_xxs,
  IQ2_XS: iq2_xs,
  IQ2_S: iq2_s,
  IQ3_XXS: iq3_xxs,
  IQ3_S: iq3_s
} as const satisfies Record<string, GridCodec>
