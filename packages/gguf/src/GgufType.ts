/** The tensor types of the format: ids, names and block sizes. */

/** A tensor type: rows are made of blocks of `blockValues` values in `blockBytes` bytes. */
export interface GgufType {
  readonly id: number
  readonly blockValues: number
  readonly blockBytes: number
}

const type = (id: number, blockValues: number, blockBytes: number): GgufType => ({ id, blockValues, blockBytes })

/** Every known type by name. Ids 4, 5, 31 to 33 and 36 to 38 are retired, 9 and 15 (quantised activations) never appear in files. */
export const table = {
  F32: type(0, 1, 4),
  F16: type(1, 1, 2),
  Q4_0: type(2, 32, 18),
  Q4_1: type(3, 32, 20),
  Q5_0: type(6, 32, 22),
  Q5_1: type(7, 32, 24),
  Q8_0: type(8, 32, 34),
  Q2_K: type(10, 256, 84),
  Q3_K: type(11, 256, 110),
  Q4_K: type(12, 256, 144),
  Q5_K: type(13, 256, 176),
  Q6_K: type(14, 256, 210),
  IQ2_XXS: type(16, 256, 66),
  IQ2_XS: type(17, 256, 74),
  IQ3_XXS: type(18, 256, 98),
  IQ1_S: type(19, 256, 50),
  IQ4_NL: type(20, 32, 18),
  IQ3_S: type(21, 256, 110),
  IQ2_S: type(22, 256, 82),
  IQ4_XS: type(23, 256, 136),
  I8: type(24, 1, 1),
  I16: type(25, 1, 2),
  I32: type(26, 1, 4),
  I64: type(27, 1, 8),
  F64: type(28, 1, 8),
  IQ1_M: type(29, 256, 56),
  BF16: type(30, 1, 2),
  TQ1_0: type(34, 256, 54),
  TQ2_0: type(35, 256, 66),
  MXFP4: type(39, 32, 17),
  NVFP4: type(40, 64, 36),
  Q1_0: type(41, 128, 18),
  Q2_0: type(42, 64, 18)
} as const satisfies Record<string, GgufType>

/** The name of a tensor type: `"Q4_0"`. */
export type Name = keyof typeof table

/** All names, in the order of their ids. */
export const names = Object.keys(table) as ReadonlyArray<Name>

const namesById: ReadonlyMap<number, Name> = new Map(names.map((name) => [table[name].id, name]))

/** The name of a type id in a file, if it is known. */
export const fromId = (id: number): Name | undefined => namesById.get(id)

/** Why dimensions do not make a tensor. */
export interface ShapeProblem {
  readonly problem: "rank" | "zero-dimension" | "size-overflow" | "partial-block"
  readonly detail: string
}

/**
 * Bytes of a tensor: values / blockValues * blockBytes. Dimensions are in file order, the fastest first; a row must be
 * a whole number of blocks.
 */
export const bytesOf = (name: Name, dims: ReadonlyArray<number>): number | ShapeProblem => {
  const { blockBytes, blockValues } = table[name]
  if (dims.length < 1 || dims.length > 4) {
    return { problem: "rank", detail: `has ${dims.length} dimensions, 1 to 4 are possible` }
  }
  if (!dims.every((dim) => Number.isInteger(dim) && dim > 0)) {
    return { problem: "zero-dimension", detail: `dimensions ${dims.join(" x ")} are not all positive integers` }
  }
  // A product of safe integers below 2^53 is exact, and rounding cannot bring a larger one back below 2^53.
  let values = 1
  for (const dim of dims) {
    values *= dim
    if (!Number.isSafeInteger(values)) return overflow(dims)
  }
  if (dims[0]! % blockValues !== 0) {
    return {
      problem: "partial-block",
      detail: `rows of ${dims[0]} values are not a multiple of the ${blockValues} values of a ${name} block`
    }
  }
  const bytes = values / blockValues * blockBytes
  return Number.isSafeInteger(bytes) ? bytes : overflow(dims)
}

const overflow = (dims: ReadonlyArray<number>): ShapeProblem => ({
  problem: "size-overflow",
  detail: `dimensions ${dims.join(" x ")} exceed 2^53 values or bytes`
})
