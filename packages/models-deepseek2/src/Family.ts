/** The family of models with the architecture `deepseek2`. */
import * as Decoder from "@tg/model-parts/Decoder"
import type { Header, Model, ModelFamily } from "@tg/model-parts/Family"
import * as Prediction from "@tg/model-parts/Prediction"
import { Result } from "effect"
import * as Cache from "./Cache.ts"
import * as Config from "./Config.ts"
import { decoder, expertBlock } from "./Model.ts"
import { rope } from "./Rope.ts"
import * as Shapes from "./Shapes.ts"
import * as Weights from "./Weights.ts"

/** The model of a configuration and its weights. */
export const model = (config: Config.Config, weights: Weights.ModelWeights): Model => {
  const own = decoder(config, weights)
  return {
    config,
    weights,
    caches: (options) => Array.from({ length: config.layers }, () => Cache.storage(config, options)),
    inputs: [{ label: "cos_sin", row: [config.rotated / 2, 2] }],
    hostWeights: [],
    inputsAt: (positions) => [rope(config, positions)],
    forward: (input) => Decoder.forward(own, input)
  }
}

/** Its prediction block, if the file has one. */
const prediction = (config: Config.Config, weights: Weights.ModelWeights, file: Header): Model["prediction"] => {
  const { epsilon, layers, predictionBlocks: announced } = config
  const none = Prediction.missing(file, { architecture: "deepseek2", announced, layers })
  if (none !== undefined) return Result.fail(none)
  return Result.map(Weights.findPrediction(config, weights, file), (own) => {
    const kind = expertBlock(config)
    return {
      weights: own.all,
      cache: (options) => Cache.storage(config, options),
      forward: (input) => Prediction.predict({ block: layers, epsilon, weights: own, kind }, input)
    }
  })
}

/** GLM-4.7-Flash, DeepSeek-V2-Lite, Youtu-LLM and their like. */
export const deepseek2: ModelFamily = {
  name: "deepseek2",
  architectures: ["deepseek2"],
  modelOf: (file) =>
    Result.gen(function*() {
      const config = yield* Config.fromMetadata(file)
      const weights = yield* Weights.find(config, file)
      return { ...model(config, weights), prediction: prediction(config, weights, file) }
    }),
  shapes: [...Shapes.architectures.keys()],
  shapeOf: (name, mix, layers) => {
    const known = Shapes.architectures.get(name)
    return known && Shapes.make(layers === undefined ? known : { ...known, layers }, mix)
  }
}
