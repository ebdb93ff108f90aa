/** Packing of bit fields into 32-bit words, as tensor code: the vocabulary of all layouts. */
import * as DType from "@tg/core-uop/DType"
import type { Arena } from "@tg/core-uop/UOp"
import { full, iota, type Tensor } from "@tg/tensor/Tensor"

/** 0, step, 2 step, .. (count of them), followed by `trailing` axes of size 1. */
export const counting = (arena: Arena, count: number, step: number, trailing = 0): Tensor =>
  iota(arena, count).cast(DType.u32).mul(step).reshape([count, ...Array.from({ length: trailing }, () => 1)])

const mask = (bits: number): number => 2 ** bits - 1

/**
 * At which bit the quads of a run lie, `[32 / bits, 1]`. Quad 4u + b has its fields in byte b, so that the bytes of a
 * word belong to one u: a shift and a mask give four bytes for a product of bytes.
 */
const bitOfQuad = (arena: Arena, bits: number): Tensor =>
  bits > 8
    ? counting(arena, 32 / bits, bits, 1)
    : counting(arena, 8 / bits, bits, 2).add(counting(arena, 4, 8, 1)).reshape([32 / bits, 1])

/**
 * Fields `[N, n]` to words `[N, n bits / 32]`: of each run of 128 / bits fields, field 16u + 4b + w sits in word w at
 * bit `8b + bits u` (fields of 16 bits: field 4s + w at bit `16 s`). Four neighbouring fields are then four neighbouring
 * words under one shift.
 */
export const pack = (fields: Tensor, bits: number): Tensor => {
  const [blocks, n] = fields.shape as [number, number]
  const per = 32 / bits
  return fields.reshape([blocks, n / (4 * per), per, 4])
    .shl(bitOfQuad(fields.arena, bits))
    .sum(2)
    .reshape([blocks, n / per])
}

/** The inverse of `pack` along the last axis: words `[.., m]` to fields `[.., m / 4, 32 / bits, 4]`. */
export const unpack = (words: Tensor, bits: number): Tensor => {
  const lead = words.shape.slice(0, -1)
  const quads = Number(words.dim(-1)) / 4
  return words.reshape([...lead, quads, 1, 4]).shr(bitOfQuad(words.arena, bits)).and(mask(bits))
}

/** Like `unpack`, for fields in two's complement: `i32`. */
export const unpackSigned = (words: Tensor, bits: number): Tensor => {
  const lead = words.shape.slice(0, -1)
  const quads = Number(words.dim(-1)) / 4
  const toTop = bitOfQuad(words.arena, bits).neg().add(32 - bits)
  return signed(words.reshape([...lead, quads, 1, 4]).shl(toTop), bits)
}

/**
 * Words of `pack`, `[.., m]`, to bytes in words, `[.., blocks of 32 fields, 2, 4]`: byte b of word (h, w) is field
 * 16h + 4b + w of its block. This is the order of `Int8.quantise`.
 */
export const unpackBytes = (words: Tensor, bits: number): Tensor => {
  const lead = words.shape.slice(0, -1)
  const count = Number(words.dim(-1))
  const blocks = [...lead, count / bits, 2, 4]
  if (bits === 8) return words.reshape(blocks)
  return words.reshape([...lead, count / 4, 1, 4]).shr(counting(words.arena, 8 / bits, bits, 1))
    .and(mask(bits) * 0x01010101).reshape(blocks)
}

/** Bit 8b + 4h + w of a word: where the one-bit field 16h + 4b + w of a block alone lies; `[2, 4, 4]`. */
const bitOfBlock = (arena: Arena): Tensor =>
  counting(arena, 2, 4, 2).add(counting(arena, 4, 8, 1)).add(counting(arena, 4, 1))

/** 32 one-bit fields of each block, `[N, 32]`, to a word, `[N, 1]`. */
export const packBits = (fields: Tensor): Tensor => {
  const blocks = Number(fields.dim(0))
  return fields.reshape([blocks, 2, 4, 4]).shl(bitOfBlock(fields.arena)).sum({ axis: [1, 2, 3] }).unsqueeze(1)
}

