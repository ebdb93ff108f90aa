/**
 * Known models as data: the metadata and the tensor table of their files, without weights. What a plan needs, and what a
 * synthetic file is made from.
 */
import * as GgufType from "@tg/gguf/GgufType"
import * as Metadata from "@tg/gguf/Metadata"
import { Schema } from "effect"
import * as Mixes from "./Mixes.ts"

/** How the values of a tensor are spread: around `mean`, with this standard deviation. */
export interface Spread {
  readonly mean: number
  readonly deviation: number
}

/** One tensor of a shape; dimensions in file order, the fastest first. */
export interface ShapeTensor {
  readonly name: string
  readonly type: GgufType.Name
  readonly dims: ReadonlyArray<number>
  readonly bytes: number
  /** Values that keep activations at the scale of a trained model's. */
  readonly spread: Spread
  /** The values themselves, where they are known: of an F32 tensor. */
  readonly values?: Float32Array | undefined
}

/** What a synthetic vocabulary is made of. */
export interface ShapeVocabulary {
  readonly size: number
  /** Id of the first special token; behind them the vocabulary is padded. */
  readonly specialsAt: number
  /** A family of `@tg/tokenizer/Synthetic`. */
  readonly family: string
}

/** A model without weights. It reads like the header of its file. */
export interface Shape {
  /** `glm-4.7-flash:q4_0` */
  readonly name: string
  /** Without the keys of the tokenizer. */
  readonly metadata: ReadonlyMap<string, Metadata.MetadataValue>
  /** In file order. */
  readonly tensors: ReadonlyArray<ShapeTensor>
  readonly tensorsByName: ReadonlyMap<string, ShapeTensor>
  readonly vocabulary: ShapeVocabulary
}

/** A name that is not `MODEL:MIX`, or no known one. */
export class UnknownShape extends Schema.TaggedError<UnknownShape>()("UnknownShape", {
  asked: Schema.String,
  known: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return `there is no shape ${JSON.stringify(this.asked)}; known are ${this.known.join(", ")}`
  }
}

/** A tensor before it has a type. */
export interface Entry {
  readonly name: string
  readonly dims: ReadonlyArray<number>
  /** Norms, the router and its bias are never quantised. */
  readonly isFloat: boolean
  readonly spread: Spread
  readonly values?: Float32Array | undefined
}

/** Products with a matrix keep the size of their input when its values deviate by 1 / sqrt(row). */
export const matrix = (name: string, dims: ReadonlyArray<number>, gain = 1): Entry => ({
  name,
  dims,
  isFloat: false,
  spread: { mean: 0, deviation: gain / Math.sqrt(dims[0]!) }
})

/** Values that stay floats. */
export const float = (name: string, dims: ReadonlyArray<number>, spread: Spread): Entry => ({
  name,
  dims,
  isFloat: true,
  spread
})

/** The weight of a norm. */
export const norm = (name: string, size: number): Entry => float(name, [size], { mean: 1, deviation: 0.15 })

// Logits spread over a few units, residual branches add less than the stream holds: measured to give varied text.
export const outputGain = 2
export const attentionGain = 0.6
export const downGain = 0.8
const embeddingDeviation = 0.5

/** What is outside of the blocks. */
export const ends = (
  { embedding, tied, vocabulary }: { readonly embedding: number; readonly vocabulary: number; readonly tied: boolean }
): ReadonlyArray<Entry> => [
  {
    ...matrix("token_embd.weight", [embedding, vocabulary], outputGain),
    ...(tied ? {} : { spread: { mean: 0, deviation: embeddingDeviation } })
  },
  norm("output_norm.weight", embedding),
  ...(tied ? [] : [matrix("output.weight", [embedding, vocabulary], outputGain)])
]

const bytesOf = (type: GgufType.Name, dims: ReadonlyArray<number>): number => {
  const bytes = GgufType.bytesOf(type, dims)
  // a mix falls back to a type whose blocks divide the row
  if (typeof bytes !== "number") throw new Error(`${type} [${dims.join(", ")}] ${bytes.detail}`)
  return bytes
}

/** The key of a metadata entry without the architecture in front, and its value. */
export type Pair = readonly [key: string, value: Metadata.MetadataValue]

/** The shape of a model with the types of a mix. */
export const make = (
  model: Mixes.Quantised & {
    readonly name: string
    readonly architecture: string
    readonly vocabulary: ShapeVocabulary
    readonly entries: ReadonlyArray<Entry>
    readonly keys: ReadonlyArray<Pair>
  },
  mix: Mixes.Name
): Shape => {
  const typeOf = Mixes.typesOf(mix, model)
  const tensors = model.entries.map(({ dims, isFloat, name, spread, values }): ShapeTensor => {
    const type = isFloat ? "F32" : typeOf(name, dims[0]!)
    return { name, type, dims, bytes: bytesOf(type, dims), spread, values }
  })
  const { string, uint32 } = Metadata
  return {
    name: `${model.name}:${mix}`,
    metadata: new Map<string, Metadata.MetadataValue>([
      ["general.architecture", string(model.architecture)],
      ["general.type", string("model")],
      ["general.name", string(`${model.name}-synthetic`)],
      ["general.file_type", uint32(Mixes.fileType(mix))],
      ["general.quantization_version", uint32(2)],
      ...model.keys.map(([key, value]): Pair => [`${model.architecture}.${key}`, value])
    ]),
    tensors,
    tensorsByName: new Map(tensors.map((tensor) => [tensor.name, tensor])),
    vocabulary: model.vocabulary
  }
}
