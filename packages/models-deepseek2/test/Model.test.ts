import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import { weightBuffers } from "@tg/model-parts/Decoder"
import { type ExpertConfig, route } from "@tg/model-parts/FeedForward"
import * as Cache from "@tg/models-deepseek2/Cache"
import * as Model from "@tg/models-deepseek2/Model"
import * as Program from "@tg/tensor/Program"
import { buffer, variable } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { difference, load, type RawTensors, rawTensors, Session } from "./oracle.ts"

const experts: ExpertConfig = {
  firstBlock: 0,
  count: 6,
  used: 2,
  shared: 0,
  width: 8,
  gating: "sigmoid",
  normalise: false,
  scale: 1,
  groups: 1,
  groupsUsed: 1
}

const routed = (config: ExpertConfig, logits: ReadonlyArray<number>, bias?: ReadonlyArray<number>) => {
  const arena = new Arena()
  const make = (id: number, data: ReadonlyArray<number>, shape: ReadonlyArray<number>) =>
    [buffer(arena, id, { shape, dtype: DType.f32 }), Float32Array.from(data)] as const
  const [g, gData] = make(0, logits, [1, logits.length])
  const [b, bData] = make(1, bias ?? [], [bias?.length ?? 0])
  const { chosen, weights } = route(config, g, bias === undefined ? undefined : b)
  const [c, w] = evaluate([chosen.node, weights.node], {
    buffers: new Map<UOp, Float32Array>([[g.node, gData], [b.node, bData]])
  })
  return { chosen: Array.from(c!.data), weights: Array.from(w!.data) }
}

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x))
const near = (found: ReadonlyArray<number>, expected: ReadonlyArray<number>): void =>
  found.forEach((x, i) => expect(x).toBeCloseTo(expected[i]!, 6)) // f32 results near 1

describe("routing", () => {
  const logits = [0, 2, -1, 1, 3, -2]

  it("weighs the chosen experts by their own probability", () => {
    const { chosen, weights } = routed(experts, logits)
    expect(chosen).toEqual([4, 1])
    near(weights, [sigmoid(3), sigmoid(2)])
  })

  it("lets the bias select, never weigh", () => {
    const { chosen, weights } = routed(experts, logits, [1, 0, 0, 0, 0, 1])
    expect(chosen).toEqual([0, 5])
    near(weights, [0.5, sigmoid(-2)])
  })

  it("normalises first, scales afterwards", () => {
    const total = sigmoid(3) + sigmoid(2)
    near(routed({ ...experts, normalise: true, scale: 1.8 }, logits).weights, [
      1.8 * sigmoid(3) / total,
      1.8 * sigmoid(2) / total
    ])
  })

  it("does not renormalise softmax weights", () => {
    const total = logits.reduce((sum, x) => sum + Math.exp(x), 0)
    near(routed({ ...experts, gating: "softmax" }, logits).weights, [Math.exp(3) / total, Math.exp(2) / total])
  })

  it("keeps to the best groups", () => {
    // groups [0 2 -1] [1 3 -2]: the sums of the two best are p(2) + p(0) and p(3) + p(1)
    expect(routed({ ...experts, groups: 2, groupsUsed: 1 }, logits).chosen).toEqual([4, 3])
    // three groups of two: [0 2] [-1 1] [3 -2]
    expect(routed({ ...experts, used: 3, groups: 3, groupsUsed: 2 }, logits).chosen).toEqual([4, 1, 0])
  })
})

describe("forward", () => {
  const model = load("c06")
  const prompt = model.runs[0]!.prompt

  it("gives the same logits in pieces, and for the last token alone", () => {
    const whole = new Session(model, "f32").feed(prompt)
    const session = new Session(model, "f32")
    const pieces = [...session.feed(prompt.slice(0, 5)), ...session.feed(prompt.slice(5))]
    // float sums over another number of positions round differently
    expect(difference(pieces, whole).max).toBeLessThan(1e-5)
    const last = new Session(model, "f32").feed(prompt, "last")
    expect(Array.from(last)).toEqual(Array.from(whole.subarray(-last.length)))
  })

  it("reads fused gate and up experts as the separate ones", () => {
    const tensors = new Map(rawTensors("c06"))
    const { count, width } = model.config.experts!
    const [gate, up] = [tensors.get("blk.1.ffn_gate_exps.weight")!, tensors.get("blk.1.ffn_up_exps.weight")!]
    const size = gate.bytes.length / count
    const bytes = new Uint8Array(2 * gate.bytes.length)
    for (let e = 0; e < count; e++) {
      bytes.set(gate.bytes.subarray(e * size, (e + 1) * size), 2 * e * size)
      bytes.set(up.bytes.subarray(e * size, (e + 1) * size), (2 * e + 1) * size)
    }
    tensors.delete(gate.name)
    tensors.delete(up.name)
    const name = "blk.1.ffn_gate_up_exps.weight"
    tensors.set(name, { name, type: gate.type, dims: [model.config.embedding, 2 * width, count], bytes })
    const fused = load("c06", tensors as RawTensors)
    expect(Array.from(new Session(fused, "f32").feed(prompt.slice(0, 3))))
      .toEqual(Array.from(new Session(model, "f32").feed(prompt.slice(0, 3))))
  })

  it("shares one body among blocks of a kind, and names its steps", () => {
    const { config, weights } = load("c05")
    const arena = new Arena()
    const startPos = variable(arena, "start_pos", 0, 63)
    const tokens = buffer(arena, 0, { shape: [1], dtype: DType.u32 })
    const cosSin = buffer(arena, 1, { shape: [1, config.rotated / 2, 2], dtype: DType.f32 })
    const layout = Cache.storage(config, { type: "f16", context: 64 })
    const caches = weights.blocks.map((_, i) => buffer(arena, 2 + i, layout))
    const buffers = weightBuffers(arena, weights, 100)
    const { effects, logits } = Model.forward({
      config,
      weights,
      buffers,
      tokens,
      startPos,
      caches,
      cosSin,
      rows: "all"
    })
    const out = buffer(arena, 1000, { shape: logits.shape, dtype: DType.f32 })
    const program = Program.make([Program.assign(out, logits), ...effects])
    const calls = toposort(program.sink).filter((n) => n.op === "CALL")
    expect(calls.length).toBe(27)
    // one dense body and one for all 26 blocks with experts, which here have the same tensor types
    expect(new Set(calls.map((c) => c.src[0])).size).toBe(2)
    const labels = new Set(toposort(calls[26]!.src[0]!).flatMap((n) => arena.labelOf(n)?.split("+") ?? []))
    for (
      const name of ["attn_norm", "attn_q", "attn_keys", "attn_output", "ffn_gate_exps", "ffn_down_shexp", "l_out"]
    ) {
      expect(labels, name).toContain(name)
    }
    expect(program.buffers.filter((b) => b.written).length).toBe(28)
    expect(program.vars).toEqual([{ name: "start_pos", min: 0, max: 63 }])
  })
})
