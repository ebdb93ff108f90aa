import { Device, type DeviceError, type DeviceShape } from "@tg/runtime/Device"
import { Context, Effect, Layer, type Scope } from "effect"
import * as Adapter from "./internal/adapter.ts"
import * as Storage from "./internal/storage.ts"
import * as Plan from "./internal/plan.ts"
import { probe } from "./internal/probes.ts"
import * as Programs from "./internal/programs.ts"
import { error, watch } from "./internal/queue.ts"
import * as Submission from "./internal/submission.ts"
import { type AdapterFacts, WebGpuInfo } from "./WebGpuInfo.ts"

/** Which adapter to take. */
export interface Options {
  /** Software adapters run kernels on the CPU, slowly: only when asked for, and only when there is no other. Default false. */
  readonly allowSoftware?: boolean | undefined
  /** Bytes of one GPUBuffer, if fewer than the device allows: larger buffers are held in several. */
  readonly maxBufferBytes?: number | undefined
  /** The features that matrix units take, of an adapter or a device that has them. No page has any, so none fetches this. */
  readonly matrixFeatures?:
    | ((info: GPUAdapterInfo, features: ReadonlySet<string>) => ReadonlyArray<GPUFeatureName> | undefined)
    | undefined
  /** Whether the entry's devices leave indices as they are (Dawn's `disable_robustness`). No page has such an entry. Default false. */
  readonly unclamped?: boolean | undefined
}

/** What a device does not say about itself. */
export interface Surroundings extends Pick<Options, "matrixFeatures" | "maxBufferBytes" | "unclamped"> {
  /** WGSL's language extensions that the entry to WebGPU knows. */
  readonly language?: ReadonlySet<string> | undefined
}

/** What the layers of this module provide. */
export type Services = Device | WebGpuInfo

const noAdapter = (found: ReadonlyArray<AdapterFacts>): DeviceError => {
  const software = found.map(Adapter.nameOf).join(", ")
  return error(
    "Unavailable",
    software === ""
      ? "WebGPU found no GPU; install a Vulkan, Metal or D3D12 driver, or use --device wasm"
      : `WebGPU found only a CPU posing as a GPU (${software}); install the GPU's driver, allow software adapters, or use --device wasm`
  )
}

const unavailable = (what: string) => (cause: unknown): DeviceError =>
  error("Unavailable", `${what}: ${cause instanceof Error ? cause.message : String(cause)}; use --device wasm`)

/** A hardware adapter if there is one, the high-performance one first; else a software one, if allowed. */
export const selectAdapter = (gpu: GPU, options: Options = {}): Effect.Effect<GPUAdapter, DeviceError> =>
  Effect.gen(function*() {
    const requests: ReadonlyArray<GPURequestAdapterOptions> = [{ powerPreference: "high-performance" }, {}, {
      forceFallbackAdapter: true
    }]
    const software: Array<GPUAdapter> = []
    for (const request of requests) {
      const adapter = yield* Effect.tryPromise({
        try: () => gpu.requestAdapter(request),
        catch: unavailable("asking WebGPU for an adapter failed")
      })
      if (adapter === null) continue
      if (!Adapter.facts(adapter.info).software) return adapter
      software.push(adapter)
    }
    const first = software[0]
    if (first !== undefined && options.allowSoftware === true) return first
    const facts = software.map((a) => Adapter.facts(a.info))
    return yield* noAdapter(facts.filter((f, i) => facts.findIndex((g) => g.description === f.description) === i))
  })

/**
 * The device over a GPUDevice that someone else owns and destroys; `language` are the WGSL features of its entry. Runs
 * the probe kernels once.
 */
export const fromDevice = (
  device: GPUDevice,
  info: GPUAdapterInfo = device.adapterInfo,
  { language = new Set(), matrixFeatures, maxBufferBytes, unclamped = false }: Surroundings = {}
): Effect.Effect<Context.Context<Services>, DeviceError> =>
  Effect.gen(function*() {
    const gpu = watch(device)
    const storage = Storage.make(gpu, maxBufferBytes)
    const submit = Submission.make(gpu)
    const runner = { ...storage, load: Programs.make(gpu), plan: Plan.make(gpu, storage, submit) }
    const adapter = Adapter.facts(info)
    const limits = Adapter.limitsOf(device.limits)
    const subgroupSizes = Adapter.subgroupSizes(info, device.features)
    const matrixUnits = matrixFeatures?.(info, device.features) !== undefined
    const probes = yield* probe(runner, subgroupSizes)
    const languageFeatures = [...language].toSorted()
    const shape: DeviceShape = {
      profile: Adapter.profile(adapter, limits, { subgroupSizes, matrixUnits, probes, languageFeatures }),
      allocatedBytes: runner.allocatedBytes,
      allocate: runner.allocate,
      write: runner.write,
      read: runner.read,
      copy: runner.copy,
      load: runner.load,
      plan: runner.plan,
      submit: Submission.withReads(gpu, storage, submit)
    }
    return Context.make(Device, shape).pipe(
      Context.add(WebGpuInfo, {
        adapter,
        named: Adapter.isNamed(adapter),
        features: [...device.features].toSorted(),
        languageFeatures,
        limits,
        subgroupSizes,
        matrixUnits,
        unclamped,
        probes
      })
    )
  })

/** The device of an adapter, with all it offers; destroyed with the scope. */
export const fromAdapter = (
  adapter: GPUAdapter,
  surroundings: Surroundings = {}
): Effect.Effect<Context.Context<Services>, DeviceError, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.tryPromise({
      try: () =>
        adapter.requestDevice(
          Adapter.descriptor(adapter, surroundings.matrixFeatures?.(adapter.info, adapter.features))
        ),
      catch: unavailable(`the adapter ${Adapter.nameOf(Adapter.facts(adapter.info))} gave no device`)
    }),
    (device) => Effect.sync(() => device.destroy())
  ).pipe(Effect.flatMap((device) => fromDevice(device, adapter.info, surroundings)))

/** The device of `navigator.gpu`, or of any other entry to WebGPU. */
export const layer = (gpu: GPU, options: Options = {}): Layer.Layer<Services, DeviceError> =>
  Layer.effectContext(
    Effect.flatMap(selectAdapter(gpu, options), (adapter) =>
      fromAdapter(adapter, { ...options, language: gpu.wgslLanguageFeatures }))
  )
