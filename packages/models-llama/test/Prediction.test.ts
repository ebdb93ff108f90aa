/**
 * The prediction block of `glm4moe`, for which the oracle has no file: it equals a model of one block, whose embeddings are what the
 * block makes of tokens and states (computed here in double precision).
 */
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena } from "@tg/core-uop/UOp"
import * as Layout from "@tg/gguf/Layout"
import * as Metadata from "@tg/gguf/Metadata"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type { Model } from "@tg/model-parts/Family"
import type { WeightRef } from "@tg/model-parts/Weights"
import { llama } from "@tg/models-llama/Family"
import { buffer, scalar, type Tensor } from "@tg/tensor/Tensor"
import { Result } from "effect"
import { describe, expect, it } from "vitest"
import { difference, laidOut, type RawTensors, rawTensors, readGguf } from "./oracle.ts"

const { file } = readGguf("z01")
const raw = rawTensors("z01")
const base = Result.getOrThrow(llama.modelOf(file))
const { embedding, layers } = base.config
const tokens = [5, 17, 300, 42]
const context = 32

type RawTensor = RawTensors extends ReadonlyMap<string, infer T> ? T : never

/** Numbers that look like none in particular, about zero. */
const noise = (count: number, seed: number, scale: number, mean = 0): Float32Array =>
  Float32Array.from({ length: count }, (_, i) => mean + scale * ((Math.imul(i + seed, 0x9e3779b1) >>> 8) / 2 ** 23 - 1))

const float = (name: string, dims: ReadonlyArray<number>, values: Float32Array): RawTensor => ({
  name,
  type: "F32",
  dims,
  bytes: new Uint8Array(values.buffer)
})

/** The tensors of the last block under another number. */
const blockAs = (number: number): ReadonlyArray<RawTensor> => {
  const prefix = `blk.${layers - 1}.`
  return [...raw.values()].filter(({ name }) => name.startsWith(prefix))
    .map((tensor) => ({ ...tensor, name: `blk.${number}.${tensor.name.slice(prefix.length)}` }))
}

const modelOf = (tensors: ReadonlyArray<RawTensor>, keys: Readonly<Record<string, number>>): Model => {
  const metadata = new Map(file.metadata)
  for (const [key, value] of Object.entries(keys)) metadata.set(`glm4moe.${key}`, Metadata.uint32(value))
  const header = { name: "z01", metadata, tensorsByName: new Map(tensors.map((tensor) => [tensor.name, tensor])) }
  return Result.getOrThrow(llama.modelOf(header))
}

/** What a program of these tokens runs on. */
const ground = (model: Model, refs: ReadonlyArray<WeightRef>, tensors: ReadonlyArray<RawTensor>) => {
  const arena = new Arena()
  const bytes = new Map(tensors.map((tensor) => [tensor.name, tensor.bytes]))
  const buffers = weightBuffers(arena, { all: refs }, 100)
  const ids = buffer(arena, 0, { shape: [tokens.length], dtype: DType.u32 })
  const angles = buffer(arena, 1, { shape: [tokens.length, ...model.inputs[0]!.row], dtype: DType.f32 })
  const data: ReadonlyArray<readonly [Tensor, Float32Array | Uint32Array]> = [
    [ids, Uint32Array.from(tokens)],
    [angles, model.inputsAt(tokens.map((_, i) => i), new Map())[0]!],
    ...refs.map((ref) => [buffers(ref), laidOut(ref.layout, bytes.get(ref.name)!)] as const)
  ]
  return {
    arena,
    data,
    given: { buffers, tokens: ids, inputs: [angles], startPos: scalar(arena, 0), rows: "all" } as const
  }
}

const run = (roots: ReadonlyArray<Tensor>, data: ReadonlyArray<readonly [Tensor, Float32Array | Uint32Array]>) =>
  evaluate(roots.map(({ node }) => node), { buffers: new Map(data.map(([{ node }, values]) => [node, values])) })[0]!
    .data as Float32Array

const nextn = (role: string): string => `blk.${layers}.nextn.${role}.weight`
const projection = noise(2 * embedding * embedding, 3, 0.1)
const norms = { enorm: noise(embedding, 7, 0.3, 1), hnorm: noise(embedding, 11, 0.3, 1) }
const hidden = noise(tokens.length * embedding, 13, 1)

