/** The architecture of tg-tiny in a smaller size: its numbers, its vocabulary, its first weights, its file. */
import type { GgufError } from "@tg/gguf/GgufError"
import * as GgufWriter from "@tg/gguf/GgufWriter"
import * as Metadata from "@tg/gguf/Metadata"
import type { Model } from "@tg/model-parts/Family"
import type { WeightError } from "@tg/model-parts/Weights"
import type { ConfigError } from "@tg/model-parts/Keys"
import type { Shape, ShapeTensor } from "@tg/model-parts/Shape"
import { deepseek2 } from "@tg/models-deepseek2/Family"
import * as Shapes from "@tg/models-deepseek2/Shapes"
import * as Vocabulary from "@tg/tokenizer/Synthetic"
import type { Result } from "effect"
import { random, type Turns } from "./Problems.ts"

/** Bytes, and the marks of a conversation behind them. */
const vocabulary = Vocabulary.make({ size: 268, specialsAt: 256, family: "glm4" })

/** What stands in front of what each speaker says. */
export const turns: Turns = {
  user: vocabulary.tokens.indexOf("<|user|>"),
  assistant: vocabulary.tokens.indexOf("<|assistant|>")
}

/** Latent attention with a low-rank query; a dense block, then one of routed experts beside a shared one. */
export const architecture: Shapes.Architecture = {
  name: "tg-adds",
  layers: 2,
  embedding: 64,
  feedForward: 128,
  heads: 4,
  queryRank: 32,
  latent: 32,
  plain: 16,
  rotated: 8,
  value: 16,
  vocabulary: vocabulary.tokens.length,
  contextLength: 64,
  epsilon: 1e-5,
  ropeBase: 100,
  yarn: undefined,
  tied: false,
  experts: {
    firstBlock: 1,
    count: 4,
    used: 2,
    shared: 1,
    width: 32,
    gating: "sigmoid",
    normalise: true,
    scale: 1,
    bias: false
  },
  tokenizer: "glm4",
  specialsAt: 256
}

/** All weights are floats: they are trained where they lie. */
const inFloats = (shape: Shape): Shape => {
  const tensors = shape.tensors.map((tensor): ShapeTensor => ({
    ...tensor,
    type: "F32",
    bytes: 4 * tensor.dims.reduce((a, b) => a * b, 1)
  }))
  const metadata = new Map(shape.metadata)
  metadata.set("general.name", Metadata.string(architecture.name))
  metadata.set("general.file_type", Metadata.uint32(0))
  metadata.delete("general.quantization_version")
  return {
    name: architecture.name,
    metadata,
    tensors,
    tensorsByName: new Map(tensors.map((tensor) => [tensor.name, tensor])),
    vocabulary: shape.vocabulary
  }
}

/** The header of the model's file, before it has weights. */
export const shape: Shape = inFloats(Shapes.make(architecture, "f16"))

/** The family's own model of it. */
export const model: Result.Result<Model, ConfigError | WeightError> = deepseek2.modelOf(shape)

/** Weights before training: normal, as wide as keeps activations at their size. */
export const initial = (seed: number): ReadonlyMap<string, Float32Array> => {
  const next = random(seed)
  const normal = (): number => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next())
  return new Map(shape.tensors.map(({ dims, name }) => {
    const size = dims.reduce((a, b) => a * b, 1)
    if (name.includes("norm")) return [name, new Float32Array(size).fill(1)]
    const deviation = name === "token_embd.weight" ? 0.1 : name === "output.weight" ? 0.02 : 1 / Math.sqrt(dims[0]!)
    return [name, Float32Array.from({ length: size }, () => deviation * normal())]
  }))
}

const tokenizerKeys: ReadonlyArray<readonly [string, Metadata.MetadataValue]> = [
  ["tokenizer.ggml.model", Metadata.string(vocabulary.model)],
  ["tokenizer.ggml.pre", Metadata.string("glm4")],
  ["tokenizer.ggml.tokens", Metadata.strings(vocabulary.tokens)],
  ["tokenizer.ggml.token_type", Metadata.int32s(vocabulary.types)],
  ["tokenizer.ggml.merges", Metadata.strings(vocabulary.merges)],
  ...[...vocabulary.ids].map(([name, id]) => [`tokenizer.ggml.${name}_token_id`, Metadata.uint32(id)] as const),
  ["tokenizer.ggml.add_bos_token", Metadata.bool(vocabulary.addBos)],
  ["tokenizer.chat_template", Metadata.string(vocabulary.chatTemplate)]
]

/** The file of the model with these weights. */
export const file = (
  weights: ReadonlyMap<string, Float32Array>
): Result.Result<Uint8Array<ArrayBuffer>, GgufError> =>
  GgufWriter.write({
    name: architecture.name,
    metadata: [...shape.metadata, ...tokenizerKeys],
    tensors: shape.tensors.map(({ dims, name, type }) => {
      const values = weights.get(name)!
      return { name, type, dims, data: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) }
    })
  })
