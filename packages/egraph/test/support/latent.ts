/** Attention over latents as models state it, for matrix units: a program, and its values. */
import { type DeviceProfile, h200 } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Shape from "@tg/core-uop/Shape"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, iota, type Tensor, variable } from "@tg/tensor/Tensor"
import { difference } from "./programs.ts"

export const matrix: DeviceProfile = { ...h200, matrixUnits: true }

/** Whether a program rounds floats to halves. */
export const areHalves = (sink: UOp): boolean =>
  toposort(sink).some(({ op, src }) => op === "HALF_TO_FLOAT" && src[0]!.op === "FLOAT_TO_HALF")

export interface Sizes {
  readonly tokens?: number
  readonly heads?: number
  readonly context?: number
  readonly cache?: "f16" | "f32"
  /** Whether something else in the program is rounded to bytes. */
  readonly activations?: "int8" | "float"
  /** Whether scores and weights are stored, as models do of many tokens. */
  readonly isBatch?: boolean
  /** What the scale of scores is written at; all of them are the same value. */
  readonly scaled?: "scores" | "keys" | "query"
  /** Positions in front of the step, at least. */
  readonly behind?: number
}

const width = 32
const depth = 48

/** Attention over latents as models state it: rows of `[latent | rotated]`, shared by heads; whole pages up to the last token's. */
export const latent = (sizes: Sizes = {}) => {
  const { activations = "int8", cache = "f16", context = 576, heads = 8, isBatch = false, tokens = 4 } = sizes
  const { behind = 0, scaled = "scores" } = sizes
  const at = (place: Sizes["scaled"], x: Tensor): Tensor => place === scaled ? x.mul(depth ** -0.5) : x
  const shared = (x: Tensor): Tensor => isBatch ? x.contiguous() : x
  const arena = new Arena()
  const leaf = (id: number, shape: ReadonlyArray<number>, dtype = DType.f32) => buffer(arena, id, { shape, dtype })
  const start = variable(arena, "start", behind, context - tokens)
  const [q, out] = [leaf(0, [tokens, heads, depth]), leaf(1, [tokens, heads, width])]
  const isHalf = cache === "f16"
  const stored = isHalf ? leaf(2, [context, depth], DType.u32) : leaf(2, [context, depth])
  const own = leaf(3, [tokens, depth])
  const write = Program.assign(stored.slice(0, start, tokens), isHalf ? own.floatToHalf() : own)
  const positions = start.add(tokens - 1).floordiv(64).add(1).mul(64)
  const words = Program.after(stored, [write]).slice(0, 0, positions)
  const rows = isHalf ? words.halfToFloat() : words
  const scores = at("scores", at("query", q.contiguous().unsqueeze(2)).mul(at("keys", rows)).sum(-1))
  const place = iota(arena, tokens).add(start).reshape([tokens, 1, 1])
  const masked = shared(iota(arena, positions).le(place).where(scores, -1e30))
  const mix = shared(Nn.softmax(masked)).unsqueeze(-1).mul(rows.slice(-1, 0, width)).sum(-2).label("attn_mix")
  const bytes = leaf(4, [4], DType.u32)
  const dot = leaf(5, [4], DType.i32)
  const others = activations === "int8"
    ? [Program.assign(dot, bytes.dot4I8(bytes))]
    : []
  return {
    mix: mix.node,
    out: out.node,
    sink: Program.make([Program.assign(out, mix), ...others]).sink,
    leaves: [q, out, stored, own, bytes, dot]
  }
}

const halfOf = (i: number): number => 0x3000 + (i * 7919) % 0xc00 + (i % 2) * 0x8000

export const contents = (leaves: ReadonlyArray<Tensor>): ReadonlyMap<UOp, Float32Array | Uint32Array | Int32Array> =>
  new Map(
    leaves.map(({ dtype, node, shape }, leaf) => {
      const length = Shape.maxElements(shape)
      const values = Array.from({ length }, (_, i) => dtype === DType.f32 ? Math.sin(i * 0.37 + leaf) : halfOf(i))
      return [
        node,
        dtype === DType.f32
          ? Float32Array.from(values)
          : dtype === DType.u32
          ? Uint32Array.from(values)
          : Int32Array.from(values)
      ]
    })
  )

export const valuesOf = (
  { leaves, out }: ReturnType<typeof latent>,
  sink: UOp,
  start: number
): ReadonlyArray<number> => {
  const buffers = contents(leaves)
  evaluate([sink], { buffers, vars: { start } })
  return Array.from(buffers.get(out)!)
}

/** How far a program's values are from those as it was written, behind so many positions. */
export const apartBehind = (written: ReturnType<typeof latent>, sink: UOp, start: number): number =>
  difference(valuesOf(written, written.sink, start), valuesOf(written, sink, start))

/**
 * Each operand is off by 2^-11 of itself at most: scores, of magnitude up to 2 here, by as much of the sum of their terms' magnitudes, weights by
 * as much again; the largest value of a mix is below 1.
 */
export const ofHalves = 2 ** -8
