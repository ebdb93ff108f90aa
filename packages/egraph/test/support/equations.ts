/** Equations as papers write them, over parameters of real sizes. */
import * as DType from "@tg/core-uop/DType"
import type * as Shape from "@tg/core-uop/Shape"
import { Arena, slotOf, type UOp } from "@tg/core-uop/UOp"
import type { Residency } from "@tg/egraph/Analysis"
import * as Nn from "@tg/tensor/Nn"
import { param, type Tensor, variable } from "@tg/tensor/Tensor"

/** Sizes of multi-head latent attention. */
export interface Sizes {
  readonly heads: number
  readonly embedding: number
  /** Rank of queries; 0: a full matrix. */
  readonly queryRank: number
  readonly latent: number
  readonly rotated: number
  readonly plain: number
  readonly value: number
}

export const glm: Sizes = {
  heads: 20,
  embedding: 2048,
  queryRank: 768,
  latent: 512,
  rotated: 64,
  plain: 192,
  value: 256
}
export const deepseekLite: Sizes = {
  heads: 16,
  embedding: 2048,
  queryRank: 0,
  latent: 512,
  rotated: 64,
  plain: 128,
  value: 128
}

/** Parameters, by where they are. Weights are words of 4 bits a value and a half for each 32, as Q4_0 has them. */
export class Storage {
  readonly arena = new Arena()
  private readonly places: Array<Residency> = []
  readonly residency = (storage: UOp): Residency => this.places[slotOf(storage)]!

  tensor(where: Residency, shape: Shape.Shape, label: string): Tensor {
    const slot = this.places.push(where) - 1
    return param(this.arena, slot, { shape, dtype: DType.f32 }).label(label)
  }

  /** A matrix of nibbles with a scale for each 32. */
  weight(rows: number, columns: number, label: string): Tensor {
    const slot = this.places.push("weight") - 1
    const blocks = rows * columns / 32
    const words = param(this.arena, slot, { shape: [blocks, 5], dtype: DType.u32 })
    const nibbles = words.slice(1, 0, 4).reshape([blocks, 4, 1]).expand([blocks, 4, 8])
    const values = nibbles.and(15).cast(DType.f32).reshape([blocks, 32])
    const scales = words.slice(1, 4, 1).halfToFloat()
    return values.sub(8).mul(scales.expand([blocks, 32])).reshape([rows, columns]).label(label)
  }
}

/** The equations of DeepSeek-V2, section 2.1: keys and values are made from latents, and every head attends to its own. */
export const latentAttention = (sizes: Sizes) => {
  const { embedding, heads, latent, plain, queryRank, rotated, value } = sizes
  const storage = new Storage()
  const tokens = variable(storage.arena, "T", 1, 1024).node
  const positions = variable(storage.arena, "S", 1, 65536).node
  const low = storage.tensor("activation", [tokens, queryRank || embedding], "low")
  const queryPosition = storage.tensor("activation", [tokens, heads, rotated], "q_rope")
  const rows = storage.tensor("cache", [positions, latent + rotated], "rows")
  const q = Nn.linear(low, storage.weight(heads * plain, queryRank || embedding, "w_q")).reshape([tokens, heads, plain])
  const c = rows.slice(1, 0, latent)
  const k = Nn.linear(c, storage.weight(heads * plain, latent, "w_k")).reshape([positions, heads, plain])
  const v = Nn.linear(c, storage.weight(heads * value, latent, "w_v")).reshape([positions, heads, value])
  // [T, H, S]
  const content = q.unsqueeze(2).mul(k.permute([1, 0, 2])).sum(-1)
  const position = queryPosition.unsqueeze(2).mul(rows.slice(1, latent, rotated)).sum(-1)
  const weights = Nn.softmax(content.add(position).mul(1 / Math.sqrt(plain + rotated)))
  const mix = weights.unsqueeze(2).mul(v.permute([1, 2, 0])).sum(-1)
  const output = Nn.linear(mix.reshape([tokens, heads * value]), storage.weight(embedding, heads * value, "w_o"))
  return { output, residency: storage.residency }
}
