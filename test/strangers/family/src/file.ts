import { GgufWriter, Metadata } from "@tg/gguf"
import { Synthetic } from "@tg/tokenizer"
import { Result } from "effect"

const [embedding, inner, heads, layers, size] = [64, 96, 4, 2, 512]
const vocabulary = Synthetic.make({ family: "llama-bpe", size, specialsAt: 480 })

/** Values without meaning, the same for the same name. */
const tensor = (name: string, dims: ReadonlyArray<number>) => {
  let state = [...name].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) >>> 0, 7)
  const next = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 31 - 1
  }
  const norm = name.includes("norm")
  const values = Float32Array.from({ length: dims.reduce((n, d) => n * d, 1) }, () => norm ? 1 : 0.25 * next())
  return { name, type: "F32", dims, data: new Uint8Array(values.buffer) } as const
}

/** The bytes of a model of the architecture `parrot`. */
export const bytes: Uint8Array = Result.getOrThrow(GgufWriter.write({
  name: "parrot",
  metadata: [
    ["general.architecture", Metadata.string("parrot")],
    ["parrot.block_count", Metadata.uint32(layers)],
    ["parrot.context_length", Metadata.uint32(256)],
    ["parrot.embedding_length", Metadata.uint32(embedding)],
    ["parrot.feed_forward_length", Metadata.uint32(inner)],
    ["parrot.attention.head_count", Metadata.uint32(heads)],
    ["tokenizer.ggml.model", Metadata.string("gpt2")],
    ["tokenizer.ggml.pre", Metadata.string("llama-bpe")],
    ["tokenizer.ggml.tokens", Metadata.strings(vocabulary.tokens)],
    ["tokenizer.ggml.token_type", Metadata.int32s(vocabulary.types)],
    ["tokenizer.ggml.merges", Metadata.strings(vocabulary.merges)],
    ["tokenizer.ggml.eos_token_id", Metadata.uint32(vocabulary.ids.get("eos")!)],
    ["tokenizer.ggml.bos_token_id", Metadata.uint32(vocabulary.ids.get("bos")!)],
    ["tokenizer.chat_template", Metadata.string(vocabulary.chatTemplate)]
  ],
  tensors: [
    tensor("token_embd.weight", [embedding, size]),
    tensor("output_norm.weight", [embedding]),
    ...Array.from({ length: layers }, (_, i) => [
      tensor(`blk.${i}.attn_norm.weight`, [embedding]),
      tensor(`blk.${i}.attn_q.weight`, [embedding, embedding]),
      tensor(`blk.${i}.attn_kv.weight`, [embedding, 2 * embedding / heads]),
      tensor(`blk.${i}.attn_output.weight`, [embedding, embedding]),
      tensor(`blk.${i}.ffn_gate.weight`, [embedding, inner]),
      tensor(`blk.${i}.ffn_up.weight`, [embedding, inner]),
      tensor(`blk.${i}.ffn_down.weight`, [inner, embedding])
    ]).flat()
  ]
}))
