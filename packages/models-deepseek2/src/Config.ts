/** The numbers of a model, from the metadata of its file. */
import * as Metadata from "@tg/gguf/Metadata"
import type { ExpertConfig } from "@tg/model-parts/FeedForward"
import * as Keys from "@tg/model-parts/Keys"
import { Result } from "effect"

/** Context extension by interpolating the slow rotations. */
export interface Yarn {
  readonly factor: number
  readonly originalContext: number
  /** Ten times the stored key; 0 when the key is absent. */
  readonly logMultiplier: number
}

/** Rotation of the positional part of queries and keys. */
export interface RopeConfig {
  readonly base: number
  readonly yarn: Yarn | undefined
  readonly attentionFactor: number
}

/** Sizes and constants of a `deepseek2` model. */
export interface Config {
  readonly name: string
  /** Decoder blocks; the multi-token prediction blocks behind them are not counted. */
  readonly layers: number
  /** Blocks behind them that predict further tokens; a file may have them, the forward pass has not. */
  readonly predictionBlocks: number
  readonly contextLength: number
  readonly embedding: number
  readonly feedForward: number
  readonly vocabulary: number
  readonly heads: number
  readonly epsilon: number
  /** Rank of the query's low-rank form; 0: a full matrix. */
  readonly queryRank: number
  /** Size of the latent that keys and values are made from. */
  readonly latent: number
  /** Part of a head that is rotated. */
  readonly rotated: number
  /** Part of a head without position. */
  readonly plain: number
  /** A head's value size. */
  readonly value: number
  readonly rope: RopeConfig
  readonly experts: ExpertConfig | undefined
}

/** Size of a head's query and key. */
export const headSize = (config: Config): number => config.plain + config.rotated

/** Values in a row of the cache: the latent, then the rotated key. */
export const cacheRow = (config: Config): number => config.latent + config.rotated

/** Reads the configuration, with the defaults of the reference loader. */
export const fromMetadata = (file: Metadata.HasMetadata): Result.Result<Config, Keys.ConfigError> =>
  Keys.asConfigError(file, read(file))

const { aboveOne, atLeastOne, invalid, nameOf, notNegative, positive, small, vocabularySize, within } = Keys

const key = (name: string): string => `deepseek2.${name}`

const read = (file: Metadata.HasMetadata) =>
  Result.gen(function*() {
    const architecture = yield* Metadata.getString(file, "general.architecture")
    if (architecture !== "deepseek2") {
      return yield* invalid(file, "general.architecture", architecture, "deepseek2")
    }
    const required = (name: string) => Metadata.getUint32(file, key(name))
    const integer = (name: string, otherwise: number) => Metadata.withDefault(required(name), otherwise)
    const float = (name: string, otherwise: number, range: Keys.Range) =>
      Result.flatMap(
        Metadata.withDefault(Metadata.getFloat(file, key(name)), otherwise),
        (found) => within(file, key(name), found, range)
      )
    const count = (name: string) =>
      Result.flatMap(required(name), (found) => within(file, key(name), found, atLeastOne))

    const blocks = yield* required("block_count")
    const predicted = yield* integer("nextn_predict_layers", 0)
    const layers = blocks - predicted
    if (layers < 1) return yield* invalid(file, key("block_count"), blocks, `more than ${predicted} prediction blocks`)

    const keyMla = yield* integer("attention.key_length_mla", 0)
    const head = keyMla > 0 ? keyMla : yield* required("attention.key_length")
    const value = yield* required(keyMla > 0 ? "attention.value_length_mla" : "attention.value_length")
    const rotated = yield* required("rope.dimension_count")
    if (rotated % 2 !== 0 || rotated < 2 || rotated >= head) {
      const wanted = `an even number above 0 and below the head size ${head}`
      return yield* invalid(file, key("rope.dimension_count"), rotated, wanted)
    }
    const vocabulary = yield* vocabularySize(file, key("vocab_size"))
    const yarn = yield* yarnOf(file)
    const config: Config = {
      name: yield* nameOf(file),
      layers,
      predictionBlocks: predicted,
      contextLength: yield* count("context_length"),
      embedding: yield* count("embedding_length"),
      feedForward: yield* required("feed_forward_length"),
      vocabulary,
      heads: yield* count("attention.head_count"),
      epsilon: yield* epsilonOf(file),
      queryRank: yield* integer("attention.q_lora_rank", 0),
      latent: yield* count("attention.kv_lora_rank"),
      rotated,
      plain: head - rotated,
      value,
      rope: {
        base: yield* float("rope.freq_base", 10000, aboveOne),
        yarn,
        attentionFactor: yield* float("rope.scaling.attn_factor", 1, positive)
      },
      experts: yield* expertsOf(file, { blocks, layers, vocabulary })
    }
    return config
  })

