import * as Config from "@tg/models-deepseek2/Config"
import * as Weights from "@tg/models-deepseek2/Weights"
import { Result } from "effect"
import { describe, expect, it } from "vitest"
import { readGguf } from "./oracle.ts"

type Changes = Readonly<Record<string, Partial<Weights.FileTensor> | undefined>>

const find = (name: string, changes: Changes = {}) => {
  const { file } = readGguf(name)
  const tensors = new Map<string, Weights.FileTensor>(file.tensorsByName)
  for (const [tensor, change] of Object.entries(changes)) {
    if (change === undefined) tensors.delete(tensor)
    else tensors.set(tensor, { name: tensor, type: "F32", dims: [1], ...tensors.get(tensor), ...change })
  }
  return Weights.find(Result.getOrThrow(Config.fromMetadata(file)), { name, tensorsByName: tensors })
}
const found = (name: string, changes?: Changes): Weights.ModelWeights => Result.getOrThrow(find(name, changes))
const error = (name: string, changes: Changes): Weights.WeightError =>
  Result.getOrThrow(Result.flip(find(name, changes)))

describe("weights", () => {
  it("are all used in files of every kind", () => {
    for (const name of ["c01", "c02", "c03", "c04", "c05", "c06"]) {
      const { file } = readGguf(name)
      const used = new Set(found(name).all.map((ref) => ref.name))
      expect(file.tensors.filter((t) => !used.has(t.name)).map((t) => t.name)).toEqual([])
    }
  })

  it("have the shape of the file reversed: rows of experts last", () => {
    expect(found("c01").blocks[1]!.ffn_gate_exps!.layout.shape).toEqual([5, 256, 256])
    expect(found("c01").blocks[1]!.attn_k_b!.layout.shape).toEqual([4, 256, 64])
  })

  it("take the embedding for the output when tied", () => {
    const weights = found("c03")
    expect(weights.output).toBe(weights.tokenEmbedding)
    expect(found("c01").output.name).toBe("output.weight")
  })

  it("ignore prediction blocks and other tensors", () => {
    const extra = { "blk.3.nextn.eh_proj.weight": { dims: [512, 256] }, "blk.3.attn_norm.weight": { dims: [256] } }
    expect(found("c01", extra).all.length).toBe(found("c01").all.length)
  })

  it("accept a fused gate and up, and a missing selection bias", () => {
    const blocks = found("c01", {
      "blk.1.ffn_gate_exps.weight": undefined,
      "blk.1.ffn_up_exps.weight": undefined,
      "blk.1.ffn_gate_up_exps.weight": { type: "Q4_K", dims: [256, 512, 5] },
      "blk.1.exp_probs_b.bias": undefined
    }).blocks
    expect(blocks[1]!.ffn_gate_up_exps!.layout.shape).toEqual([5, 512, 256])
    expect(blocks[1]!.exp_probs_b).toBeUndefined()
  })

  it("name all that is missing, misshapen or of an unknown type", () => {
    const wrong = error("c01", {
      "blk.0.ffn_up.weight": undefined,
      "blk.2.attn_k_b.weight": undefined,
      "output_norm.weight": { dims: [128] },
      "blk.1.ffn_down_exps.weight": { type: "IQ2_S" }
    })
    expect(wrong.missing).toEqual(["blk.0.ffn_up.weight", "blk.2.attn_k_b.weight"])
    expect(wrong.misshapen).toEqual(["output_norm.weight [128] instead of [256]"])
    expect(wrong.unsupported).toEqual(["blk.1.ffn_down_exps.weight (IQ2_S)"])
    expect(wrong.message).toMatch(/c01.*missing: blk\.0\.ffn_up\.weight.*split file/)
  })
})
