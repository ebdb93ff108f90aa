import { assert, describe, expect, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { Arena, transfer } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import { randomProgram } from "@tg/tensor/Random"
import { Effect, Layer } from "effect"
import { choose, Heuristics } from "../src/Heuristics.ts"
import { hasManyRegisters } from "../src/Kinds.ts"
import { loadsInFlight } from "../src/Occupancy.ts"
import * as Kernels from "./support/kernels.ts"

const { h200, wasm, webgpuDefault } = DeviceProfile

const choices = (kernel: UOp, profile: DeviceProfile.DeviceProfile): string =>
  choose(kernel, profile).map(Opt.print).join(", ")

/** Devices that differ in what a list of opts may not exceed. */
const profiles: ReadonlyArray<DeviceProfile.DeviceProfile> = [
  wasm,
  webgpuDefault,
  h200,
  { ...h200, name: "16 KiB of workgroup memory", maxWorkgroupBytes: 16384 },
  { ...h200, name: "no subgroups", subgroupSize: undefined },
  { ...h200, name: "subgroups of 8", subgroupSize: 8 },
  { ...webgpuDefault, name: "no workgroup memory", maxWorkgroupBytes: 0 },
  { ...webgpuDefault, name: "1 KiB of workgroup memory", maxWorkgroupBytes: 1024 },
  { ...webgpuDefault, name: "16 threads", maxWorkgroupThreads: 16 },
  { ...webgpuDefault, name: "10 threads", maxWorkgroupThreads: 10 },
  { ...webgpuDefault, name: "one thread", maxWorkgroupThreads: 1 }
]

describe("Heuristics", () => {
  /** The choices for the profiles, one line each. */
  const table = (kernel: UOp): string =>
    `\n${[wasm, webgpuDefault, h200].map((p) => `${p.name}: ${choices(kernel, p)}`).join("\n")}\n`

  it("asks for quantities of a device, not for its name", () => {
    const nameless = { ...h200, name: "unknown gpu", adapter: undefined }
    const programs = Array.from(
      { length: 20 },
      (_, seed) => Kernels.kernelsOfProgram(randomProgram(seed, 14).program.sink)
    ).flat()
    const kernels = [Kernels.dequantMatvec(3072, 2048), Kernels.roundedMatvec(3072, 2048), ...programs]
    for (const kernel of kernels) assert.strictEqual(choices(kernel, nameless), choices(kernel, h200))
  })

  it("shares rows further where threads that saturate the device are many, whatever else it is", () => {
    const kernel = Kernels.matvec(2048, 2048)
    const groups = (profile: DeviceProfile.DeviceProfile) => choices(kernel, profile).match(/GROUP\(r1, (\d+)\)/)?.[1]
    const wide = { ...webgpuDefault, saturatingThreads: h200.saturatingThreads, subgroupSize: 32 }
    assert.strictEqual(groups(wide), groups({ ...h200, maxWorkgroupThreads: wide.maxWorkgroupThreads }))
    assert.notStrictEqual(groups({ ...wide, saturatingThreads: webgpuDefault.saturatingThreads }), groups(wide))
  })

  it("lets heads share what they read of a cache, on a CPU", () => {
    expect([Kernels.mixed, Kernels.scored].map((kernel) => choices(kernel(16, 64), wasm))).toMatchInlineSnapshot(`
      [
        "UPCAST(r3, 4), UPCAST(r2, 2), UPCAST(r0, 4)",
        "UNROLL(r4, 4), SPREAD(r0, 8), UNROLL(r3, 2), UNROLL(r2, 2)",
      ]
    `)
    // four sums of two vectors; without other heads there is nothing to share
    expect([1, 3].map((heads) => choices(Kernels.mixed(heads, 64), wasm))).toMatchInlineSnapshot(`
      [
        "UPCAST(r2, 4)",
        "UPCAST(r3, 4), UPCAST(r2, 2)",
      ]
    `)
  })

  it("computes exponentials in lanes, wherever they lie, on a CPU", () => {
    assert.deepStrictEqual([8, 3].map((heads) => choices(Kernels.exponentials(heads), wasm)), ["UPCAST(r0, 4)", ""])
  })

  it("has no more loads in flight than memory takes", () => {
    assert.deepStrictEqual([128, 512].map((threads) => loadsInFlight(h200, threads)), [16, 4])
    assert.deepStrictEqual([128, 512].map((threads) => loadsInFlight(webgpuDefault, threads)), [4, 1])
    assert.strictEqual(loadsInFlight({ ...h200, loadMicros: 0.4 }, 128), 8)
  })

  it("takes large tiles where a processor has registers for them", () => {
    assert.isTrue(hasManyRegisters(h200))
    assert.isFalse(hasManyRegisters({ ...h200, registerBytes: 2 ** 16 }))
    assert.isTrue(hasManyRegisters({ ...webgpuDefault, registerBytes: 2 ** 18 }))
  })

  it("chooses for a matvec with a dequantised weight", () =>
    expect(table(Kernels.dequantMatvec(2048, 2048))).toMatchInlineSnapshot(`
      "
      wasm: UNROLL(r3, 4), SPREAD(r0, 4), UNROLL(r3, 2), UNROLL(r2, 4)
      webgpu-default: UNROLL(r3, 4), GROUP(r1, 16), UPCAST(r0, 4), LOCAL(r0, 4)
      h200: UNROLL(r3, 4), GROUP(r1, 64), GROUP(r2, 2), UPCAST(r0, 4)
      "
    `))

  it("chooses for products of bytes that their workgroups round", () => {
    // as many threads for a row as its blocks can be divided among; of long rows two for each thread
    const shapes = [[5120, 768, 8, 1], [3072, 1536, 16, 1], [3072, 2048, 32, 2]] as const
    for (const [rows, columns, threads, perThread] of shapes) {
      const kernel = Kernels.roundedMatvec(rows, columns)
      const made = Postrange.apply("", kernel, choose(kernel, h200), h200) as UOp
      const product = made.src.at(-1)!
      const size = (axis: string): number =>
        Loops.ofEnd(product).filter((l) => l.axis === axis).reduce((n, l) => n * l.size, 1)
      assert.strictEqual(Math.max(...Loops.reductions(product).map(Loops.groupOf)), threads)
      assert.deepStrictEqual([size("LOCAL"), size("UPCAST")], [256 / threads, perThread])
      assert.strictEqual(Loops.threads(made), 256)
    }
  })

  it("chooses for a matvec", () =>
    expect(table(Kernels.matvec(256, 1024))).toMatchInlineSnapshot(`
      "
      wasm: UNROLL(r1, 4), SPREAD(r0, 4), UNROLL(r1, 2)
      webgpu-default: UNROLL(r1, 4), GROUP(r1, 16), UPCAST(r0, 2)
      h200: UNROLL(r1, 4), GROUP(r1, 64), LOCAL(r0, 2), UNROLL(r1, 4)
      "
    `))

  it("chooses for a matvec with rows enough to fill the device", () =>
    expect(table(Kernels.matvec(2 ** 18, 64))).toMatchInlineSnapshot(`
      "
      wasm: UNROLL(r1, 4), SPREAD(r0, 4), UNROLL(r1, 2)
      webgpu-default: UNROLL(r1, 4), GROUP(r1, 16), UPCAST(r0, 4), LOCAL(r0, 8)
      h200: UNROLL(r1, 4), GROUP(r1, 16), UPCAST(r0, 2), LOCAL(r0, 2)
      "
    `))

  it("chooses an odd number of threads for rows whose length has hardly a power of two in it", () =>
    expect(table(Kernels.matvec(2048, 4 * 171))).toMatchInlineSnapshot(`
      "
      wasm: UNROLL(r1, 4), SPREAD(r0, 4)
      webgpu-default: UNROLL(r1, 4), GROUP(r1, 9), UPCAST(r0, 4), LOCAL(r0, 4)
      h200: UNROLL(r1, 4), GROUP(r1, 19)
      "
    `))

  it("chooses several rows for the threads of a long one where they are many", () =>
    expect(table(Kernels.matvec(3072, 2048))).toMatchInlineSnapshot(`
      "
      wasm: UNROLL(r1, 4), SPREAD(r0, 4), UNROLL(r1, 2)
      webgpu-default: UNROLL(r1, 4), GROUP(r1, 16), UPCAST(r0, 4), LOCAL(r0, 6)
      h200: UNROLL(r1, 4), GROUP(r1, 128), UPCAST(r0, 4)
      "
    `))

  it("chooses for an elementwise kernel", () =>
    expect(table(Kernels.elementwise(64, 256))).toMatchInlineSnapshot(`
    "
    wasm: UPCAST(r1, 4)
    webgpu-default: UPCAST(r1, 4), LOCAL(r1, 64)
    h200: UPCAST(r1, 4), LOCAL(r1, 64)
    "
  `))

  it("chooses whole subgroups for elements", () =>
    expect(table(Kernels.elementwise(64, 384))).toMatchInlineSnapshot(`
    "
    wasm: UPCAST(r1, 4)
    webgpu-default: UPCAST(r1, 4), LOCAL(r1, 48)
    h200: UPCAST(r1, 4), LOCAL(r1, 32)
    "
  `))

  it("chooses for an elementwise kernel of odd sizes", () =>
    expect(table(Kernels.elementwise(63, 7))).toMatchInlineSnapshot(`
      "
      wasm: 
      webgpu-default: LOCAL(r1, 7), LOCAL(r0, 9)
      h200: LOCAL(r1, 7), LOCAL(r0, 9)
      "
    `))

  it("chooses lanes along the store of a transpose", () =>
    expect(table(Kernels.transpose(64, 32))).toMatchInlineSnapshot(`
      "
      wasm: UPCAST(r1, 4)
      webgpu-default: UPCAST(r1, 4), LOCAL(r1, 16)
      h200: UPCAST(r1, 4), LOCAL(r1, 16)
      "
    `))

  it("chooses lanes along the outputs of a sum over a symbolic axis", () =>
    expect(table(Kernels.symbolicSum(64))).toMatchInlineSnapshot(`
      "
      wasm: UPCAST(r0, 4)
      webgpu-default: UPCAST(r0, 4), LOCAL(r0, 8), GROUP(r1, 16)
      h200: UPCAST(r0, 4), LOCAL(r0, 16), GROUP(r1, 32)
      "
    `))

  it("chooses for the sum of a long vector", () =>
    expect(table(Kernels.sum(4096))).toMatchInlineSnapshot(`
      "
      wasm: UNROLL(r0, 4), UNROLL(r0, 2)
      webgpu-default: UNROLL(r0, 4), GROUP(r0, 16)
      h200: UNROLL(r0, 4), GROUP(r0, 256), UNROLL(r0, 4)
      "
    `))

  it("chooses for the sum of a prime length", () =>
    expect(table(Kernels.sum(1021))).toMatchInlineSnapshot(`
    "
    wasm: 
    webgpu-default: 
    h200: 
    "
  `))

  it("is legal for every kernel of random programs, on every profile", () => {
    let chosen = 0
    for (let seed = 0; seed < 60; seed++) {
      for (const kernel of Kernels.kernelsOfProgram(randomProgram(seed, 14).program.sink)) {
        for (const profile of profiles) {
          const opts = choose(kernel, profile)
          const result = Postrange.apply("k", kernel, opts, profile)
          if (result instanceof Postrange.IllegalOpt) assert.fail(`seed ${seed}, ${profile.name}: ${result.message}`)
          const loops = Loops.all(result)
          const size = (axis: string): number => loops.filter((l) => l.axis === axis).reduce((n, l) => n * l.size, 1)
          const groups = Loops.reductions(result).map((r) =>
            Loops.loopsOf(r).filter((l) => l.axis === "GROUP").reduce((n, l) => n * l.size, 1)
          )
          assert.isAtMost(size("LOCAL") * Math.max(1, ...groups), profile.maxWorkgroupThreads)
          chosen += opts.length
        }
      }
    }
    assert.isAbove(chosen, 1000)
  })

  it("shares a long reduction between threads, unless their partial results do not fit", () => {
    const kernel = Kernels.matvec(4, 4096)
    const groups = (maxWorkgroupBytes: number): number =>
      choose(kernel, { ...webgpuDefault, maxWorkgroupBytes }).filter((o) => o.kind === "GROUP").length
    assert.strictEqual(groups(16384), 1)
    assert.strictEqual(groups(4), 0)
  })

  it("is deterministic: the same list for the same kernel, in any arena", () => {
    for (let seed = 0; seed < 30; seed++) {
      for (const kernel of Kernels.kernelsOfProgram(randomProgram(seed, 14).program.sink)) {
        const copy = transfer(kernel, new Arena())
        for (const profile of [wasm, webgpuDefault]) {
          assert.strictEqual(choices(kernel, profile), choices(kernel, profile))
          assert.strictEqual(choices(kernel, profile), choices(copy, profile))
        }
      }
    }
  })

  describe("service", () => {
    const opts = Effect.gen(function*() {
      const heuristics = yield* Heuristics
      return (yield* heuristics.choose(Kernels.matvec(256, 1024))).map(Opt.print)
    })

    it.effect("chooses for the profile it is given", () =>
      Effect.gen(function*() {
        const forDevice = (profile: DeviceProfile.DeviceProfile) =>
          opts.pipe(Effect.provide(Heuristics.layer.pipe(Layer.provide(DeviceProfile.Profile.layer(profile)))))
        assert.deepStrictEqual(yield* forDevice(wasm), ["UNROLL(r1, 4)", "SPREAD(r0, 4)", "UNROLL(r1, 2)"])
        const onGpu = (yield* forDevice(h200)).map((text) => text.split("(")[0])
        assert.include(onGpu, "GROUP")
      }))

    it.effect("works with a mocked profile", () =>
      Effect.gen(function*() {
        assert.deepStrictEqual(yield* opts, ["UNROLL(r1, 4)", "SPREAD(r0, 4)", "UNROLL(r1, 2)"])
      }).pipe(Effect.provide(
        Heuristics.layer.pipe(Layer.provide(Layer.mock(DeviceProfile.Profile, { ...wasm, maxWorkgroupBytes: 0 })))
      )))

    it.effect("layerNone never optimises", () =>
      Effect.gen(function*() {
        assert.deepStrictEqual(yield* opts, [])
      }).pipe(Effect.provide(Heuristics.layerNone)))
  })
})