const epsilonOf = (file: Metadata.HasMetadata) => {
  const name = key("attention.layer_norm_rms_epsilon")
  return Result.flatMap(Metadata.getFloat(file, name), (found) => within(file, name, found, small))
}

/** Between how many turns in the original context angles are stretched in part: `Rotary` knows these alone. */
const yarnTurns = [["rope.scaling.yarn_beta_fast", 32], ["rope.scaling.yarn_beta_slow", 1]] as const

const yarnOf = (file: Metadata.HasMetadata) =>
  Result.gen(function*() {
    const type = yield* Metadata.withDefault(Metadata.getString(file, key("rope.scaling.type")), "none")
    if (type === "none") return undefined
    if (type !== "yarn") return yield* invalid(file, key("rope.scaling.type"), type, "none or yarn")
    const check = (name: string, found: number, range: Keys.Range) => within(file, key(name), found, range)
    const factor = yield* check(
      "rope.scaling.factor",
      yield* Metadata.getFloat(file, key("rope.scaling.factor")),
      positive
    )
    const originalContext = yield* check(
      "rope.scaling.original_context_length",
      yield* Metadata.getUint32(file, key("rope.scaling.original_context_length")),
      atLeastOne
    )
    const stored = yield* check(
      "rope.scaling.yarn_log_multiplier",
      yield* Metadata.withDefault(Metadata.getFloat(file, key("rope.scaling.yarn_log_multiplier")), 0),
      notNegative
    )
    for (const [name, turns] of yarnTurns) {
      const found = yield* Metadata.withDefault(Metadata.getFloat(file, key(name)), turns)
      if (found !== turns) return yield* invalid(file, key(name), found, String(turns))
    }
    // a factor of 1 leaves every angle and magnitude as it is
    return factor <= 1 ? undefined : { factor, originalContext, logMultiplier: stored / 0.1 }
  })

const expertsOf = (
  file: Metadata.HasMetadata,
  model: { readonly blocks: number; readonly layers: number; readonly vocabulary: number }
) =>
  Result.gen(function*() {
    const integer = (name: string, otherwise: number) =>
      Metadata.withDefault(Metadata.getUint32(file, key(name)), otherwise)
    const firstBlock = yield* integer("leading_dense_block_count", 0)
    const count = yield* integer("expert_count", 0)
    if (count === 0 || firstBlock >= model.layers) return undefined
    const used = yield* Metadata.getUint32(file, key("expert_used_count"))
    if (used < 1 || used > count) return yield* invalid(file, key("expert_used_count"), used, `1 to ${count}`)
    const groups = Math.max(1, yield* integer("expert_group_count", 1))
    const groupsUsed = Math.max(1, yield* integer("expert_group_used_count", 1))
    if (count % groups !== 0 || groupsUsed > groups || groupsUsed * (count / groups) < used) {
      return yield* invalid(
        file,
        key("expert_group_count"),
        `${groups} (${groupsUsed} used)`,
        "groups that hold the experts"
      )
    }
    const gating = yield* integer("expert_gating_func", 0)
    if (gating > 2) return yield* invalid(file, key("expert_gating_func"), gating, "1 (softmax) or 2 (sigmoid)")
    // early conversions of GLM-4.7-Flash lack the key, and are told by their size
    const early = (model.blocks === 47 || model.blocks === 48) && model.vocabulary === 154880
    const scale = yield* within(
      file,
      key("expert_weights_scale"),
      yield* Metadata.withDefault(Metadata.getFloat(file, key("expert_weights_scale")), 0),
      notNegative
    )
    const experts: ExpertConfig = {
      firstBlock,
      count,
      used,
      shared: yield* Metadata.getUint32(file, key("expert_shared_count")),
      width: yield* Metadata.getUint32(file, key("expert_feed_forward_length")),
      gating: gating === 2 || (gating === 0 && early) ? "sigmoid" : "softmax",
      normalise: yield* Metadata.withDefault(Metadata.getBool(file, key("expert_weights_norm")), false),
      scale: scale === 0 ? 1 : scale,
      groups,
      groupsUsed
    }
    return experts
  })
