/** The prediction block as the reference runtime computes it: `mtp01` of the oracle. */
import { readFileSync } from "node:fs"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Gguf from "@tg/gguf/Gguf"
import { weightBuffers } from "@tg/model-parts/Decoder"
import type * as Family from "@tg/model-parts/Family"
import * as Order from "@tg/model-parts/Order"
import * as Prediction from "@tg/model-parts/Prediction"
import { deepseek2 } from "@tg/models-deepseek2/Family"
import { buffer, scalar, type Tensor } from "@tg/tensor/Tensor"
import { Result } from "effect"
import { describe, expect, it } from "vitest"
import { difference, laidOut } from "./oracle.ts"

const folder = new URL("../../../test/vectors/oracle-families/", import.meta.url)
const read = (name: string): Uint8Array => new Uint8Array(readFileSync(new URL(name, folder)))
const floats = (name: string): Float32Array => new Float32Array(read(name).slice().buffer)

interface Vectors {
  readonly prompt: ReadonlyArray<number>
  readonly next: number
  readonly drafts: ReadonlyArray<number>
  readonly argmax: ReadonlyArray<number>
}

const vectors = JSON.parse(new TextDecoder().decode(read("mtp01.json"))) as Vectors
const bytes = read("mtp01.gguf")
const file = Result.getOrThrow(Gguf.fromBytes("mtp01", bytes))
const model = Result.getOrThrow(deepseek2.modelOf(file))
const block = Result.getOrThrow(model.prediction!)
const { embedding, vocabulary } = model.config
const words = new Map(
  [...model.weights.all, ...block.weights].map(({ layout, name }) => {
    const { bytes: size, offset } = file.tensorsByName.get(name)!
    return [name, laidOut(layout, bytes.subarray(offset, offset + size))] as const
  })
)
const context = 64

/** Storage of the evaluator, by buffer. */
const storage = ({ dtype, shape }: Pick<Family.Storage, "dtype" | "shape">): Float32Array | Uint32Array => {
  const size = shape.reduce<number>((n, d) => n * Number(d), 1)
  return dtype === DType.f32 ? new Float32Array(size) : new Uint32Array(size)
}

/** What the host gives a step: tokens and angles behind `start` others. */
const givenTo = (arena: Arena, tokens: ReadonlyArray<number>, start: number) => {
  const ids = buffer(arena, 0, { shape: [tokens.length], dtype: DType.u32 })
  const inputs = model.inputs.map(({ row }, i) =>
    buffer(arena, 1 + i, { shape: [tokens.length, ...row], dtype: DType.f32 })
  )
  const values = model.inputsAt(tokens.map((_, i) => start + i), new Map())
  const data: ReadonlyArray<readonly [Tensor, Float32Array | Uint32Array]> = [
    [ids, Uint32Array.from(tokens)],
    ...inputs.map((input, i) => [input, values[i]!] as const)
  ]
  return { ids, inputs, data }
}

const weightsOf = (arena: Arena, refs: Parameters<typeof weightBuffers>[1]["all"]) => {
  const buffers = weightBuffers(arena, { all: refs }, 100)
  return { buffers, data: refs.map((ref) => [buffers(ref), words.get(ref.name)!] as const) }
}

const run = (roots: ReadonlyArray<Tensor>, data: ReadonlyArray<readonly [Tensor, Float32Array | Uint32Array]>) =>
  evaluate(roots.map(({ node }) => node), {
    buffers: new Map<UOp, Float32Array | Uint32Array>(data.map(([{ node }, values]) => [node, values]))
  })

