/** Layouts of weights: GGUF blocks as structures of arrays (planes of 32-bit words, one buffer per tensor), decoded by tensor code. */
import * as DType from "@tg/core-uop/DType"
import type * as Shape from "@tg/core-uop/Shape"
import { split } from "./LayoutPacking.ts"
import type * as Int8 from "@tg/tensor/Int8"
import type { Tensor } from "@tg/tensor/Tensor"
import { fail } from "@tg/tensor/TensorError"
import type { Codec, Planes } from "./LayoutCodec.ts"
import { codecOf, supported } from "./LayoutTypes.ts"
import { decoderOf } from "./LayoutInt8.ts"
import { type Name, table } from "./GgufType.ts"

/** A plane of one tensor in its buffer; offset and size in words. Offsets are multiples of 4. */
export interface Plane {
  readonly name: string
  readonly offset: number
  readonly words: number
  /** Every `group` neighbouring blocks take `groupWords` words. */
  readonly group: number
  readonly groupWords: number
}

/** The layout of a tensor: a function of its type and shape only. */
export interface Layout {
  readonly type: Name
  /** Row-major, the row last: `[rows, cols]`, `[experts, rows, cols]`, or `[cols]`. */
  readonly shape: ReadonlyArray<number>
  /** Size of the buffer. */
  readonly words: number
  readonly planes: ReadonlyArray<Plane>
  readonly blocks: number
  readonly blocksPerRow: number
  /** Runs of blocks for `relayout` start at multiples of this, and are multiples of it. */
  readonly blockGroup: number
  /** Offset of the type's code book behind the planes, in words, if it has one. `bookOf` gives its words. */
  readonly bookOffset: number | undefined
}

/** The types that have a layout. */
export const types: ReadonlyArray<Name> = supported

/** The layout of a tensor of this type and row-major shape. */
export const layoutOf = (type: Name, shape: ReadonlyArray<number>): Layout => {
  const { blockValues } = table[type]
  const cols = shape[shape.length - 1] ?? 0
  const blocksPerRow = cols / blockValues
  if (!Number.isInteger(blocksPerRow) || cols === 0) {
    return fail(
      "layoutOf",
      `${type} ${JSON.stringify(shape)}`,
      `rows of ${cols} values`,
      `use a multiple of ${blockValues}`
    )
  }
  const { book, planes: specs } = codec(type, blocksPerRow)
  const blocks = shape.slice(0, -1).reduce((n, d) => n * d, blocksPerRow)
  const blockGroup = Math.max(...specs.map((p) => p.group))
  const padded = roundUp(blocks, blockGroup)
  let words = 0
  const planes = specs.map((p): Plane => {
    const plane = {
      name: p.name,
      offset: words,
      words: padded / p.group * p.words,
      group: p.group,
      groupWords: p.words
    }
    words = roundUp(words + plane.words, 4)
    return plane
  })
  const bookOffset = book === undefined ? undefined : words
  return {
    type,
    shape,
    words: words + roundUp(book?.length ?? 0, 4),
    planes,
    blocks,
    blocksPerRow,
    blockGroup,
    bookOffset
  }
}

/** The code book of a type, which the loader of a tensor writes at `bookOffset`. */
export const bookOf = ({ blocksPerRow, type }: Layout): Uint32Array | undefined => codec(type, blocksPerRow).book

const roundUp = (n: number, to: number): number => Math.ceil(n / to) * to

const codec = (type: Name, blocksPerRow: number): Codec =>
  codecOf(type, { blocksPerRow }) ??
    fail("layoutOf", `a layout for ${type}`, "a type without one", `requantise to one of ${supported.join(", ")}`)

/** The words of a plane for a run of blocks, and their offset in the tensor's buffer. */
export interface PlaneData {
  readonly plane: Plane
  readonly offset: number
  readonly words: Tensor
}

/**
 * The planes of blocks `first .. first + count - 1`, from a word buffer that starts with their bytes as they lie in the
 * file. The run is padded to whole groups with zeros. A tensor is one run, or many of equal size.
 */
