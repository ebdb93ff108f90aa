/** The numbers of a model, from the metadata of its file. */
import * as Metadata from "@tg/gguf/Metadata"
import type { ExpertConfig } from "@tg/model-parts/FeedForward"
import * as Keys from "@tg/model-parts/Keys"
import type { Yarn } from "@tg/model-parts/Rotary"
import { Result } from "effect"
import { type Architecture, architectures, isArchitecture, type Traits, traits } from "./Traits.ts"

/** Rotation of queries and keys. */
export interface RotaryConfig {
  readonly base: number
  /** Angles are divided by it. */
  readonly linear: number
  readonly yarn: Yarn | undefined
  /** Of cosines and sines. */
  readonly magnitude: number
}

/** Blocks that see the last positions only. */
export interface WindowConfig {
  /** Positions that a token sees, itself included. */
  readonly positions: number
  readonly isWindow: (block: number) => boolean
  readonly rotary: RotaryConfig
}

/** Sizes and constants of a model. */
export interface Config {
  readonly architecture: Architecture
  readonly traits: Traits
  readonly name: string
  /** Decoder blocks; the multi-token prediction blocks behind them are not counted. */
  readonly layers: number
  readonly predictionBlocks: number
  readonly contextLength: number
  readonly embedding: number
  readonly feedForward: number
  readonly vocabulary: number
  readonly heads: number
  /** Heads of keys and values, each shared by heads / keyValueHeads neighbouring query heads. */
  readonly keyValueHeads: number
  readonly headSize: number
  /** Values of a head that are rotated: the first ones. */
  readonly rotated: number
  readonly epsilon: number
  readonly rotary: RotaryConfig
  readonly window: WindowConfig | undefined
  readonly attentionScale: number
  readonly embeddingScale: number
  /** Logits z become c tanh(z / c). */
  readonly logitCap: number | undefined
  readonly experts: ExpertConfig | undefined
}

/** Positions that a token of a block sees, itself included; all before it if the block has no window. */
export const windowOf = ({ window }: Config, block: number): number | undefined =>
  window?.isWindow(block) === true ? window.positions : undefined

/** Query heads that share a key and a value. */
export const headsPerKey = ({ heads, keyValueHeads }: Config): number => heads / keyValueHeads

/** Reads the configuration, with the defaults of the reference loader. */
export const fromMetadata = (file: Metadata.HasMetadata): Result.Result<Config, Keys.ConfigError> =>
  Keys.asConfigError(file, read(file))

type Reader = ReturnType<typeof Keys.reader>

const read = (file: Metadata.HasMetadata) =>
  Result.gen(function*() {
    const architecture = yield* Metadata.getString(file, "general.architecture")
    if (!isArchitecture(architecture)) {
      return yield* Keys.invalid(file, "general.architecture", architecture, architectures.join(", "))
    }
    const own = traits[architecture]
    const keys = Keys.reader(file, architecture)
    const blocks = yield* keys.count("block_count")
    const predictionBlocks = yield* keys.integer("nextn_predict_layers", 0)
    const layers = blocks - predictionBlocks
    if (layers < 1) return yield* keys.fail("block_count", blocks, `more than ${predictionBlocks} prediction blocks`)
    const embedding = yield* keys.count("embedding_length")
    const feedForward = yield* single(file, keys, "feed_forward_length")
    const contextLength = yield* keys.count("context_length")
    const head = yield* headsOf(file, keys, { embedding, traits: own })
    const { rotary, window } = yield* rotariesOf(file, keys, { contextLength, traits: own })
    const cap = yield* keys.float("final_logit_softcapping", 0, Keys.notNegative)
    // of the models with this scale only the largest have so many blocks
    const perHead = architecture === "gemma3" && layers === 62 ? embedding / head.heads : head.headSize
    const config: Config = {
      architecture,
      traits: own,
      name: yield* Keys.nameOf(file),
      layers,
      predictionBlocks,
      contextLength,
      embedding,
      feedForward,
      vocabulary: yield* Keys.vocabularySize(file, keys.key("vocab_size")),
      ...head,
      epsilon: yield* keys.requiredFloat("attention.layer_norm_rms_epsilon", Keys.small),
      rotary,
      window,
      attentionScale: 1 / Math.sqrt(perHead),
      embeddingScale: own.embeddingScale === "root" ? Math.sqrt(embedding) : 1,
      logitCap: architecture === "gemma3" && cap > 0 ? cap : undefined,
      experts: yield* expertsOf(file, keys, { feedForward, layers, traits: own })
    }
    return config
  })

