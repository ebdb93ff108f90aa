import { assert, describe, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Heuristics from "@tg/heuristics/Heuristics"
import type { RandomProgram } from "@tg/tensor/Random"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, iota, type Tensor, variable } from "@tg/tensor/Tensor"
import { difference, runSchedule, runTensor, scheduled, stages } from "./support/stages.ts"

const tile = 16
const most = 3

/** Whole numbers, whose sums are exact in any order. */
const numbers = (length: number, seed: number): Float32Array =>
  Float32Array.from({ length }, (_, i) => (Math.imul(i + 1, 0x9e3779b1 ^ seed) >>> 29) - 4)

/** `out [N, T]` from `x [K, T]` with T = 16 tiles, of which there are two. */
const tiled = (
  rows: number,
  columns: number,
  compute: (x: Tensor, words: Tensor) => Tensor
): RandomProgram => {
  const arena = new Arena()
  const tokens = variable(arena, "tiles", 1, most).mul(tile)
  const capacity = (n: number): ReadonlyArray<number> => [n, most * tile]
  const x = buffer(arena, 1, { shape: [columns, tokens.node], dtype: DType.f32 })
  const words = buffer(arena, 2, { shape: [rows, columns / 8], dtype: DType.u32 })
  const value = compute(x, words)
  const out = buffer(arena, 0, { shape: value.shape, dtype: DType.f32 })
  const n = Number(value.dim(0))
  return {
    steps: [],
    program: Program.make([Program.assign(out, value)]),
    inputs: [
      {
        id: 1,
        dtype: DType.f32,
        shape: [columns, 2 * tile],
        capacity: capacity(columns),
        data: numbers(columns * most * tile, 1)
      },
      {
        id: 2,
        dtype: DType.u32,
        shape: [rows, columns / 8],
        capacity: [rows, columns / 8],
        data: Uint32Array.from({ length: rows * columns / 8 }, (_, i) => Math.imul(i + 3, 0x85ebca6b) >>> 0)
      }
    ],
    outputs: [{ id: 0, dtype: DType.f32, shape: [n, 2 * tile], capacity: capacity(n), tolerance: 0 }],
    vars: { tiles: 2 }
  }
}

/** Quants of 4 bits, eight to a word, four neighbours in four words: `[N, K / 32, 8, 4]`. */
const unpacked = (words: Tensor): Tensor => {
  const [rows, perRow] = words.shape as [number, number]
  const shifts = iota(words.arena, 8).cast(DType.u32).mul(4).reshape([8, 1])
  return words.reshape([rows, perRow / 4, 1, 4]).shr(shifts).and(15).cast(DType.f32).sub(8)
}

/** `[T, N]` as it is stored. */
const stored = (x: Tensor): Tensor => x.transpose().contiguous()

const programs: Readonly<Record<string, RandomProgram>> = {
  "a product with packed weights": tiled(
    24,
    128,
    (x, words) => stored(Nn.contract(x.transpose(), unpacked(words), 3).add(1))
  ),
  "two products, of which one gates the other": tiled(16, 64, (x, words) => {
    const weight = unpacked(words)
    const both = Nn.contract(x.transpose(), weight, 3)
    return stored(both.maximum(0).mul(Nn.contract(x.transpose(), weight.add(1), 3)))
  }),
  "a sum over the features of each token": tiled(8, 256, (x) => x.sum({ axis: 0, keepDims: true })),
  "something done to each element": tiled(24, 24, (x) => x.maximum(1).mul(3))
}

const large = { ...DeviceProfile.webgpuDefault, saturatingThreads: 2 ** 17, registerBytes: 2 ** 18 }
const profiles: Readonly<Record<string, DeviceProfile.DeviceProfile>> = {
  "large tiles": large,
  "large tiles, subgroups of 8": { ...large, subgroupSize: 8 },
  "small tiles": DeviceProfile.webgpuDefault,
  "a processor": DeviceProfile.wasm
}

describe("kernels over tiles of tokens", () => {
  for (const [name, program] of Object.entries(programs)) {
    const want = runTensor(program)
    for (const [setting, profile] of Object.entries(profiles)) {
      it(`${name}: the same numbers with ${setting}`, () => {
        const options = {
          choose: (kernel: UOp) => Heuristics.choose(kernel, profile),
          hasGrid: profile.kind === "gpu",
          ...(profile.subgroupSize === undefined ? {} : { subgroupSize: profile.subgroupSize })
        }
        for (const stage of [stages.kernel, stages.opted, stages.expanded, stages.linear]) {
          const got = runSchedule(program, scheduled(program), (step, args, vars) => stage!(options)(step, args, vars))
          assert.isUndefined(difference(program, want, got))
        }
      })
    }
  }
})
