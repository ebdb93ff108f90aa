/** Cached values: halves packed in words, or floats as they are. */
import * as DType from "@tg/core-uop/DType"
import { counting } from "@tg/gguf/LayoutPacking"
import { cat } from "@tg/tensor/Nn"
import { type Tensor, zeros } from "@tg/tensor/Tensor"

/** How cached values are stored. */
export type CacheType = "f16" | "f32"

/** Halves are packed in groups of 8 values in 4 words: value 4h + w of a group is half h of word w. */
export const group = 8

/** A row of so many values, with the last group filled up. */
export const wholeGroups = (values: number): number => Math.ceil(values / group) * group

/** Zeros behind the last axis, up to `width`. */
export const widen = (x: Tensor, width: number): Tensor => {
  const missing = width - Number(x.dim(-1))
  return missing === 0 ? x : cat([x, zeros(x.arena, [...x.shape.slice(0, -1), missing])], -1)
}

/** Rows `[.., n]` of whole groups as words `[.., n / 2]`. */
export const pack = (rows: Tensor): Tensor => {
  const lead = rows.shape.slice(0, -1)
  const groups = Number(rows.dim(-1)) / group
  return rows.reshape([...lead, groups, 2, 4]).floatToHalf().shl(counting(rows.arena, 2, 16, 1)).sum(-2)
    .reshape([...lead, groups * 4])
}

/** Words `[.., 4 n]` as floats, with the row on nested axes: `[.., n, 2, 4]`. */
export const unpack = (words: Tensor): Tensor =>
  words.reshape([...words.shape.slice(0, -1), Number(words.dim(-1)) / 4, 1, 4])
    .shr(counting(words.arena, 2, 16, 1)).halfToFloat()

/** Rows `[.., n]` as they are stored in a buffer like this one. */
export const toRows = (storage: Tensor, rows: Tensor): Tensor =>
  storage.dtype === DType.f32 ? rows : pack(widen(rows, wholeGroups(Number(rows.dim(-1)))))

/** The first `n` values of each row of such a buffer, `[.., n]`. */
export const fromRows = (stored: Tensor, n: number): Tensor => {
  if (stored.dtype === DType.f32) return stored
  const values = unpack(stored).reshape([...stored.shape.slice(0, -1), wholeGroups(n)])
  return n === wholeGroups(n) ? values : values.slice(-1, 0, n)
}

/** So many axes of size 1. */
export const ones = (n: number): ReadonlyArray<number> => Array.from({ length: n }, () => 1)
