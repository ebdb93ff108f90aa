import { h200, wasm } from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { assign, call, make } from "@tg/tensor/Program"
import { buffer, variable } from "@tg/tensor/Tensor"
import { describe, expect, it } from "vitest"
import { estimateOn } from "./support/estimates.ts"

/** The estimate of a program on an H200. */
const estimate = (sink: UOp) => estimateOn(sink, h200)

const f32 = (arena: Arena, id: number, shape: ReadonlyArray<number>) => buffer(arena, id, { shape, dtype: DType.f32 })

describe("estimate", () => {
  it("counts each byte that a matrix product reads and writes once", () => {
    const arena = new Arena()
    const [matrix, x, y] = [f32(arena, 0, [64, 256]), f32(arena, 1, [256]), f32(arena, 2, [64])]
    const { sink } = make([assign(y, matrix.mul(x).sum(-1))])
    const [launch, ...more] = estimate(sink).launches({})
    expect(more).toEqual([])
    const bytes = 4 * (64 * 256 + 256 + 64)
    expect(launch!.bytes).toBe(bytes)
    // a launch, what every kernel waits for, and the bytes; a CPU has no costs but the first and the last
    expect(launch!.micros).toBeGreaterThan(h200.dispatchMicros + bytes / h200.bytesPerMicro)
    expect(estimateOn(sink, wasm).launches({})[0]!.micros).toBeCloseTo(
      wasm.dispatchMicros + bytes / wasm.bytesPerMicro,
      12
    )
    // every row has threads of its own
    expect(launch!.workgroups * launch!.threads).toBeGreaterThanOrEqual(64)
  })

  it("adds up what joined kernels move and launch", () => {
    const arena = new Arena()
    const [first, second, x] = [f32(arena, 0, [64, 256]), f32(arena, 1, [32, 256]), f32(arena, 2, [256])]
    const products = [first, second].map((matrix, i) => assign(f32(arena, 3 + i, [64 >> i]), matrix.mul(x).sum(-1)))
    const launchesOf = (effects: typeof products) => estimate(make(effects).sink).launches({})
    const [launch, ...more] = launchesOf(products)
    expect(more).toEqual([])
    // the vector is read by both, and counted once
    expect(launch!.bytes).toBe(4 * (64 * 256 + 32 * 256 + 256 + 64 + 32))
    const alone = products.map((product) => launchesOf([product])[0]!)
    expect(launch!.workgroups).toBe(alone[0]!.workgroups + alone[1]!.workgroups)
    expect(launch!.threads).toBe(Math.max(alone[0]!.threads, alone[1]!.threads))
    expect(launch!.step.name).toBe(alone.map(({ step }) => step.name).join("+"))
  })

  it("counts what symbolic sizes and chosen rows leave", () => {
    const arena = new Arena()
    const n = variable(arena, "n", 1, 128)
    const table = f32(arena, 0, [1000, 32])
    const chosen = buffer(arena, 1, { shape: [128], dtype: DType.u32 }).slice(0, 0, n)
    const out = f32(arena, 2, [128, 32]).slice(0, 0, n)
    const { sink } = make([assign(out, table.gather(chosen))])
    const { launches } = estimate(sink)
    for (const rows of [1, 5, 128]) expect(launches({ n: rows })[0]!.bytes).toBe(4 * rows * (32 + 1 + 32))
  })

  it("costs a loop of unknown length what it runs, beside its bytes", () => {
    const arena = new Arena()
    const n = variable(arena, "n", 1, 2 ** 16)
    const rows = f32(arena, 0, [2 ** 16]).slice(0, 0, n)
    const { sink } = make([assign(f32(arena, 1, [64]), rows.mul(f32(arena, 2, [64, 1])).sin().sum(-1))])
    const { launches } = estimate(sink)
    const busy = (rows: number): number => launches({ n: rows })[0]!.micros - launches({ n: 1 })[0]!.micros
    // 64 sines of each element are computed, and 4 bytes of it read
    expect(busy(2 ** 16) / busy(2 ** 14)).toBeCloseTo(4, 1)
    expect(busy(2 ** 16)).toBeGreaterThan(2 * 4 * 2 ** 16 / h200.bytesPerMicro)
  })

  it("tells which call a launch comes from, and looks at equal bodies once", () => {
    const arena = new Arena()
    const weights = [0, 1, 2].map((id) => f32(arena, id, [32, 32]))
    const x = weights.reduce((x, w, i) => {
      const [y] = call("layer", [x, w], (x, w) => [w!.mul(x!).sum(-1)])
      arena.label(y!.node.src[0]!, `blk.${i}`)
      return y!
    }, f32(arena, 3, [32]))
    const { sink } = make([assign(f32(arena, 4, [32]), x)])
    const launches = estimate(sink).launches({})
    expect(launches.map(({ step }) => step.site).filter((site) => site !== undefined)).toEqual([
      "blk.0",
      "blk.1",
      "blk.2"
    ])
    const bodies = new Set(
      launches.map(({ step }) => step.site === undefined ? undefined : "ast" in step ? step.ast : step)
    )
    bodies.delete(undefined)
    expect(bodies.size).toBe(1)
  })
})
