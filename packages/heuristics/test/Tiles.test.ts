import { assert, describe, expect, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"
import { Arena } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, iota, type Tensor, variable } from "@tg/tensor/Tensor"
import { choose } from "../src/Heuristics.ts"
import { tokenLoop } from "../src/Tiles.ts"
import * as Kernels from "./support/kernels.ts"

const { h200, webgpuDefault } = DeviceProfile

/** The only kernel over `x [K, T]`, `w [N, K]`, T = 16 tiles; the result is stored as `[.., T]`. */
const tiled = (rows: number, columns: number, compute: (x: Tensor, w: Tensor) => Tensor): UOp => {
  const arena = new Arena()
  const tokens = variable(arena, "tiles", 1, 32).mul(16)
  const x = buffer(arena, 1, { shape: [columns, tokens.node], dtype: DType.f32 })
  const w = buffer(arena, 2, { shape: [rows, columns], dtype: DType.f32 })
  const value = compute(x, w)
  const out = buffer(arena, 0, { shape: value.shape, dtype: DType.f32 })
  const [kernel, ...others] = Kernels.kernelsOfProgram(Program.make([Program.assign(out, value)]).sink)
  assert.lengthOf(others, 0)
  return kernel!
}

const product = (rows: number, columns: number): UOp =>
  tiled(rows, columns, (x, w) => Nn.linear(x.transpose(), w).transpose())

/** Bytes times 4-bit quants, two of a row's to a byte. */
const packed = (sums: 1 | 2, tile = 16, stored: "features" | "tokens" = "features"): UOp => {
  const arena = new Arena()
  const tokens = variable(arena, "tiles", 1, 32).mul(tile)
  const records = buffer(arena, 1, { shape: [64, Int8.recordWords, tokens.node], dtype: DType.u32 }).permute([
    2,
    0,
    1
  ])
  const half = iota(arena, 2).cast(DType.u32).mul(4).reshape([2, 1])
  const values = Array.from({ length: sums }, (_, i) => {
    const quants = buffer(arena, 2 + 2 * i, { shape: [512, 64, 1, 4], dtype: DType.u32 })
    const scale = buffer(arena, 3 + 2 * i, { shape: [512, 64, 1], dtype: DType.f32 })
    const words = quants.shr(half).and(0x0f0f0f0f)
    return Int8.contract(records, { words, scale, zero: 8, minimum: undefined })
  })
  const made = values.reduce((a, b) => a.mul(b))
  const value = stored === "features" ? made.transpose() : made
  const out = buffer(arena, 0, { shape: value.shape, dtype: DType.f32 })
  const [kernel, ...others] = Kernels.kernelsOfProgram(Program.make([Program.assign(out, value)]).sink)
  assert.lengthOf(others, 0)
  return kernel!
}

