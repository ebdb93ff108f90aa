import * as Metadata from "@tg/gguf/Metadata"
import type { FileTensor, WeightError } from "@tg/model-parts/Weights"
import * as Config from "@tg/models-deepseek2/Config"
import * as Weights from "@tg/models-deepseek2/Weights"
import { Result } from "effect"
import { describe, expect, it } from "vitest"
import { readGguf } from "./oracle.ts"

type Changes = Readonly<Record<string, Partial<FileTensor> | undefined>>

const find = (name: string, changes: Changes = {}, values: Readonly<Record<string, number>> = {}) => {
  const { file: read } = readGguf(name)
  const set = Object.entries(values).map(([key, value]) => [`deepseek2.${key}`, Metadata.uint32(value)] as const)
  const file = { ...read, metadata: new Map([...read.metadata, ...set]) }
  const tensors = new Map<string, FileTensor>(file.tensorsByName)
  for (const [tensor, change] of Object.entries(changes)) {
    if (change === undefined) tensors.delete(tensor)
    else tensors.set(tensor, { name: tensor, type: "F32", dims: [1], ...tensors.get(tensor), ...change })
  }
  return Weights.find(Result.getOrThrow(Config.fromMetadata(file)), { name, tensorsByName: tensors })
}
const found = (name: string, ...rest: readonly [Changes?, Readonly<Record<string, number>>?]): Weights.ModelWeights =>
  Result.getOrThrow(find(name, ...rest))
const error = (name: string, changes: Changes, values?: Readonly<Record<string, number>>): WeightError =>
  Result.getOrThrow(Result.flip(find(name, changes, values)))

/** The tensors of a block under another name. */
const renamed = (from: string, to: string): Changes =>
  Object.fromEntries(
    [...readGguf("c01").file.tensorsByName].flatMap(([name, tensor]) =>
      name.startsWith(from) ? [[name, undefined], [`${to}${name.slice(from.length)}`, tensor]] : []
    )
  )

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

  it("do not count prediction blocks in, whether the file has them or not", () => {
    const extra = { "blk.3.nextn.eh_proj.weight": { dims: [512, 256] }, "blk.3.attn_norm.weight": { dims: [256] } }
    const predicted = { block_count: 4, nextn_predict_layers: 1 }
    const { length } = found("c01").all
    expect(found("c01", extra, predicted).all.length).toBe(length)
    expect(found("c01", {}, predicted).all.length).toBe(length)
  })

  it("are refused with a prediction block that nothing tells of, or that is an ordinary one", () => {
    const extra = { "blk.3.nextn.eh_proj.weight": { dims: [512, 256] } }
    expect(error("c01", extra).leftover).toEqual(["blk.3.nextn.eh_proj.weight"])
    expect(error("c01", {}, { nextn_predict_layers: 1 }).leftover).toContain("blk.2.attn_norm.weight")
    const odd = { ...extra, "blk.3.nextn.other.weight": { dims: [1] } }
    expect(error("c01", odd, { block_count: 4, nextn_predict_layers: 1 }).leftover).toEqual([
      "blk.3.nextn.other.weight"
    ])
  })

  it("are refused when a lowered block_count leaves blocks over", () => {
    const wrong = error("c01", {}, { block_count: 2 })
    expect(wrong.missing).toEqual([])
    expect(wrong.message).toMatch(/not used by the model: blk\.2\..* and \d+ more;/)
  })

  it("are refused when output.weight is misspelled, and not taken for tied ones", () => {
    const { file } = readGguf("c01")
    const output = file.tensorsByName.get("output.weight")!
    const wrong = error("c01", { "output.weight": undefined, "outpt.weight": output })
    expect(wrong.leftover).toEqual(["outpt.weight"])
  })

  it("are refused when a selection bias has another name", () => {
    const wrong = error("c01", {
      "blk.1.exp_probs_b.bias": undefined,
      "blk.1.exp_probs_c.bias": { dims: [5] }
    })
    expect(wrong.missing).toEqual(["blk.1.exp_probs_b.bias"])
    expect(wrong.leftover).toEqual(["blk.1.exp_probs_c.bias"])
  })

  it("may hold keys and values twice, in one tensor and in two", () => {
    const both = { "blk.0.attn_kv_b.weight": { dims: [256, 512] } }
    expect(found("c01", both).blocks[0]!.attn_kv_b).toBeUndefined()
    expect(error("c01", { "blk.7.attn_kv_b.weight": { dims: [256, 512] } }).leftover).toHaveLength(1)
  })

  it("of two thousand million blocks are refused at once, with the first few names", () => {
    const before = process.cpuUsage()
    const wrong = error("c01", renamed("blk.2.", "blk.1000000."), { block_count: 2 ** 31 - 1 })
    // to look at each of 4 * 10^10 names would take minutes
    expect(process.cpuUsage(before).user).toBeLessThan(20e6)
    expect(wrong.missing).toHaveLength(8)
    // blocks 2 to 2^31 - 2 but for one, with 18 tensors each
    expect(wrong.missing.length + wrong.missingMore).toBe((2 ** 31 - 4) * 18)
    expect(wrong.message).toContain(`and ${wrong.missingMore} more`)
    expect(error("c01", {}, { block_count: 2 ** 31 - 1, leading_dense_block_count: 2 ** 30 }).missingMore)
      .toBeGreaterThan(2 ** 30)
  })

  it("with a name of megabytes do not fill the error", () => {
    const wrong = error("c01", { ["x".repeat(5_000_000)]: {} })
    expect(wrong.message.length).toBeLessThan(1000)
  })

  it("accept a fused gate and up, and a missing selection bias", () => {
    const blocks = found("c01", {
      "blk.1.ffn_gate_exps.weight": undefined,
      "blk.1.ffn_up_exps.weight": undefined,
      "blk.1.ffn_gate_up_exps.weight": { type: "Q4_K", dims: [256, 512, 5] },
      "blk.1.exp_probs_b.bias": undefined,
      "blk.2.exp_probs_b.bias": undefined
    }).blocks
    expect(blocks[1]!.ffn_gate_up_exps!.layout.shape).toEqual([5, 512, 256])
    expect(blocks[1]!.exp_probs_b).toBeUndefined()
  })

  it("name all that is missing, misshapen or of an unknown type", () => {
    const wrong = error("c01", {
      "blk.0.ffn_up.weight": undefined,
      "blk.2.attn_k_b.weight": undefined,
      "output_norm.weight": { dims: [128] },
      "blk.1.ffn_down_exps.weight": { type: "F64" }
    })
    expect(wrong.missing).toEqual(["blk.0.ffn_up.weight", "blk.2.attn_k_b.weight"])
    expect(wrong.misshapen).toEqual(["output_norm.weight [128] instead of [256]"])
    expect(wrong.unsupported).toEqual(["blk.1.ffn_down_exps.weight (F64)"])
    expect(wrong.message).toMatch(/c01.*missing: blk\.0\.ffn_up\.weight.*split file/)
  })
})