export const relayout = (
  layout: Layout,
  raw: Tensor,
  run: { readonly first: number; readonly count: number } = { first: 0, count: layout.blocks }
): ReadonlyArray<PlaneData> => {
  const { first, count } = run
  const fits = Number.isInteger(count) && count > 0 && first + count <= roundUp(layout.blocks, layout.blockGroup)
  if (first % layout.blockGroup !== 0 || !fits) {
    return fail(
      "relayout",
      `blocks ${first} .. ${first + count - 1}`,
      `${layout.blocks} blocks of ${layout.type}`,
      `start at a multiple of ${layout.blockGroup} and stay inside`
    )
  }
  const padded = roundUp(count, layout.blockGroup)
  const needed = Math.ceil(padded * table[layout.type].blockBytes / 4)
  const given = Number(raw.dim(0))
  const whole = given < needed ? raw.pad([[0, needed - given]]) : raw
  const made = codec(layout.type, layout.blocksPerRow).relayout(whole, padded)
  return layout.planes.map((plane) => ({
    plane,
    offset: plane.offset + first / plane.group * plane.groupWords,
    words: made[plane.name]!.reshape([padded / plane.group * plane.groupWords])
  }))
}

/** Values with the row spread over the last `rowRank` axes, as the planes hold it. */
export interface SpreadRows {
  readonly values: Tensor
  readonly rowRank: number
}

/** The planes of a tensor by name; with `select`, of those items of its first axis. */
const planesOf = (layout: Layout, words: Tensor, select: Tensor | undefined): Planes => {
  if (words.dtype !== DType.u32 || words.dim(0) !== layout.words) {
    return fail(
      "decode",
      `u32 [${layout.words}]`,
      `${DType.print(words.dtype)} of other size`,
      "pass the tensor's buffer"
    )
  }
  const lead: Shape.Shape = layout.shape.slice(0, -1)
  if (select !== undefined && lead.length === 0) return fail("decode", "items of a vector", "one row", "slice it")
  const planeOf = (name: string): Plane => layout.planes.find((p) => p.name === name)!
  const flat = (plane: Plane): Tensor => words.slice(0, plane.offset, plane.words)
  const chosen = (x: Tensor): Tensor => select === undefined ? x : x.gather(select)
  const { blocks, blocksPerRow } = layout
  return {
    words: (name) => {
      const plane = planeOf(name)
      return chosen(
        flat(plane).slice(0, 0, blocks / plane.group * plane.groupWords)
          .reshape([...lead, blocksPerRow / plane.group, plane.groupWords])
      )
    },
    fields: (name) => {
      const plane = planeOf(name)
      const bits = 32 / plane.group
      if (blocksPerRow % plane.group === 0) {
        const grouped = flat(plane).slice(0, 0, blocks / plane.group).reshape([...lead, blocksPerRow / plane.group])
        const fields = split(chosen(grouped), bits)
        return fields.reshape([...fields.shape.slice(0, -2), blocksPerRow])
      }
      // rows share words: items are gathered after the words are split
      const all = split(flat(plane), bits).reshape([plane.words * plane.group]).slice(0, 0, blocks)
      return chosen(all.reshape([...lead, blocksPerRow]))
    },
    book: () => words.slice(0, layout.bookOffset!, bookOf(layout)!.length)
  }
}

/**
 * The values as `f32` with the row on nested axes, as products take them: `contract(x, values, rowRank)`.
 * With `select`, only those items of the first axis are decoded: the result starts with the axes of `select`.
 */
export const decode = (layout: Layout, words: Tensor, select?: Tensor): SpreadRows => {
  const values = codec(layout.type, layout.blocksPerRow).decode(planesOf(layout, words, select))
  const rank = (select === undefined ? 0 : select.rank - 1) + layout.shape.length - 1
  return { values, rowRank: values.rank - rank }
}

/** Whether the values of a type are small integers with scales, so that `decodeInt8` gives rows. */
export const isInt8 = ({ type }: Layout): boolean => decoderOf(type) !== undefined

/** The rows as bytes with scales, for `Int8.contract`; `select` as in `decode`. Of layouts that are `isInt8`. */
export const decodeInt8 = (layout: Layout, words: Tensor, select?: Tensor): Int8.Rows => {
  const decoder = decoderOf(layout.type) ??
    fail("decodeInt8", `bytes of ${layout.type}`, "values that are no small integers", "use decode")
  return decoder(planesOf(layout, words, select), layout.blocksPerRow)
}

/** The values of the tensor as `f32` in its own shape (with `select`: axes of `select`, then the rest of the shape). */
export const dequantise = (layout: Layout, words: Tensor, select?: Tensor): Tensor => {
  const { rowRank, values } = decode(layout, words, select)
  const lead = values.shape.slice(0, values.rank - rowRank)
  return values.reshape([...lead, layout.shape[layout.shape.length - 1]!])
}
