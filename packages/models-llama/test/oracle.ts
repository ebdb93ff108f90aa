/** The oracle's models, laid out and run by the reference evaluator. */
import { h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Bodies from "@tg/egraph/Bodies"
import type { Rule } from "@tg/egraph/Rule"
import * as Split from "@tg/egraph/Split"
import * as Gguf from "@tg/gguf/Gguf"
import * as Layout from "@tg/gguf/Layout"
import { piece } from "@tg/model-parts/Attention"
import { forward, weightBuffers } from "@tg/model-parts/Decoder"
import type { CacheType } from "@tg/model-parts/Halves"
import * as Order from "@tg/model-parts/Order"
import type { Manner } from "@tg/model-parts/Product"
import type { FileTensor } from "@tg/model-parts/Weights"
import * as Cache from "@tg/models-llama/Cache"
import * as Config from "@tg/models-llama/Config"
import * as Model from "@tg/models-llama/Model"
import * as Weights from "@tg/models-llama/Weights"
import * as Program from "@tg/tensor/Program"
import { buffer, variable } from "@tg/tensor/Tensor"
import { Effect, Result } from "effect"
import { readFileSync } from "node:fs"
import { expect } from "vitest"

const folder = new URL("../../../test/vectors/oracle-families/", import.meta.url)

export interface Run {
  readonly name: string
  readonly prompt: ReadonlyArray<number>
  readonly continuation: ReadonlyArray<number>
  readonly rows: ReadonlyArray<number>
  readonly logits: string
  readonly argmax: ReadonlyArray<number>
}

export interface Case {
  readonly config: Config.Config
  readonly weights: Weights.ModelWeights
  readonly words: ReadonlyMap<string, Uint32Array>
  readonly divisors: Float32Array | undefined
  readonly runs: ReadonlyArray<Run>
}

export const readGguf = (name: string): { readonly file: Gguf.Gguf; readonly bytes: Uint8Array } => {
  const bytes = new Uint8Array(readFileSync(new URL(`${name}.gguf`, folder)))
  return { file: Result.getOrThrow(Gguf.fromBytes(name, bytes)), bytes }
}

/** One tensor's planes, by the relayout formula. */
export const laidOut = (layout: Layout.Layout, bytes: Uint8Array): Uint32Array => {
  const words = new Uint32Array(Math.ceil(bytes.length / 4))
  new Uint8Array(words.buffer).set(bytes)
  const arena = new Arena()
  const source = buffer(arena, 0, { shape: [words.length], dtype: DType.u32 })
  const planes = Layout.relayout(layout, source)
  const values = evaluate(planes.map((p) => p.words.node), { buffers: new Map([[source.node, words]]) })
  const out = new Uint32Array(layout.words)
  planes.forEach((p, i) => out.set(values[i]!.data as Uint32Array, p.offset))
  return out
}

/** Raw bytes of tensors by name. */
export type RawTensors = ReadonlyMap<string, FileTensor & { readonly bytes: Uint8Array }>

export const rawTensors = (name: string): RawTensors => {
  const { bytes, file } = readGguf(name)
  return new Map(file.tensors.map((t) => [t.name, {
    name: t.name,
    type: t.type,
    dims: t.dims,
    bytes: bytes.subarray(t.offset, t.offset + t.bytes)
  }]))
}

export const load = (name: string, tensors: RawTensors = rawTensors(name)): Case => {
  const { file } = readGguf(name)
  const config = Result.getOrThrow(Config.fromMetadata(file))
  const weights = Result.getOrThrow(Weights.find(config, { name, tensorsByName: tensors }))
  const words = new Map(
    weights.all.map((ref) => [ref.name, laidOut(ref.layout, tensors.get(ref.name)!.bytes)] as const)
  )
  const { runs } = JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8")) as {
    readonly runs: ReadonlyArray<Run>
  }
  const frequencies = tensors.get("rope_freqs.weight")
  const divisors = frequencies === undefined ? undefined : new Float32Array(frequencies.bytes.slice().buffer)
  return { config, weights, words, divisors, runs }
}

export const expectedLogits = (run: Run): Float32Array =>
  new Float32Array(Uint8Array.from(readFileSync(new URL(run.logits, folder))).buffer)

const context = 192

/** As a GPU would run it: the context in pieces, smaller ones than any device has, so that there are some. */
const inPieces = (roots: ReadonlyArray<UOp>): ReadonlyArray<UOp> => {
  const program = roots[0]!.arena.make("TUPLE", DType.none, roots)
  const { reports, sink } = Split.ofProgram(program, h200, ({ pieces, width }) => ({
    plan: pieces.length === 0 || width === 1 ? undefined : { piece: 16 },
    micros: 0,
    wholeMicros: 1
  }))
  expect(reports.filter(({ piece }) => piece !== undefined).length).toBeGreaterThan(0)
  return sink.src
}

/** How products read activations, the device for which that is decided, and rules for blocks; as they are stated, if there are none. */
type ActivationsFor = Pick<Manner, "profile"> & Partial<Pick<Manner, "activations">> & {
  readonly rules?: ReadonlyArray<Rule>
}

