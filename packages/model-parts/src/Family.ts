/** The interface between a family of models and who runs them. */
import type * as DType from "@tg/core-uop/DType"
import type * as Dim from "@tg/core-uop/Shape"
import type { MissingKey, WrongType } from "@tg/gguf/GgufError"
import * as Metadata from "@tg/gguf/Metadata"
import { Context, Layer, Result, Schema } from "effect"
import type { Ring } from "./Attention.ts"
import type { ForwardInput, ForwardOutput } from "./Decoder.ts"
import type { CacheType } from "./Halves.ts"
import type { ConfigError } from "./Keys.ts"
import { clip } from "./Keys.ts"
import * as Mixes from "./Mixes.ts"
import type { NoPrediction, PredictionInput, PredictionOutput } from "./Prediction.ts"
import { type Shape, UnknownShape } from "./Shape.ts"
import type { HasTensors, ModelWeights, WeightError, WeightRef } from "./Weights.ts"

/** The header of a model's file, or of a shape. */
export type Header = Metadata.HasMetadata & HasTensors

/** Storage of one block's cache: rows for positions, whole pieces of them. */
export interface Storage {
  readonly shape: Dim.Shape
  readonly dtype: DType.DType
  /** How it forgets; it keeps all positions if it is not said. The rings of a model are all the same. */
  readonly ring?: Ring | undefined
}

/** Values that the host computes for each position: a table `f32 [T, ...row]`. */
export interface HostInput {
  readonly label: string
  readonly row: ReadonlyArray<number>
}

/** What runs need to know of a model apart from its weights. */
export interface ModelConfig {
  /** What the model is called. */
  readonly name: string
  readonly layers: number
  readonly contextLength: number
  readonly embedding: number
  readonly vocabulary: number
  /** Heads of queries: rows of attention scores that a token takes. */
  readonly heads: number
  /** How many experts a block has, and how many of them a token uses. */
  readonly experts: { readonly count: number; readonly used: number } | undefined
}

/** The prediction block of a model: a capability that a family may have, and a file. */
export interface Prediction {
  /** All weights that it reads; some may be the model's own. */
  readonly weights: ReadonlyArray<WeightRef>
  /** Storage of its cache. */
  readonly cache: (options: { readonly type: CacheType; readonly context: number }) => Storage
  readonly forward: (input: PredictionInput) => PredictionOutput
}

/** A model of a family: its numbers, where its weights are, and how to compute with them. */
export interface Model {
  readonly config: ModelConfig
  readonly weights: ModelWeights
  /** One for each block. */
  readonly caches: (options: { readonly type: CacheType; readonly context: number }) => ReadonlyArray<Storage>
  readonly inputs: ReadonlyArray<HostInput>
  /** Weights of F32 that the host reads, too, to compute its inputs. */
  readonly hostWeights: ReadonlyArray<WeightRef>
  /** The values of each input for positions, `[positions, ...row]`; `host` are the values of `hostWeights` by name. */
  readonly inputsAt: (
    positions: ReadonlyArray<number>,
    host: ReadonlyMap<string, Float32Array>
  ) => ReadonlyArray<Float32Array>
  readonly forward: (input: ForwardInput) => ForwardOutput
  /** What guesses the token after next, or why it cannot; not there where a family has no such blocks. */
  readonly prediction?: Result.Result<Prediction, NoPrediction | WeightError> | undefined
}

/** What holds for files of a family that do not say it. */
export interface ChatDefaults {
  /** The text of a chat template: `tokenizer.chat_template`. */
  readonly template?: string | undefined
  /** The text of the token that ends a turn: `tokenizer.ggml.eot_token_id`. */
  readonly endOfTurn?: string | undefined
}

/** A family of models: the architectures that it runs, and their known shapes. */
export interface ModelFamily {
  readonly name: string
  /** Values of `general.architecture`. */
  readonly architectures: ReadonlyArray<string>
  readonly modelOf: (file: Header) => Result.Result<Model, ConfigError | WeightError>
  /** Names of models that are known without their files; with a mix behind it, a name is that of a shape. */
  readonly shapes: ReadonlyArray<string>
  /** The shape of one of `shapes`, with fewer blocks if `layers` says so. */
  readonly shapeOf: (name: string, mix: Mixes.Name, layers?: number) => Shape | undefined
  readonly chat?: ChatDefaults | undefined
}

