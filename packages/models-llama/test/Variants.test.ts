import { describe, expect, it } from "vitest"
import { difference, load, type RawTensors, rawTensors, Session } from "./oracle.ts"

type Tensor = RawTensors extends ReadonlyMap<string, infer T> ? T : never

const floats = (name: string, values: ReadonlyArray<number>): Tensor => ({
  name,
  type: "F32",
  dims: [values.length],
  bytes: new Uint8Array(Float32Array.from(values).buffer)
})

const logits = (name: string, change: (tensors: Map<string, Tensor>) => void): Float32Array => {
  const tensors = new Map(rawTensors(name))
  change(tensors)
  const model = load(name, tensors)
  return new Session(model, "f32").feed(model.runs[0]!.prompt.slice(0, 4))
}

const unchanged = (): void => {}

describe("other forms of the same model", () => {
  it("query, key and value in one matrix, with one bias", () => {
    // the file mixes types, and a tensor has one: both forms get the same floats
    const matrix = (name: string, [k, rows]: readonly [number, number], seed: number): Tensor => ({
      ...floats(name, Array.from({ length: k * rows }, (_, i) => Math.sin(seed + i * 12.9898) / 16)),
      dims: [k, rows]
    })
    const parts = (block: string, tensors: Map<string, Tensor>) =>
      ["q", "k", "v"].map((role, i) => {
        const name = `${block}.attn_${role}.weight`
        const [k, rows] = tensors.get(name)!.dims
        return matrix(name, [k!, rows!], i)
      })
    const separate = logits("w01", (tensors) => {
      for (const part of parts("blk.1", tensors)) tensors.set(part.name, part)
    })
    const fused = logits("w01", (tensors) => {
      const own = parts("blk.1", tensors)
      const biases = ["q", "k", "v"].map((role) => tensors.get(`blk.1.attn_${role}.bias`)!)
      const join = (name: string, from: ReadonlyArray<Tensor>): void => {
        const dims = [...from[0]!.dims.slice(0, -1), from.reduce((sum, t) => sum + t.dims.at(-1)!, 0)]
        tensors.set(name, { name, type: "F32", dims, bytes: Buffer.concat(from.map((t) => t.bytes)) })
        for (const each of from) tensors.delete(each.name)
      }
      join("blk.1.attn_qkv.weight", own)
      join("blk.1.attn_qkv.bias", biases)
    })
    expect(difference(fused, separate).max).toBeLessThan(1e-5)
    expect(difference(fused, logits("w01", unchanged)).rms).toBeGreaterThan(0.1)
  })

  it("factors beside matrices multiply what they give", () => {
    const plain = logits("m01", unchanged)
    const scaled = logits("m01", (tensors) => {
      for (
        const [name, values] of [
          ["blk.0.attn_v.scale", [2]],
          ["blk.0.attn_output.scale", [0.5]],
          ["blk.1.ffn_up_exps.scale", [4, 2, 1, 8, 2, 4, 0.5]],
          ["blk.1.ffn_down_exps.scale", [0.25, 0.5, 1, 0.125, 0.5, 0.25, 2]]
        ] as const
      ) tensors.set(name, floats(name, values))
    })
    expect(difference(scaled, plain).max).toBeLessThan(1e-5)
    const one = logits("m01", (tensors) => tensors.set("output.scale", floats("output.scale", [3])))
    expect(difference(one, plain.map((z) => 3 * z)).max).toBeLessThan(1e-4)
  })

  it("biases of a llama file are added where they stand", () => {
    const plain = logits("l01", unchanged)
    const zeros = (count: number): ReadonlyArray<number> => Array.from({ length: count }, () => 0)
    const model = load("l01")
    const { embedding, feedForward } = model.config
    const biased = (value: number) =>
      logits("l01", (tensors) => {
        for (
          const [role, size] of [["attn_output", embedding], ["ffn_down", embedding], ["ffn_up", feedForward]] as const
        ) {
          const name = `blk.0.${role}.bias`
          tensors.set(name, floats(name, zeros(size).map(() => value)))
        }
      })
    expect(difference(biased(0), plain).max).toBeLessThan(1e-6)
    expect(difference(biased(0.1), plain).rms).toBeGreaterThan(1e-3)
  })
})
