/**
 * Multi-token prediction: a block behind the last one that guesses the token after next. Its input at position p is the token of p and
 * the state of p - 1, the row that the output matrix of the model reads there. What it makes of both predicts the token of p + 1, and
 * stands in for the state of p where the model has computed none.
 */
import * as DType from "@tg/core-uop/DType"
import type * as Dim from "@tg/core-uop/Shape"
import type { Tensor } from "@tg/tensor/Tensor"
import { Schema } from "effect"
import type { BlockKind, ForwardInput } from "./Decoder.ts"
import * as Halves from "./Halves.ts"
import { fileName, type HasTensors, type PredictionWeights } from "./Weights.ts"

export { before, predict } from "./Predict.ts"

/** A file without a prediction block, of whose model one was asked for. */
export class NoPrediction extends Schema.TaggedError<NoPrediction>()("NoPrediction", {
  file: Schema.String,
  /** What was looked for, and what the file says. */
  found: Schema.String
}) {
  override get message(): string {
    return `${this.file} has no prediction block to draft with (mtp): ${this.found}; ` +
      `choose a file that was converted with it, or draft by lookup or with a second model`
  }
}

/** Why a file has no prediction block; nothing, if it has one. */
export const missing = (
  file: HasTensors,
  { announced, architecture, layers }: {
    readonly architecture: string
    /** What the metadata say of such blocks. */
    readonly announced: number
    /** Blocks of the model: the first one behind them is that block. */
    readonly layers: number
  }
): NoPrediction | undefined => {
  const tensor = fileName(layers, "nextn.eh_proj")
  const has = file.tensorsByName.has(tensor)
  if (announced > 0 && has) return undefined
  const found = `${architecture}.nextn_predict_layers is ${announced === 0 ? "0 or not there" : announced}, and ` +
    `there is ${has ? "a" : "no"} tensor ${tensor}`
  return new NoPrediction({ file: file.name, found })
}

/** What a prediction block computes on. */
export interface PredictionInput extends Omit<ForwardInput, "caches" | "experts" | "sequence" | "states"> {
  /** For each token the state of the position in front of it, `[T, embedding]`; zeros in front of the first. */
  readonly hidden: Tensor
  /** The cache of the block. Rows from `startPos` on are written. */
  readonly cache: Tensor
}

/** Guesses, and the writes that must reach the sink. */
export interface PredictionOutput {
  /** Of the token behind each that is asked for, `[1 or R, vocabulary]`. */
  readonly logits: Tensor
  /** What stands in for their states, `[1 or R, embedding]`. */
  readonly hidden: Tensor
  readonly effects: ReadonlyArray<Tensor>
}

/** A prediction block as the equations need it. */
export interface Predictor {
  /** Its number in the file. */
  readonly block: number
  readonly epsilon: number
  readonly weights: PredictionWeights
  readonly kind: BlockKind
}

/** Storage of states for so many positions: rows as they are, or as halves. */
export const storage = (
  embedding: number,
  { positions, type }: { readonly positions: number; readonly type: Halves.CacheType }
): { readonly shape: Dim.Shape; readonly dtype: DType.DType } =>
  type === "f32"
    ? { shape: [positions, embedding], dtype: DType.f32 }
    : { shape: [positions, Halves.wholeGroups(embedding) / 2], dtype: DType.u32 }
