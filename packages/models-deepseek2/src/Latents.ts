/** Queries are brought into the space of latents, and mixes of latents out of it: both up-projections are absorbed. */
import * as Layout from "@tg/gguf/Layout"
import { need, ofFewRows, product } from "@tg/model-parts/Product"
import { shared } from "@tg/model-parts/Schedule"
import * as Nn from "@tg/tensor/Nn"
import type { Tensor } from "@tg/tensor/Tensor"
import type { BlockInput } from "./Block.ts"
import * as Cache from "./Cache.ts"
import type { Form } from "./Form.ts"

/** Attention to latents. */
export const form = (input: BlockInput): Form => {
  const { output, query } = projections(input)
  return { query: (q) => shared(input, query(q)), reader: (shared) => Cache.reader(input.config, shared), output }
}

const projections = (input: BlockInput): Pick<Form, "output" | "query"> => {
  const { config, weights } = input
  const { heads, latent, plain: n, value } = config
  const joint = weights("attn_kv_b")
  if (joint === undefined || weights("attn_k_b") !== undefined) {
    const keys = need(weights, "attn_k_b")
    const values = need(weights, "attn_v_b")
    return {
      query: (q) => product(ofFewRows(q, input), keys).label("attn_k_b"),
      output: (z) => product(ofFewRows(z, input), values).label("attn_v_b")
    }
  }
  // one matrix: per head n key rows, then the value rows
  const perHead = (x: Tensor, rowRank: number): Tensor =>
    x.reshape([heads, n + value, ...x.shape.slice(x.rank - rowRank)])
  const { rowRank, values } = Layout.decode(joint.layout, joint.words)
  // sums over rows: a scale belongs to a row, so these are no products of bytes
  const keys = perHead(values, rowRank).slice(1, 0, n).reshape([heads, n, latent]).transpose()
  const valueRows = (x: Tensor, rowRank: number): Tensor => perHead(x, rowRank).slice(1, n, value)
  return {
    query: (q) => Nn.contract(q, keys, 1).label("attn_kv_b"),
    output: (z) => product(ofFewRows(z, input), joint, { view: valueRows }).label("attn_kv_b")
  }
}