/** A file of an architecture that no family runs. */
export class UnknownArchitecture extends Schema.TaggedError<UnknownArchitecture>()("UnknownArchitecture", {
  file: Schema.String,
  architecture: Schema.String,
  /** Those that run and are spelled like it. */
  near: Schema.Array(Schema.String),
  known: Schema.Array(Schema.String)
}) {
  override get message(): string {
    const near = this.near.length === 0
      ? ""
      : ` (${this.near.join(" and ")} ${this.near.length === 1 ? "is" : "are"} near)`
    return `${this.file}: models of the architecture ${JSON.stringify(this.architecture)} do not run${near}; ` +
      `those that do are ${this.known.join(", ")}; choose a file of one of these (general.architecture)`
  }
}

/** Families of models, found by architecture. A later one stands in for an earlier one of the same architecture. */
export interface Registry {
  readonly families: ReadonlyArray<ModelFamily>
}

/** The families that a program runs. */
export class Families extends Context.Service<Families, Registry>()("@tg/model-parts/Families") {}

/** Runs the models of these families. */
export const layer = (families: ReadonlyArray<ModelFamily>): Layer.Layer<Families> =>
  Layer.succeed(Families, { families })

/** Runs the models of these families beside those that ran before. */
export const add = (more: ReadonlyArray<ModelFamily>): Layer.Layer<Families, never, Families> =>
  Layer.effect(Families, Families.useSync(({ families }) => ({ families: [...families, ...more] })))

/** Every architecture that runs. */
export const architectures = ({ families }: Registry): ReadonlyArray<string> => [
  ...new Set(families.flatMap((family) => family.architectures))
]

/** The family of a file. */
export const familyOf = (
  registry: Registry,
  file: Header
): Result.Result<ModelFamily, UnknownArchitecture | MissingKey | WrongType> =>
  Result.gen(function*() {
    const architecture = yield* Metadata.getString(file, "general.architecture")
    const family = registry.families.findLast((each) => each.architectures.includes(architecture))
    if (family !== undefined) return family
    const known = architectures(registry)
    const asked = clip(architecture)
    const near = known.filter((name) => isNear(name, asked))
    return yield* Result.fail(new UnknownArchitecture({ file: file.name, architecture: asked, near, known }))
  })

/** A header with what its family says of chats where it says nothing; the same one, if that is nothing. */
export const withChat = <H extends Header>(header: H, { chat }: ModelFamily): H => {
  const eot = "tokenizer.ggml.eot_token_id"
  const template = "tokenizer.chat_template"
  const tokens = header.metadata.get("tokenizer.ggml.tokens")
  const end = chat?.endOfTurn === undefined || header.metadata.has(eot) || tokens?.type !== "array"
    ? -1
    : Array.from(tokens.value as ArrayLike<unknown>).indexOf(chat.endOfTurn)
  const more: ReadonlyArray<readonly [string, Metadata.MetadataValue]> = [
    ...(chat?.template === undefined || header.metadata.has(template)
      ? []
      : [[template, Metadata.string(chat.template)] as const]),
    ...(end < 0 ? [] : [[eot, Metadata.uint32(end)] as const])
  ]
  return more.length === 0 ? header : { ...header, metadata: new Map([...header.metadata, ...more]) }
}

/** The model that a header describes. */
export const modelOf = (registry: Registry, file: Header) =>
  Result.flatMap(familyOf(registry, file), (family) => family.modelOf(file))

/** Whether one name begins like the other, up to a version: `qwen2moe` is near to `qwen2` and `qwen3moe`. */
const isNear = (known: string, asked: string): boolean => {
  const stem = (name: string): string => /^[a-z]+/i.exec(name)?.[0].toLowerCase() ?? name
  return stem(known) === stem(asked)
}

/** The full names of all shapes. */
export const shapeNames = ({ families }: Registry): ReadonlyArray<string> =>
  families.flatMap(({ shapes }) => shapes.flatMap((name) => Mixes.names.map((mix) => `${name}:${mix}`)))

/** The shape of a name, with fewer blocks if `layers` says so, and its family: `glm-4.7-flash:q4_0`. */
export const shapeOf = (
  registry: Registry,
  name: string,
  layers?: number
): Result.Result<{ readonly shape: Shape; readonly family: ModelFamily }, UnknownShape> => {
  const [model = "", mix = "", ...more] = name.toLowerCase().split(":")
  const family = registry.families.findLast((each) => each.shapes.includes(model))
  const shape = family === undefined || !Mixes.isName(mix) || more.length > 0
    ? undefined
    : family.shapeOf(model, mix, layers)
  return shape === undefined
    ? Result.fail(new UnknownShape({ asked: name, known: shapeNames(registry) }))
    : Result.succeed({ shape, family: family! })
}
