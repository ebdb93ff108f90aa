/** The family of models with grouped-query attention. */
import type { Model, ModelFamily } from "@tg/model-parts/Family"
import * as Decoder from "@tg/model-parts/Decoder"
import { Result } from "effect"
import * as Cache from "./Cache.ts"
import * as Config from "./Config.ts"
import { cosSin, decoder, rotaries } from "./Model.ts"
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

/** Llama, Mistral, Mixtral, Qwen 2 and 3, Gemma 3, GLM-4.5 and their like. */
export const llama: ModelFamily = {
  name: "llama",
  architectures,
  modelOf: (file) =>
    Result.gen(function*() {
      const config = yield* Config.fromMetadata(file)
      return model(config, yield* Weights.find(config, file))
    }),
  shapes: [...Shapes.models.keys()],
  shapeOf: (name, mix, layers) => {
    const known = Shapes.models.get(name)
    return known && Shapes.make(layers === undefined ? known : { ...known, layers }, mix)
  }
}
