/** Model files with random weights: the shapes and types of real ones, loadable, without meaning. */
import * as GgufWriter from "@tg/gguf/GgufWriter"
import type { GgufError } from "@tg/gguf/GgufError"
import { table } from "@tg/gguf/GgufType"
import * as Metadata from "@tg/gguf/Metadata"
import * as RandomBlocks from "@tg/gguf/RandomBlocks"
import * as Split from "@tg/gguf/Split"
import * as Family from "@tg/model-parts/Family"
import type { Shape, ShapeVocabulary, UnknownShape } from "@tg/model-parts/Shape"
import * as Vocabulary from "@tg/tokenizer/Synthetic"
import { Result } from "effect"

/** What to make. */
export interface SyntheticOptions {
  readonly seed: number
  /** The families whose shapes are known. */
  readonly families: Family.Registry
  /** Fewer (or more) blocks than the model has. */
  readonly layers?: number | undefined
}

/** What to make, in how many files. */
export interface SplitOptions extends SyntheticOptions {
  readonly parts: number
}

/** A file that can be written piece by piece. */
export interface SyntheticFile {
  readonly shape: Shape
  /** Bytes of the file. */
  readonly size: number
  /** The file from its beginning to its end. A piece is overwritten when the next but one is made. */
  readonly pieces: (pieceBytes?: number) => Iterable<Uint8Array>
}

/** The file of a shape: `glm-4.7-flash:q4_0`. Equal options give equal bytes. */
export const make = (
  name: string,
  options: SyntheticOptions
): Result.Result<SyntheticFile, UnknownShape | GgufError> =>
  Result.flatMap(contents(name, options), ({ contents, shape }) => file(shape, contents, options))

/** The same model in several files, in the order of their numbers (`Split.fileName`). */
export const makeParts = (
  name: string,
  options: SplitOptions
): Result.Result<ReadonlyArray<SyntheticFile>, UnknownShape | GgufError> =>
  Result.gen(function*() {
    const { contents: whole, shape } = yield* contents(name, options)
    const parts = yield* Split.divide(whole, options.parts)
    return yield* Result.all(parts.map((part) => file(shape, part, options)))
  })

type Contents = Omit<GgufWriter.GgufContents, "tensors"> & Pick<Shape, "tensors">

const contents = (name: string, { families, layers }: SyntheticOptions) =>
  Result.map(
    Family.shapeOf(families, name, layers),
    ({ shape }): { readonly shape: Shape; readonly contents: Contents } => ({
      shape,
      contents: {
        name: shape.name,
        metadata: [...shape.metadata, ...tokenizerKeys(shape.vocabulary)],
        tensors: shape.tensors
      }
    })
  )

const file = (
  shape: Shape,
  contents: Contents,
  { seed }: SyntheticOptions
): Result.Result<SyntheticFile, GgufError> =>
  Result.map(GgufWriter.header(contents), (header) => ({
    shape,
    size: header.size,
    pieces: (pieceBytes = 4 * 2 ** 20) => pieces(contents.tensors, header, { pieceBytes, seed })
  }))

function* pieces(
  tensors: Contents["tensors"],
  { bytes, offsets, size }: GgufWriter.Header,
  { pieceBytes, seed }: { readonly pieceBytes: number; readonly seed: number }
): Generator<Uint8Array> {
  yield bytes
  let written = bytes.length
  // one is written while the next is made; the last word of a piece may be half its own
  const buffers = [0, 1].map(() => new ArrayBuffer(Math.ceil(pieceBytes / 4) * 4 + 4))
  let next = 0
  for (const [i, { dims, name, spread, type, values }] of tensors.entries()) {
    if (offsets[i]! > written) yield new Uint8Array(offsets[i]! - written)
    if (values !== undefined) {
      yield new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
      written = offsets[i]! + values.byteLength
      continue
    }
    const { blockBytes, blockValues } = table[type]
    const random = RandomBlocks.make({ type, ...spread, seed: [seed, name] })
    if (random === undefined) throw new Error(`${name}: the mixes have no types without random blocks, found ${type}`)
    const most = Math.max(1, Math.floor(pieceBytes / blockBytes))
    const blocks = dims.reduce((n, dim) => n * dim, 1) / blockValues
    for (let first = 0; first < blocks; first += most) {
      yield random.next(buffers[next]!, Math.min(most, blocks - first))
      next = 1 - next
    }
    written = offsets[i]! + blocks * blockBytes
  }
  if (size > written) yield new Uint8Array(size - written)
}

type Pair = readonly [key: string, value: Metadata.MetadataValue]

const tokenizerKeys = ({ family, size, specialsAt }: ShapeVocabulary): Array<Pair> => {
  if (!Vocabulary.isFamily(family)) throw new Error(`there is no synthetic vocabulary ${family}`)
  const { addBos, addSpacePrefix, chatTemplate, ids, merges, model, scores, tokens, types } = Vocabulary.make({
    size,
    specialsAt,
    family
  })
  const isPieces = model === "llama"
  return [
    ["tokenizer.ggml.model", Metadata.string(model)],
    ["tokenizer.ggml.pre", Metadata.string(isPieces ? "default" : family)],
    ["tokenizer.ggml.tokens", Metadata.strings(tokens)],
    ["tokenizer.ggml.token_type", Metadata.int32s(types)],
    ...(scores === undefined ? [] : [["tokenizer.ggml.scores", Metadata.float32s(scores)] as const]),
    ...(isPieces ? [] : [["tokenizer.ggml.merges", Metadata.strings(merges)] as const]),
    ...(addSpacePrefix === undefined
      ? []
      : [["tokenizer.ggml.add_space_prefix", Metadata.bool(addSpacePrefix)] as const]),
    ...[...ids].map(([name, id]): Pair => [`tokenizer.ggml.${name}_token_id`, Metadata.uint32(id)]),
    ["tokenizer.ggml.add_bos_token", Metadata.bool(addBos)],
    ["tokenizer.chat_template", Metadata.string(chatTemplate)]
  ]
}
