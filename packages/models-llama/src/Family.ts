/** The family of models with grouped-query attention. */
import * as Decoder from "@tg/model-parts/Decoder"
import type { Header, Model, ModelFamily } from "@tg/model-parts/Family"
import * as Prediction from "@tg/model-parts/Prediction"
import { Result } from "effect"
import * as Cache from "./Cache.ts"
import * as Config from "./Config.ts"
import { cosSin, decoder, expertBlock, rotaries } from "./Model.ts"
import * as Shapes from "./Shapes.ts"
import { architectures } from "./Traits.ts"
import * as Weights from "./Weights.ts"

/** The model of a configuration and its weights. */
export const model = (config: Config.Config, weights: Weights.ModelWeights): Model => {
  const own = decoder(config, weights)
  const divisors = weights.others.get("rope_freqs.weight")
  return {
    config,
    weights,
    caches: (options) =>
      Array.from({ length: config.layers }, (_, block) => Cache.storage(config, { ...options, block })),
    inputs: rotaries(config).map((_, i) => ({
      label: i === 0 ? "cos_sin" : "cos_sin_window",
      row: [config.rotated / 2, 2]
    })),
    hostWeights: divisors === undefined ? [] : [divisors],
    inputsAt: (positions, host) => cosSin(config, positions, divisors && host.get(divisors.name)),
    forward: (input) => Decoder.forward(own, input)
  }
}

/** Its prediction block, if the file has one. */
const prediction = (config: Config.Config, weights: Weights.ModelWeights, file: Header): Model["prediction"] => {
  const { architecture, epsilon, layers, predictionBlocks: announced } = config
  const none = Prediction.missing(file, { architecture, announced, layers })
  if (none !== undefined) return Result.fail(none)
  return Result.map(Weights.findPrediction(config, weights, file), (own) => {
    const kind = expertBlock(config)
    return {
      weights: own.all,
      cache: (options) => Cache.storage(config, { ...options, block: layers }),
      forward: (input) => Prediction.predict({ block: layers, epsilon, weights: own, kind }, input)
    }
  })
}

/** Llama, Mistral, Mixtral, Qwen 2 and 3, Gemma 3, GLM-4.5 and their like. */
export const llama: ModelFamily = {
  name: "llama",
  architectures,
  modelOf: (file) =>
    Result.gen(function*() {
      const config = yield* Config.fromMetadata(file)
      const weights = yield* Weights.find(config, file)
      return { ...model(config, weights), prediction: prediction(config, weights, file) }
    }),
  shapes: [...Shapes.models.keys()],
  shapeOf: (name, mix, layers) => {
    const known = Shapes.models.get(name)
    return known && Shapes.make(layers === undefined ? known : { ...known, layers }, mix)
  }
}