/** A number of every block: the same for all of them, be it written once or for each. */
const single = (file: Metadata.HasMetadata, keys: Reader, name: string) =>
  Result.gen(function*() {
    const value = file.metadata.get(keys.key(name))
    if (value?.type !== "array") return yield* keys.count(name)
    const all = Array.from(value.value as ArrayLike<unknown>, Number)
    const first = all[0] ?? NaN
    return all.every((each) => each === first) && Number.isInteger(first) && first >= 1
      ? first
      : yield* keys.fail(
        name,
        `[${all.slice(0, 8).join(", ")}${all.length > 8 ? ", .." : ""}]`,
        "one value for all blocks"
      )
  })

const headsOf = (
  file: Metadata.HasMetadata,
  keys: Reader,
  { embedding, traits }: { readonly embedding: number; readonly traits: Traits }
) =>
  Result.gen(function*() {
    const heads = yield* single(file, keys, "attention.head_count")
    const keyValueHeads = keys.has("attention.head_count_kv")
      ? yield* single(file, keys, "attention.head_count_kv")
      : heads
    if (heads % keyValueHeads !== 0) {
      return yield* keys.fail("attention.head_count_kv", keyValueHeads, `a divisor of the ${heads} heads`)
    }
    const headSize = keys.has("attention.key_length") ? yield* keys.count("attention.key_length") : embedding / heads
    if (!Number.isInteger(headSize)) {
      return yield* keys.fail("attention.head_count", heads, `a divisor of the ${embedding} values of an embedding`)
    }
    if (headSize % 2 !== 0) return yield* keys.fail("attention.key_length", headSize, "an even number")
    if (traits.heads === "embedding" && headSize * heads !== embedding) {
      return yield* keys.fail("attention.key_length", headSize, `${embedding / heads}, embedding_length / head_count`)
    }
    const value = yield* keys.integer("attention.value_length", headSize)
    if (value !== headSize) return yield* keys.fail("attention.value_length", value, `${headSize}, the length of keys`)
    const rotated = yield* keys.integer("rope.dimension_count", headSize)
    const fits = traits.rotation === "whole" ? rotated === headSize : rotated % 2 === 0 && rotated > 0
    if (!fits || rotated > headSize) {
      const wanted = traits.rotation === "whole" ? `${headSize}, the head size` : `an even number up to ${headSize}`
      return yield* keys.fail("rope.dimension_count", rotated, wanted)
    }
    return { heads, keyValueHeads, headSize, rotated }
  })

const rotariesOf = (
  file: Metadata.HasMetadata,
  keys: Reader,
  { contextLength, traits }: { readonly contextLength: number; readonly traits: Traits }
) =>
  Result.gen(function*() {
    const base = yield* keys.float("rope.freq_base", 10000, Keys.aboveOne)
    const magnitude = yield* keys.float("rope.scaling.attn_factor", 1, Keys.positive)
    const type = yield* keys.string("rope.scaling.type", "linear")
    const named = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear"
    const plain: RotaryConfig = { base, linear: 1, yarn: undefined, magnitude }
    const rotary: RotaryConfig = yield* Result.gen(function*() {
      switch (type) {
        case "none":
          return plain
        case "linear":
          return { ...plain, linear: yield* keys.float(named, 1, Keys.positive) }
        case "yarn": {
          const factor = yield* keys.float(named, 1, Keys.atLeastOne)
          const given = yield* keys.integer("rope.scaling.original_context_length", 0)
          const originalContext = given === 0 ? contextLength : given
          // a factor of 1 leaves every angle and magnitude as it is
          return factor === 1
            ? plain
            : { ...plain, yarn: { factor, originalContext }, magnitude: magnitude * (1 + 0.1 * Math.log(factor)) }
        }
        default:
          return yield* keys.fail("rope.scaling.type", type, "none, linear or yarn")
      }
    })
    const window = traits.windows ? yield* readWindow(file, keys, plain) : undefined
    return { rotary, window }
  })