/** As it is decided without a look at kernels. */
const found = (roots: ReadonlyArray<UOp>, { profile = h200, rules }: ActivationsFor): ReadonlyArray<UOp> => {
  if (rules === undefined) return roots
  const program = roots[0]!.arena.make("TUPLE", DType.none, roots)
  const weigh = () => Effect.die("it was weighed")
  const { bodies, sink } = Effect.runSync(Bodies.ofProgram(program, { profile, weigh, search: { rules } }))
  expect(bodies.flatMap(({ operands }) => operands.map(({ form }) => form))).toContain("bytes in place")
  expect(bodies.some(({ isTaken }) => isTaken)).toBe(rules.length > 0)
  return sink.src
}

/** A model with its cache, advanced by runs of tokens. Programs are built once for each token count. */
export class Session {
  private readonly model: Case
  private readonly type: CacheType
  private readonly storage: ReadonlyArray<Float32Array | Uint32Array>
  private readonly order: Order.Order
  private readonly activations: ActivationsFor
  private position = 0

  constructor(model: Case, type: CacheType, order: Order.Order = "tokens", activations: ActivationsFor = {}) {
    this.model = model
    this.activations = activations
    this.type = type
    this.order = order
    this.storage = model.weights.blocks.map((_, block) => {
      const { dtype, shape } = Cache.storage(model.config, { type, context, block })
      const size = Number(shape[0]) * Number(shape[1])
      return dtype === DType.f32 ? new Float32Array(size) : new Uint32Array(size)
    })
  }

  /** The program for runs of up to `tokens` tokens (symbolic), or of exactly one; in tiles of them in the order of features. */
  private build(tokens: number, rows: "all" | "last") {
    const { config, weights } = this.model
    const arena = new Arena()
    const startPos = variable(arena, "start_pos", 0, context - 1)
    const isBatch = this.order === "features"
    const real = variable(arena, "tokens", 1, context)
    const tiles = variable(arena, "tiles", 1, context / Order.tileTokens)
    const runs = variable(arena, "runs", 1, context / piece)
    const count = isBatch ? tiles.mul(Order.tileTokens).node : tokens === 1 ? 1 : real.node
    const batch = isBatch ? { tiles, count: real, keys: runs.mul(piece) } : undefined
    const ids = buffer(arena, 0, { shape: [count], dtype: DType.u32, label: "tokens" })
    const inputs = Model.rotaries(config).map((_, i) =>
      buffer(arena, 1 + i, { shape: [count, config.rotated / 2, 2], dtype: DType.f32, label: `cos_sin_${i}` })
    )
    const caches = weights.blocks.map((_, i) =>
      buffer(arena, 8 + i, { ...Cache.storage(config, { type: this.type, context, block: i }), label: `cache.${i}` })
    )
    const buffers = weightBuffers(arena, weights, 8 + caches.length)
    const { effects, logits } = forward(Model.decoder(config, weights), {
      buffers,
      tokens: ids,
      startPos,
      caches,
      inputs,
      rows,
      batch,
      ...this.activations
    })
    const sink = Program.sink(effects)
    expect(Spec.check("tensor", sink)).toEqual([])
    return { arena, ids, inputs, caches, buffers, effects, logits }
  }

  /** Feeds tokens; the logits, row by row. */
  feed(tokens: ReadonlyArray<number>, rows: "all" | "last" = "all"): Float32Array {
    const { config, weights, words } = this.model
    const built = this.build(tokens.length, rows)
    const length = this.order === "tokens" ? tokens.length : Order.wholeTiles(tokens.length)
    const positions = Array.from({ length }, (_, i) => this.position + i)
    const data = new Map<UOp, Float32Array | Uint32Array>([
      [built.ids.node, Uint32Array.from(positions.map((_, i) => tokens[Math.min(i, tokens.length - 1)]!))],
      ...Model.cosSin(config, positions, this.model.divisors).map((table, i) =>
        [built.inputs[i]!.node, table] as const
      ),
      ...built.caches.map((c, i) => [c.node, this.storage[i]!] as const),
      ...weights.all.map((ref) => [built.buffers(ref).node, words.get(ref.name)!] as const)
    ])
    const roots = [built.logits.node, ...built.effects.map((e) => e.node)]
    const [value] = evaluate(tokens.length === 1 ? inPieces(found(roots, this.activations)) : roots, {
      buffers: data,
      vars: {
        start_pos: this.position,
        tokens: tokens.length,
        tiles: length / Order.tileTokens,
        runs: Math.ceil((this.position + length) / piece)
      }
    })
    this.position += tokens.length
    return (value!.data as Float32Array).subarray(0, rows === "all" ? tokens.length * config.vocabulary : undefined)
  }
}

/** Root mean square and largest difference. */
export const difference = (
  a: ArrayLike<number>,
  b: ArrayLike<number>
): { readonly rms: number; readonly max: number } => {
  expect(a.length).toBe(b.length)
  let squares = 0
  let max = 0
  for (let i = 0; i < a.length; i++) {
    const d = Math.abs(a[i]! - b[i]!)
    squares += d * d
    max = Math.max(max, Number.isNaN(d) ? Infinity : d)
  }
  return { rms: Math.sqrt(squares / a.length), max }
}