describe("Tiles", () => {
  const table = (kernel: UOp): string =>
    `\n${[webgpuDefault, h200].map((p) => `${p.name}: ${choose(kernel, p).map(Opt.print).join(", ")}`).join("\n")}\n`

  it("gives a thread tokens and rows of a product", () =>
    expect(table(product(6144, 2048))).toMatchInlineSnapshot(`
      "
      webgpu-default: UPCAST(r2, 4), UPCAST(r0, 2), LOCAL(r0, 128), UNROLL(r3, 4)
      h200: UPCAST(r2, 4), UPCAST(r0, 4), LOCAL(r2, 4), LOCAL(r0, 32), UNROLL(r3, 4)
      "
    `))

  it("shares the sums of a product with few rows among threads", () =>
    expect(table(product(64, 2048))).toMatchInlineSnapshot(`
      "
      webgpu-default: UPCAST(r2, 4), UPCAST(r0, 2), LOCAL(r0, 32), LOCAL(r2, 4), UNROLL(r3, 4)
      h200: UPCAST(r2, 4), UPCAST(r0, 4), GROUP(r3, 32), LOCAL(r2, 4), UNROLL(r3, 4)
      "
    `))

  it("keeps as many results where a row has two sums", () =>
    expect(table(tiled(6144, 2048, (x, w) => {
      const [a, b] = [w, w.add(1)].map((y) => Nn.linear(x.transpose(), y))
      return a!.silu().mul(b!).transpose()
    }))).toMatchInlineSnapshot(`
      "
      webgpu-default: UPCAST(r2, 4), LOCAL(r0, 128), UNROLL(r3, 4)
      h200: UPCAST(r2, 4), UPCAST(r0, 2), LOCAL(r2, 4), LOCAL(r0, 32), UNROLL(r3, 4)
      "
    `))

  it("keeps no sum of a block in a loop where bytes are multiplied", () => {
    const arena = new Arena()
    const tokens = variable(arena, "tiles", 1, 32).mul(16)
    const [rows, blocks] = [2048, 64]
    const x = buffer(arena, 1, { shape: [blocks * Int8.recordWords, tokens.node], dtype: DType.u32 }).transpose()
    const words = buffer(arena, 2, { shape: [rows, blocks, 2, 4], dtype: DType.u32 })
    const scale = buffer(arena, 3, { shape: [rows, blocks, 1], dtype: DType.f32 })
    const records = x.reshape([tokens.node, blocks, Int8.recordWords])
    const value = Int8.contract(records, { words, scale, zero: 0, minimum: undefined }).transpose()
    const out = buffer(arena, 0, { shape: value.shape, dtype: DType.f32 })
    const [kernel] = Kernels.kernelsOfProgram(Program.make([Program.assign(out, value)]).sink)
    expect(table(kernel!)).toMatchInlineSnapshot(`
      "
      webgpu-default: UPCAST(r2, 4), LOCAL(r0, 128), UNROLL(r4, 4)
      h200: UPCAST(r2, 4), UPCAST(r2, 2), UPCAST(r0, 4), GROUP(r5, 2), LOCAL(r2, 2), LOCAL(r0, 32), UNROLL(r4, 4), UNROLL(r3, 2)
      "
    `)
  })

  it("spreads the sum over the features of a token over many threads", () =>
    expect(table(tiled(1, 2048, (x) => x.mul(x).sum({ axis: 0, keepDims: true })))).toMatchInlineSnapshot(`
      "
      webgpu-default: UPCAST(r1, 4), GROUP(r2, 64), LOCAL(r1, 4), UNROLL(r2, 4)
      h200: UPCAST(r1, 4), GROUP(r2, 256), LOCAL(r1, 4), UNROLL(r2, 4)
      "
    `))

  it("puts neighbouring tokens and features into one workgroup", () =>
    expect(table(tiled(1, 2048, (x) => x.silu()))).toMatchInlineSnapshot(`
      "
      webgpu-default: UPCAST(r2, 4), LOCAL(r2, 4), LOCAL(r0, 32)
      h200: UPCAST(r2, 4), LOCAL(r2, 4), LOCAL(r0, 32)
      "
    `))

  it("puts rows of tokens into one workgroup where they are written token by token", () =>
    expect(table(tiled(1, 2048, (x) => x.transpose()))).toMatchInlineSnapshot(`
      "
      webgpu-default: LOCAL(r2, 128)
      h200: LOCAL(r2, 128)
      "
    `))

  it("computes what is stored token by token, as rows of a cache are, in the tiles that it reads", () =>
    expect(table(packed(1, 16, "tokens"))).toMatchInlineSnapshot(`
      "
      webgpu-default: UPCAST(r1, 4), LOCAL(r2, 128), UNROLL(r4, 4)
      h200: UPCAST(r1, 4), UPCAST(r1, 2), UPCAST(r2, 4), GROUP(r5, 8), LOCAL(r1, 2), LOCAL(r2, 16), UNROLL(r4, 4), UNROLL(r3, 2)
      "
    `))

  it("leaves a workgroup few rows where many threads share each of their sums", () => {
    const fewer = { ...h200, saturatingThreads: h200.saturatingThreads / 2 }
    expect(choose(product(64, 2048), fewer).map(Opt.print).join(", ")).toMatchInlineSnapshot(
      `"UPCAST(r2, 4), UPCAST(r0, 4), GROUP(r3, 16), LOCAL(r2, 4), LOCAL(r0, 4), UNROLL(r3, 4)"`
    )
  })

  it("is not asked where the number of tokens is known, or no multiple of a tile", () => {
    for (const kernel of [Kernels.matvec(256, 1024), Kernels.elementwise(64, 64), Kernels.symbolicSum(16)]) {
      assert.isUndefined(tokenLoop(kernel))
    }
  })
})

describe("Tiles on a CPU", () => {
  const opts = (kernel: UOp): string => choose(kernel, DeviceProfile.wasm).map(Opt.print).join(", ")
  it("gives a thread a tile of tokens and two sums, with straight code for what a word holds", () =>
    expect(`\n${[1, 2].map((sums) => opts(packed(sums as 1 | 2))).join("\n")}\n`).toMatchInlineSnapshot(`
      "
      UPCAST(r2, 4), UPCAST(r2, 4), UPCAST(r0, 2), UNROLL(r3, 2)
      UPCAST(r2, 4), UPCAST(r2, 4), UNROLL(r3, 2)
      "
    `))

  it("computes values of a cache's positions in the same tiles", () =>
    expect(opts(packed(1, 64))).toBe(opts(packed(1))))

  it("computes what is stored token by token, as rows of a cache are, in the tiles that it reads", () =>
    expect(opts(packed(1, 16, "tokens"))).toMatchInlineSnapshot(
      `"UPCAST(r1, 4), UPCAST(r1, 4), UPCAST(r2, 2), UNROLL(r3, 2)"`
    ))

  it("unpacks neighbours together, of which vectors serve fewer tokens", () =>
    expect(opts(tiled(2048, 2048, (x, w) => Nn.linear(x.transpose(), w.transpose()).transpose())))
      .toMatchInlineSnapshot(`"UPCAST(r2, 4), UPCAST(r2, 2), UPCAST(r0, 4), UNROLL(r3, 4)"`))

  it("computes the words of a block's record in one thread, which reads the block once", () => {
    const kernel = tiled(1, 2048, (x) => Int8.quantise(x.transpose()).permute([1, 2, 0]).bitcast(DType.f32))
    expect(opts(kernel)).toMatchInlineSnapshot(`"UPCAST(r3, 4), UPCAST(r1, 12), UNROLL(r6, 4), UNROLL(r9, 4)"`)
  })
})
