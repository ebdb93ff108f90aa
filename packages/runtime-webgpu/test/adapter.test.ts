import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { Effect } from "effect"
import * as Adapter from "../src/internal/adapter.ts"
import { matrixFeatures } from "../src/internal/matrixUnits.ts"
import { workgroupBytes } from "../src/internal/programs.ts"
import * as WebGpu from "../src/WebGpu.ts"
import { rendererOptions } from "../src/WebGpuInfo.ts"

const info = (fields: Partial<GPUAdapterInfo>): GPUAdapterInfo =>
  ({ vendor: "", architecture: "", device: "", description: "", ...fields }) as GPUAdapterInfo

const nvidia = info({ vendor: "nvidia", device: "nvidia-h200", description: "NVIDIA: 580.159.04" })
const llvmpipe = info({ vendor: "mesa", architecture: "software", description: "llvmpipe: Mesa 25" })

/** An entry to WebGPU that answers requests for a fallback adapter and for a normal one. */
const gpu = (normal: GPUAdapterInfo | undefined, fallback: GPUAdapterInfo | undefined): GPU =>
  ({
    requestAdapter: async (options?: GPURequestAdapterOptions) => {
      const chosen = options?.forceFallbackAdapter === true ? fallback : normal
      return chosen === undefined ? null : { info: chosen }
    }
  }) as unknown as GPU

describe("selectAdapter", () => {
  const selected = (entry: GPU, options?: WebGpu.Options) =>
    Effect.map(WebGpu.selectAdapter(entry, options), (adapter) => adapter.info)

  it.effect("takes hardware, whether software is allowed or not", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* selected(gpu(nvidia, llvmpipe)), nvidia)
      assert.strictEqual(yield* selected(gpu(nvidia, llvmpipe), { allowSoftware: true }), nvidia)
    }))

  it.effect("takes software only when asked for", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* selected(gpu(llvmpipe, llvmpipe), { allowSoftware: true }), llvmpipe)
      const error = yield* Effect.flip(selected(gpu(llvmpipe, llvmpipe)))
      assert.strictEqual(error.reason, "Unavailable")
      assert.match(error.message, /only a CPU posing as a GPU \(llvmpipe: Mesa 25\); .*--device wasm/)
    }))

  it.effect("says what to do without any adapter, or when the driver throws", () =>
    Effect.gen(function*() {
      const none = yield* Effect.flip(selected(gpu(undefined, undefined)))
      assert.match(none.message, /found no GPU; install a Vulkan, Metal or D3D12 driver, or use --device wasm/)
      const broken = { requestAdapter: () => Promise.reject(new Error("no loader")) } as unknown as GPU
      assert.match((yield* Effect.flip(selected(broken))).message, /no loader; use --device wasm/)
    }))
})