/** The usual distance of blocks that see everything. */
const usualPattern = 6

const readWindow = (file: Metadata.HasMetadata, keys: Reader, plain: RotaryConfig) =>
  Result.gen(function*() {
    const positions = yield* keys.integer("attention.sliding_window", 0)
    if (positions === 0) return undefined
    const rotary = { ...plain, base: yield* keys.float("rope.freq_base_swa", 10000, Keys.aboveOne) }
    const name = "attention.sliding_window_pattern"
    const value = file.metadata.get(keys.key(name))
    if (value?.type === "array") {
      const each = yield* Metadata.getBools(file, keys.key(name))
      return { positions, rotary, isWindow: (block: number) => each[block] === true }
    }
    const pattern = yield* keys.integer(name, usualPattern)
    if (pattern < 2) return yield* keys.fail(name, pattern, "2 or more, as there is a window")
    return { positions, rotary, isWindow: (block: number) => block % pattern !== pattern - 1 }
  })

const softmaxExperts = {
  firstBlock: 0,
  shared: 0,
  gating: "softmax",
  normalise: true,
  scale: 1,
  groups: 1,
  groupsUsed: 1
} as const

const expertsOf = (
  file: Metadata.HasMetadata,
  keys: Reader,
  { feedForward, layers, traits }: {
    readonly feedForward: number
    readonly layers: number
    readonly traits: Traits
  }
): Result.Result<ExpertConfig | undefined, Keys.ConfigError> =>
  Keys.asConfigError(
    file,
    Result.gen(function*() {
      if (traits.experts === "none") return undefined
      const count = traits.experts === "optional"
        ? yield* keys.integer("expert_count", 0)
        : yield* keys.count("expert_count")
      if (count === 0) return undefined
      const used = yield* single(file, keys, "expert_used_count")
      if (used > count) return yield* keys.fail("expert_used_count", used, `1 to ${count}`)
      // experts are as wide as the key of dense networks says
      if (traits.experts === "optional") return { ...softmaxExperts, count, used, width: feedForward }
      const widthKey = "expert_feed_forward_length"
      if (traits.experts === "all") {
        const width = keys.has(widthKey) ? yield* keys.count(widthKey) : feedForward / used
        if (!Number.isInteger(width)) {
          return yield* keys.fail("feed_forward_length", feedForward, `a multiple of ${used}`)
        }
        return { ...softmaxExperts, count, used, width }
      }
      const firstBlock = yield* keys.required("leading_dense_block_count")
      if (firstBlock >= layers) return undefined
      const gating = yield* keys.integer("expert_gating_func", 0)
      if (gating > 2) return yield* keys.fail("expert_gating_func", gating, "1 (softmax) or 2 (sigmoid)")
      const groups = Math.max(1, yield* keys.integer("expert_group_count", 1))
      const groupsUsed = Math.max(1, yield* keys.integer("expert_group_used_count", 1))
      if (count % groups !== 0 || groupsUsed > groups || groupsUsed * (count / groups) < used) {
        return yield* keys.fail("expert_group_count", `${groups} (${groupsUsed} used)`, "groups that hold the experts")
      }
      const scale = yield* keys.float("expert_weights_scale", 0, Keys.notNegative)
      return {
        firstBlock,
        count,
        used,
        shared: yield* keys.required("expert_shared_count"),
        width: yield* keys.count(widthKey),
        gating: gating === 1 ? "softmax" : "sigmoid",
        normalise: yield* keys.bool("expert_weights_norm", false),
        scale: scale === 0 ? 1 : scale,
        groups,
        groupsUsed
      } as const
    })
  )
