import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import { Effect } from "effect"
import * as Adapter from "../src/internal/adapter.ts"
import { workgroupBytes } from "../src/internal/programs.ts"
import * as WebGpu from "../src/WebGpu.ts"

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
  const probes = { halfSubnormals: true, f32Subnormals: true, linearSubgroups: true }
  const facts = { probes, subgroupSizes: [32, 32], languageFeatures: ["packed_4x8_integer_dot_product"] } as const

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
