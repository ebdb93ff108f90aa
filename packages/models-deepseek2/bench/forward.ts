/** Counts and times the graph of a decode step of GLM-4.7-Flash's shape: `node packages/models-deepseek2/bench/forward.ts`. */
import { DType, Spec, UOp } from "@tg/core-uop"
import { Program, Tensor } from "@tg/tensor"
import type { Name } from "@tg/gguf/GgufType"
import { Result } from "effect"
import * as Cache from "../src/Cache.ts"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type { FileTensor } from "@tg/model-parts/Weights"
import type { Config } from "../src/Config.ts"
import * as Model from "../src/Model.ts"
import * as Weights from "../src/Weights.ts"

const config: Config = {
  name: "glm",
  layers: 47,
  predictionBlocks: 0,
  contextLength: 202752,
  embedding: 2048,
  feedForward: 10240,
  vocabulary: 154880,
  heads: 20,
  epsilon: 1e-5,
  queryRank: 768,
  latent: 512,
  rotated: 64,
  plain: 192,
  value: 256,
  rope: { base: 1e6, yarn: undefined, attentionFactor: 1 },
  experts: {
    firstBlock: 1,
    count: 64,
    used: 4,
    shared: 1,
    width: 1536,
    gating: "sigmoid",
    normalise: true,
    scale: 1.8,
    groups: 1,
    groupsUsed: 1
  }
}

const tensors = new Map<string, FileTensor>()
const add = (name: string, type: Name, ...dims: ReadonlyArray<number>): void => {
  tensors.set(name, { name, type, dims })
}
add("token_embd.weight", "Q4_0", 2048, 154880)
add("output.weight", "Q6_K", 2048, 154880)
add("output_norm.weight", "F32", 2048)
for (let i = 0; i < config.layers; i++) {
  const block = (name: string, type: Name, ...dims: ReadonlyArray<number>): void =>
    add(`blk.${i}.${name}`, type, ...dims)
  block("attn_norm.weight", "F32", 2048)
  block("attn_q_a.weight", "Q4_0", 2048, 768)
  block("attn_q_a_norm.weight", "F32", 768)
  block("attn_q_b.weight", "Q4_0", 768, 5120)
  block("attn_kv_a_mqa.weight", "Q8_0", 2048, 576)
  block("attn_kv_a_norm.weight", "F32", 512)
  block("attn_k_b.weight", "Q8_0", 192, 512, 20)
  block("attn_v_b.weight", "Q8_0", 512, 256, 20)
  block("attn_output.weight", "Q4_0", 5120, 2048)
  block("ffn_norm.weight", "F32", 2048)
  if (i === 0) {
    block("ffn_gate.weight", "Q4_0", 2048, 10240)
    block("ffn_up.weight", "Q4_0", 2048, 10240)
    block("ffn_down.weight", "Q4_0", 10240, 2048)
    continue
  }
  block("ffn_gate_inp.weight", "F32", 2048, 64)
  block("exp_probs_b.bias", "F32", 64)
  block("ffn_gate_exps.weight", "Q4_0", 2048, 1536, 64)
  block("ffn_up_exps.weight", "Q4_0", 2048, 1536, 64)
  block("ffn_down_exps.weight", "Q4_0", 1536, 2048, 64)
  block("ffn_gate_shexp.weight", "Q5_K", 2048, 1536)
  block("ffn_up_shexp.weight", "Q5_K", 2048, 1536)
  block("ffn_down_shexp.weight", "Q4_0", 1536, 2048)
}

const build = () => {
  const weights = Result.getOrThrow(Weights.find(config, { name: "glm", tensorsByName: tensors }))
  const arena = new UOp.Arena()
  const startPos = Tensor.variable(arena, "start_pos", 0, 16383)
  const tokens = Tensor.buffer(arena, 0, { shape: [1], dtype: DType.u32 })
  const cosSin = Tensor.buffer(arena, 1, { shape: [1, 32, 2], dtype: DType.f32 })
  const caches = weights.blocks.map((_, i) =>
    Tensor.buffer(arena, 2 + i, Cache.storage(config, { type: "f16", context: 16384 }))
  )
  const buffers = weightBuffers(arena, weights, 100)
  const { effects, logits } = Model.forward({
    config,
    weights,
    buffers,
    tokens,
    startPos,
    caches,
    cosSin,
    rows: "last"
  })
  const out = Tensor.buffer(arena, 1_000_000, { shape: logits.shape, dtype: DType.f32 })
  return Program.make([Program.assign(out, logits), ...effects])
}

const times = Array.from({ length: 9 }, () => {
  const start = performance.now()
  build()
  return performance.now() - start
}).toSorted((a, b) => a - b)
const program = build()
const bodies = new Set(UOp.toposort(program.sink).filter((n) => n.op === "CALL").map((n) => n.src[0]!))
console.log(
  `nodes ${UOp.toposort(program.sink).length} (arena ${program.arena.size}), buffers ${program.buffers.length}`
)
console.log(`bodies ${[...bodies].map((b) => UOp.toposort(b).length).join(" and ")} nodes`)
console.log(`violations ${Spec.check("tensor", program.sink).length}`)
console.log(`build ${times[4]!.toFixed(1)} ms (${times[0]!.toFixed(1)} to ${times[8]!.toFixed(1)})`)