/** Rows of tokens, dequantised. */
const rowsOf = (ref: WeightRef): Float32Array => {
  const arena = new Arena()
  const words = buffer(arena, 0, { shape: [ref.layout.words], dtype: DType.u32 })
  const ids = buffer(arena, 1, { shape: [tokens.length], dtype: DType.u32 })
  const rows = Layout.dequantise(ref.layout, words, ids)
  return run([rows], [[words, laidOut(ref.layout, raw.get(ref.name)!.bytes)], [ids, Uint32Array.from(tokens)]])
}

const normed = (row: ArrayLike<number>, gain: Float32Array): ReadonlyArray<number> => {
  const values = Array.from(row)
  const scale = 1 / Math.sqrt(values.reduce((sum, x) => sum + x * x, 0) / embedding + 1e-5)
  return values.map((x, i) => x * scale * gain[i]!)
}

/** `eh_proj` times the norms of each token's embedding and state. */
const joined = (): Float32Array => {
  const rows = rowsOf(base.weights.tokenEmbedding)
  const part = (all: Float32Array, t: number) => all.subarray(t * embedding, (t + 1) * embedding)
  return Float32Array.from(tokens.flatMap((_, t) => {
    const both = [...normed(part(rows, t), norms.enorm), ...normed(part(hidden, t), norms.hnorm)]
    return Array.from(
      { length: embedding },
      (_, r) => both.reduce((sum, x, i) => sum + projection[2 * embedding * r + i]! * x, 0)
    )
  }))
}

describe("the prediction block of glm4moe", () => {
  it("is a block behind the model, of tokens and states", () => {
    const withBlock = [
      ...raw.values(),
      ...blockAs(layers),
      float(nextn("eh_proj"), [2 * embedding, embedding], projection),
      float(nextn("enorm"), [embedding], norms.enorm),
      float(nextn("hnorm"), [embedding], norms.hnorm)
    ]
    const model = modelOf(withBlock, { block_count: layers + 1, nextn_predict_layers: 1 })
    const block = Result.getOrThrow(model.prediction!)
    const { arena, data, given } = ground(model, block.weights, withBlock)
    const cache = buffer(arena, 10, block.cache({ type: "f32", context }))
    const states = buffer(arena, 11, { shape: [tokens.length, embedding], dtype: DType.f32 })
    const made = block.forward({ ...given, cache, hidden: states })
    const size = Number(cache.dim(0)) * Number(cache.dim(1))
    const found = run([made.logits, ...made.effects], [...data, [cache, new Float32Array(size)], [states, hidden]])

    const rows = new Float32Array(embedding * base.config.vocabulary)
    const z = joined()
    for (const [t, id] of tokens.entries()) rows.set(z.subarray(t * embedding, (t + 1) * embedding), id * embedding)
    const outside = [...raw.values()].filter(({ name }) => !name.startsWith("blk.") && name !== "token_embd.weight")
    const alone = [
      ...outside,
      ...blockAs(0),
      float("token_embd.weight", [embedding, base.config.vocabulary], rows)
    ]
    const one = modelOf(alone, { block_count: 1, leading_dense_block_count: 0 })
    const other = ground(one, one.weights.all, alone)
    const own = buffer(other.arena, 10, one.caches({ type: "f32", context })[0]!)
    const { effects, logits } = one.forward({ ...other.given, caches: [own] })
    const expected = run([logits, ...effects], [...other.data, [own, new Float32Array(size)]])

    // float32 sums in another order: a wrong wire moves the logits by 0.3 and more
    expect(difference(found, expected).max).toBeLessThan(5e-4)
    expect(difference(found, expected.map(() => 0)).rms).toBeGreaterThan(0.5)
  })

  it("is not there where the file has none, which says so", () => {
    const error = Result.getOrThrow(Result.flip(base.prediction!))
    expect(error._tag).toBe("NoPrediction")
    expect(error.message).toContain(`no tensor ${nextn("eh_proj")}`)
  })

  it("is refused where a tensor of it is missing, if someone asks for it", () => {
    const broken = [
      ...raw.values(),
      ...blockAs(layers),
      float(nextn("eh_proj"), [2 * embedding, embedding], projection)
    ]
    const model = modelOf(broken, { block_count: layers + 1, nextn_predict_layers: 1 })
    const error = Result.getOrThrow(Result.flip(model.prediction!))
    expect(error._tag).toBe("WeightError")
    expect(error.message).toContain(nextn("enorm"))
  })
})
