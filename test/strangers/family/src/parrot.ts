/** A family of models from outside: one key and value for all heads, rotated halves, a gated network without a norm of its own. */
import { DType } from "@tg/core-uop"
import { Metadata } from "@tg/gguf"
import {
  Attention,
  Decoder,
  type Family,
  FeedForward,
  Keys,
  Norm,
  Product,
  Rotary,
  Schedule,
  Weights
} from "@tg/model-parts"
import { Nn, Program, type Tensor } from "@tg/tensor"
import { Result } from "effect"

interface Config extends Family.ModelConfig {
  readonly size: number
  readonly inner: number
}

const readConfig = (file: Family.Header): Result.Result<Config, Keys.ConfigError> =>
  Keys.asConfigError(
    file,
    Result.gen(function*() {
      const keys = Keys.reader(file, "parrot")
      const [embedding, heads] = [yield* keys.count("embedding_length"), yield* keys.count("attention.head_count")]
      if (embedding % (2 * heads) !== 0) return yield* keys.fail("attention.head_count", heads, "heads of even size")
      return {
        name: yield* Keys.nameOf(file),
        layers: yield* keys.count("block_count"),
        contextLength: yield* keys.count("context_length"),
        embedding,
        vocabulary: (yield* Metadata.getStrings(file, "tokenizer.ggml.tokens")).length,
        heads,
        experts: undefined,
        size: embedding / heads,
        inner: yield* keys.count("feed_forward_length")
      }
    })
  )

const findWeights = ({ embedding, inner, layers, size, vocabulary }: Config, file: Family.Header) =>
  Weights.find({
    layers,
    embedding,
    vocabulary,
    runs: [0],
    ofBlock: () => [
      ["attn_norm", [embedding]],
      ["attn_q", [embedding, embedding]],
      ["attn_kv", [embedding, 2 * size]],
      ["attn_output", [embedding, embedding]],
      ["ffn_gate", [embedding, inner]],
      ["ffn_up", [embedding, inner]],
      ["ffn_down", [inner, embedding]]
    ],
    isKnown: () => false
  }, file)

const epsilon = 1e-5

/** Rows of the cache are a key and a value, as floats. */
const reader = ({ size }: Config): Attention.Reader => ({
  scores: (query, rows) => {
    const lead = rows.shape.slice(0, -1)
    return query.reshape([...query.shape.slice(0, -1), ...lead.map(() => 1), size]).mul(rows.slice(-1, 0, size)).sum(-1)
  },
  mix: (weights, rows) => weights.unsqueeze(-1).mul(rows.slice(-1, size, size)).sum(-2)
})

const block = (config: Config) => (input: Decoder.BlockInput): Decoder.BlockOutput => {
  const { cache, input: cosSin, startPos, weights, x } = input
  const { embedding, heads, size } = config
  const tokens = x.dim(0)
  const own = Norm.operand({ ...input, epsilon }, x, "attn_norm")
  const of = (role: string): Tensor.Tensor => Schedule.shared(input, FeedForward.affine(weights, own, role))
  const both = of("attn_kv")
  const key = Rotary.rotate(both.slice(-1, 0, size), cosSin, "halves")
  const row = Nn.cat([key, both.slice(-1, size, size)], -1)
  const write = Program.assign(cache.slice(0, startPos, tokens), row)
  const query = Rotary.rotate(of("attn_q").reshape([tokens, heads, size]), cosSin, "halves")
  const asked = Schedule.stored(input, query.mul(1 / Math.sqrt(size)))
  const seen = Program.after(cache, [write])
  const mixed = tokens === 1
    ? Attention.few(reader(config), asked, seen, input)
    : Attention.whole(reader(config), input, asked, seen)
  const told = FeedForward.linear(input, mixed.reshape([tokens, embedding]), "attn_output")
  const middle = Schedule.shared(input, x.add(told))
  const inner = Product.ofTokens(middle, input)
  return {
    x: middle.add(FeedForward.dense(input, inner, ["ffn_gate", "ffn_up", "ffn_down"])),
    write,
    chosen: undefined
  }
}

/** Models of the architecture `parrot`. */
export const parrot: Family.ModelFamily = {
  name: "parrot",
  architectures: ["parrot"],
  modelOf: (file) =>
    Result.gen(function*() {
      const config = yield* readConfig(file)
      const weights = yield* findWeights(config, file)
      const { layers, size } = config
      const kind: Decoder.BlockKind = { name: "parrot_block", input: 0, build: block(config) }
      const frequencies = Rotary.frequencies({ base: 1000, rotated: size })
      return {
        config,
        weights,
        caches: ({ context }) =>
          Array.from({ length: layers }, () => ({
            shape: [Attention.wholePieces(context), 2 * size],
            dtype: DType.f32
          })),
        inputs: [{ label: "cos_sin", row: [size / 2, 2] }],
        hostWeights: [],
        inputsAt: (positions) => [Rotary.table(frequencies, 1, positions)],
        forward: (input) => Decoder.forward({ layers, epsilon, weights, kindOf: () => kind }, input)
      }
    }),
  shapes: [],
  shapeOf: () => undefined
}