/** The model with states, and the block with a cache of its own: each is stepped by itself. */
const session = (type: "f32" | "f16") => {
  const layouts = model.caches({ type, context })
  const caches = layouts.map(storage)
  const own = block.cache({ type, context })
  const cache = storage(own)
  const statesLayout = Prediction.storage(embedding, { positions: context, type })
  const states = storage(statesLayout)
  const trunk = (tokens: ReadonlyArray<number>, start: number): Float32Array => {
    const arena = new Arena()
    const given = givenTo(arena, tokens, start)
    const weights = weightsOf(arena, model.weights.all)
    const stored = [...layouts, statesLayout].map((layout, i) => buffer(arena, 10 + i, layout))
    const { effects, logits } = model.forward({
      buffers: weights.buffers,
      tokens: given.ids,
      inputs: given.inputs,
      startPos: scalar(arena, start),
      caches: stored.slice(0, -1),
      states: stored.at(-1)!,
      rows: "all"
    })
    const held = [...caches, states].map((values, i) => [stored[i]!, values] as const)
    return run([logits, ...effects], [...given.data, ...weights.data, ...held])[0]!.data as Float32Array
  }
  /** The block, behind states of the model, or behind a row of its own. */
  const draft = (tokens: ReadonlyArray<number>, start: number, row?: Float32Array, order: Order.Order = "tokens") => {
    const arena = new Arena()
    const whole = order === "tokens" ? tokens.length : Order.wholeTiles(tokens.length)
    const given = givenTo(arena, Array.from({ length: whole }, (_, i) => tokens[i] ?? tokens.at(-1)!), start)
    const weights = weightsOf(arena, block.weights)
    const stored = buffer(arena, 10, own)
    const rows = buffer(arena, 11, statesLayout)
    const behind = buffer(arena, 12, { shape: [1, embedding], dtype: DType.f32 })
    const first = scalar(arena, start)
    const { effects, hidden, logits } = block.forward({
      buffers: weights.buffers,
      tokens: given.ids,
      inputs: given.inputs,
      startPos: first,
      cache: stored,
      hidden: row === undefined ? Prediction.before(rows, { embedding, first, length: whole }) : behind,
      rows: order === "tokens" ? "all" : "last",
      batch: order === "tokens" ? undefined : {
        tiles: scalar(arena, whole / Order.tileTokens),
        count: scalar(arena, tokens.length),
        keys: scalar(arena, context)
      }
    })
    const held = [[stored, cache], [rows, states], [behind, row ?? new Float32Array(embedding)]] as const
    const [z, h] = run([logits, hidden, ...effects], [...given.data, ...weights.data, ...held])
    return { logits: z!.data as Float32Array, hidden: h!.data as Float32Array }
  }
  return { trunk, draft }
}

const argmax = (x: Float32Array): number => x.indexOf(x.reduce((a, b) => Math.max(a, b), -Infinity))
const rowsOf = (all: Float32Array, width: number, first: number, count = 1) =>
  all.subarray(first * width, (first + count) * width)

/** As for the models of the oracle. */
const limits = { f32: { rms: 5e-4, max: 5e-3 }, f16: { rms: 5e-3, max: 3e-2 } }

describe("the prediction block of mtp01", () => {
  const { drafts, next, prompt } = vectors
  const T = prompt.length
  const expected = floats("mtp01.mtp_logits.bin")
  const hidden = floats("mtp01.mtp_hidden.bin")

  it.each(["f32", "f16"] as const)("reads a prompt and drafts as the reference, %s cache", (type) => {
    const { draft, trunk } = session(type)
    const logits = trunk(prompt, 0)
    const near = (found: Float32Array, wanted: Float32Array) => {
      const { max, rms } = difference(found, wanted)
      expect(rms).toBeLessThan(limits[type].rms)
      expect(max).toBeLessThan(limits[type].max)
    }
    near(logits, rowsOf(floats("mtp01.trunk_logits.bin"), vocabulary, 0, T))
    expect(argmax(rowsOf(logits, vocabulary, T - 1))).toBe(next)
    // in two pieces, of which the second begins with a state of the first
    const read = [draft(prompt.slice(0, 5), 0), draft(prompt.slice(5), 5)]
    near(Float32Array.from(read.flatMap((each) => [...each.logits])), rowsOf(expected, vocabulary, 0, T))
    near(Float32Array.from(read.flatMap((each) => [...each.hidden])), rowsOf(hidden, embedding, 0, T))
    let made = draft([next], T)
    for (const [i, id] of drafts.entries()) {
      near(made.logits, rowsOf(expected, vocabulary, T + i))
      near(made.hidden, rowsOf(hidden, embedding, T + i))
      expect(argmax(made.logits)).toBe(id)
      if (i < drafts.length - 1) made = draft([id], T + 1 + i, made.hidden)
    }
  })

  it("reads a batch in tiles the same", () => {
    const { draft, trunk } = session("f32")
    trunk(prompt, 0)
    const { logits } = draft([...prompt, next], 0, undefined, "features")
    const { max, rms } = difference(logits, rowsOf(expected, vocabulary, T))
    expect(rms).toBeLessThan(limits.f32.rms)
    expect(max).toBeLessThan(limits.f32.max)
  })
})