describe("profile", () => {
  const limits = {
    maxStorageBufferBindingSize: 1000,
    maxBufferSize: 2000,
    maxStorageBuffersPerShaderStage: 10,
    maxComputeWorkgroupStorageSize: 16_384,
    maxComputeInvocationsPerWorkgroup: 512,
    maxComputeWorkgroupSizeX: 256,
    maxComputeWorkgroupsPerDimension: 65_535
  }
  const probes = { halfSubnormals: true, halfRounding: true, f32Subnormals: true, linearSubgroups: true }
  const facts = {
    probes,
    subgroupSizes: [32, 32],
    matrixUnits: true,
    languageFeatures: ["packed_4x8_integer_dot_product"]
  } as const

  it("takes measured speeds where the adapter is known, limits always from the device", () => {
    const known = Adapter.profile(Adapter.facts(nvidia), limits, facts)
    assert.strictEqual(known.name, "nvidia-h200 (NVIDIA: 580.159.04)")
    assert.strictEqual(known.dispatchMicros, h200.dispatchMicros)
    assert.deepStrictEqual([known.maxWorkgroupThreads, known.maxBindingBytes, known.subgroupSize], [256, 1000, 32])
    const other = Adapter.profile(Adapter.facts(llvmpipe), limits, { ...facts, subgroupSizes: undefined })
    assert.isBelow(other.bytesPerMicro, webgpuDefault.bytesPerMicro)
    assert.strictEqual(other.name, "llvmpipe: Mesa 25")
  })

  it("counts on products of bytes where they are instructions", () => {
    const packedDot = (info: typeof nvidia, known = facts.languageFeatures as ReadonlyArray<string>) =>
      Adapter.profile(Adapter.facts(info), limits, { ...facts, languageFeatures: known }).packedDot
    assert.isTrue(packedDot(nvidia))
    assert.isFalse(packedDot(nvidia, []))
    assert.isFalse(packedDot(llvmpipe))
    assert.isFalse(packedDot({ ...nvidia, vendor: "apple", architecture: "metal-3", description: "" }))
  })

  it("has a subgroup size only when lanes follow the thread number", () => {
    const scattered = { ...probes, linearSubgroups: false }
    assert.isUndefined(Adapter.profile(Adapter.facts(nvidia), limits, { ...facts, probes: scattered }).subgroupSize)
  })

  it("has matrix units where the device does and lanes follow the thread number, and its renderer is told", () => {
    const scattered = { ...probes, linearSubgroups: false }
    const cases = [[facts, true], [{ ...facts, matrixUnits: false }, undefined], [
      { ...facts, probes: scattered },
      undefined
    ]] as const
    for (const [given, expected] of cases) {
      const profile = Adapter.profile(Adapter.facts(nvidia), limits, given)
      assert.strictEqual(profile.matrixUnits, expected)
      assert.strictEqual(rendererOptions({ ...given, unclamped: false }, profile).matrixUnits, expected)
    }
  })
})

describe("matrix units", () => {
  const names = ["chromium-experimental-subgroup-matrix", "subgroup-size-control", "shader-f16"]
  const halves = { componentType: "f16", resultComponentType: "f32", M: 16, N: 16, K: 16 }
  const sizes = { subgroupMinSize: 32, subgroupMaxSize: 32 }
  const asked = (fields: object, features = ["subgroups", "timestamp-query", ...names]) => {
    const adapter = { info: info(fields), features: new Set(features), limits: {} } as unknown as GPUAdapter
    return Adapter.descriptor(adapter, matrixFeatures(adapter.info, adapter.features)).requiredFeatures
  }

  it("are asked for with all that they take", () => {
    const all = ["subgroups", "timestamp-query", ...names]
    assert.deepStrictEqual(asked({ ...sizes, subgroupMatrixConfigs: [{ ...halves, K: 8 }, halves] }), all)
    assert.deepStrictEqual(asked(sizes), all, "where products are not listed, features decide")
  })

  it("are not asked for where a part is missing", () => {
    for (const missing of names) {
      const others = ["subgroups", ...names.filter((name) => name !== missing)]
      assert.deepStrictEqual(asked(sizes, others), ["subgroups"], missing)
    }
    const usual = ["subgroups", "timestamp-query"]
    for (const other of [{ K: 8 }, { componentType: "f32" }, { resultComponentType: "f16" }]) {
      assert.deepStrictEqual(asked({ ...sizes, subgroupMatrixConfigs: [{ ...halves, ...other }] }), usual)
    }
    assert.deepStrictEqual(asked({ ...sizes, subgroupMatrixConfigs: [] }), usual)
    assert.deepStrictEqual(asked({ subgroupMinSize: 8, subgroupMaxSize: 32 }), usual)
    assert.deepStrictEqual(asked({ subgroupMinSize: 64, subgroupMaxSize: 64 }), usual)
  })
})

describe("workgroupBytes", () => {
  it("adds up scalars, vectors and arrays", () => {
    const code = `var<workgroup> a: array<f32, 64>;
var<workgroup> b : array<vec4<u32>, 8u>;
var<workgroup> c: f32;
var<workgroup> d: vec2<f32>;
var<storage, read> e: array<f32>;`
    assert.strictEqual(workgroupBytes(code), 256 + 128 + 4 + 8)
    assert.strictEqual(workgroupBytes("fn main() {}"), 0)
  })
})
