/** Small fields in 32-bit words, as tensor code: the vocabulary that the layouts of all types are written in. */
import * as DType from "@tg/core-uop/DType"
import type { Arena } from "@tg/core-uop/UOp"
import { full, iota, type Tensor } from "@tg/tensor/Tensor"

/** 0, step, 2 step, .. (count of them), followed by `trailing` axes of size 1. */
export const counting = (arena: Arena, count: number, step: number, trailing = 0): Tensor =>
  iota(arena, count).cast(DType.u32).mul(step).reshape([count, ...Array.from({ length: trailing }, () => 1)])

const mask = (bits: number): number => 2 ** bits - 1

/**
 * Fields `[N, n]` to words `[N, n bits / 32]`: of each run of 128 / bits fields, field 4s + w sits in word w at bit
 * `bits s`. Four neighbouring fields are then four neighbouring words under one shift.
 */
export const pack = (fields: Tensor, bits: number): Tensor => {
  const [blocks, n] = fields.shape as [number, number]
  const per = 32 / bits
  return fields.reshape([blocks, n / (4 * per), per, 4])
    .shl(counting(fields.arena, per, bits, 1))
    .sum(2)
    .reshape([blocks, n / per])
}

/** The inverse of `pack` along the last axis: words `[.., m]` to fields `[.., m / 4, 32 / bits, 4]`. */
export const unpack = (words: Tensor, bits: number): Tensor => {
  const lead = words.shape.slice(0, -1)
  const quads = Number(words.dim(-1)) / 4
  return words.reshape([...lead, quads, 1, 4]).shr(counting(words.arena, 32 / bits, bits, 1)).and(mask(bits))
}

/** Like `unpack`, for fields in two's complement: `i32`. */
export const unpackSigned = (words: Tensor, bits: number): Tensor => {
  const lead = words.shape.slice(0, -1)
  const quads = Number(words.dim(-1)) / 4
  const toTop = counting(words.arena, 32 / bits, bits, 1).neg().add(32 - bits)
  return signed(words.reshape([...lead, quads, 1, 4]).shl(toTop), bits)
}

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