/** The inverse of `packBits`: `[.., 1]` to `[.., 2, 4, 4]`. */
export const unpackBits = (words: Tensor): Tensor =>
  words.unsqueeze(-1).unsqueeze(-1).shr(bitOfBlock(words.arena)).and(1)

/** The words of `packBits` to bytes in words, `[.., 2, 4]`, as `unpackBytes` has them. */
export const unpackBitsToBytes = (words: Tensor): Tensor =>
  words.unsqueeze(-1).shr(counting(words.arena, 2, 4, 1).add(counting(words.arena, 4, 1))).and(0x01010101)

/** The top `bits` of each word as a signed number. */
const signed = (words: Tensor, bits: number): Tensor => words.bitcast(DType.i32).shr(32 - bits)

/** The fields of each word on a further axis, lowest bits first: `[..]` to `[.., 32 / bits]`. */
export const split = (words: Tensor, bits: number): Tensor =>
  words.unsqueeze(-1).shr(counting(words.arena, 32 / bits, bits)).and(mask(bits))

/** Like `split`, for fields in two's complement: `i32`. */
export const splitSigned = (words: Tensor, bits: number): Tensor =>
  signed(words.unsqueeze(-1).shl(counting(words.arena, 32 / bits, bits).neg().add(32 - bits)), bits)

/** Joins runs of 32 / bits fields into words, the first in the lowest bits: `[.., n]` to `[.., n bits / 32]`. */
export const join = (fields: Tensor, bits: number): Tensor => {
  const per = 32 / bits
  const n = Number(fields.dim(-1))
  return fields.reshape([...fields.shape.slice(0, -1), n / per, per])
    .shl(counting(fields.arena, per, bits))
    .sum(-1)
}

/** The bytes of `blocks` blocks in a word buffer: `[blocks, blockBytes]`. Blocks need not start at a word. */
export const bytesOf = (raw: Tensor, blocks: number, blockBytes: number): Tensor => {
  const count = Number(raw.dim(0))
  const words = Math.ceil(blocks * blockBytes / 4)
  const enough = count < words ? raw.pad([[0, words - count]]) : raw.slice(0, 0, words)
  return split(enough, 8).reshape([words * 4]).slice(0, 0, blocks * blockBytes).reshape([blocks, blockBytes])
}

/** Element i of a small table of signed bytes (packed four to a word): `i32`. */
export const lookupSigned = (table: ReadonlyArray<number>, i: Tensor): Tensor => {
  const words = Array.from(
    { length: table.length / 4 },
    (_, w) => [0, 1, 2, 3].reduce((word, b) => word + (table[4 * w + b]! & 255) * 2 ** (8 * b), 0)
  )
  const choose = (from: number, to: number): Tensor => {
    if (to - from === 1) return full(i.arena, [], words[from]!, DType.u32)
    const middle = (from + to) / 2
    return i.lt(4 * middle).where(choose(from, middle), choose(middle, to))
  }
  return signed(choose(0, words.length).shl(i.and(3).mul(8).neg().add(24)), 8)
}

/**
 * A table lookup for four bytes at once: each byte i becomes element i of a table of 16 signed bytes. A tree of bitwise selects: each
 * bit of i, broadcast over its byte, selects between two halves of the table.
 */
export const lookupBytes = (table: ReadonlyArray<number>, words: Tensor): Tensor => {
  const selected = [0, 1, 2, 3].map((bit) => words.shr(bit).and(0x01010101).mul(255))
  const fourfold = (i: number): number => (table[i]! & 255) * 0x01010101
  const choose = (from: number, bit: number): Tensor => {
    if (bit === 0) return selected[0]!.and((fourfold(from) ^ fourfold(from + 1)) >>> 0).xor(fourfold(from))
    const low = choose(from, bit - 1)
    return low.xor(choose(from + 2 ** bit, bit - 1)).and(selected[bit]!).xor(low)
  }
  return choose(0, 3)
}
