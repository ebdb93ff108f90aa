/** Where programs run in a browser: the layers of a choice of device. What a choice does not need is not even fetched. */
import { defaultSimd } from "@tg/codegen-wasm/WasmHost"
import type { Jit } from "@tg/jit/Jit"
import { Device, DeviceError } from "@tg/runtime/Device"
import { identityOf, rendererOptions, WebGpuInfo, withoutPackedDot } from "@tg/runtime-webgpu/WebGpuInfo"
import * as BrowserThreads from "@tg/runtime-wasm/BrowserThreads"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import * as Verdict from "@tg/self-test/Verdict"
import { Context, Effect, Layer } from "effect"
import * as Cached from "./Cached.ts"
import type * as Protocol from "./Protocol.ts"
import * as Replaying from "./Replaying.ts"
import * as Targets from "./Targets.ts"

/** What can be asked for. */
export type Choice = typeof Protocol.choices[number]

/** The device in use, in words. */
export class Chosen extends Context.Service<Chosen, Protocol.DeviceInfo>()("@tg/web/Devices/Chosen") {}

/** What every choice provides. */
export type Services = Device | Jit | Replaying.Compiling | Chosen

/** How a choice is carried out. */
export interface Setup {
  /** Of `wasm`, in a page that is isolated; one for each core if not said. */
  readonly threads?: number | undefined
  /** What to do without; what the device's self-test has found if not said. */
  readonly avoid?: ReadonlyArray<Verdict.Avoidance> | undefined
  /** Where compiled programs are kept; of WebAssembly, of which kind (`Targets.nameOf`). Nothing is kept if it is not said. */
  readonly programs?: ((kind?: string) => Layer.Layer<never>) | undefined
}

const keptBy = ({ programs }: Setup, kind?: string): Layer.Layer<never> => programs?.(kind) ?? Layer.empty

/** Where verdicts of self-tests are kept. */
export const verdicts = Cached.open("tg-devices")

/** What runs WebAssembly here: what a self-test of it is about. */
export const wasmIdentity = (): string => `WebAssembly\n${navigator.userAgent}`

/** An adapter with its driver: another browser is another driver. */
const gpuIdentity = (adapter: string): string => `${adapter}\n${navigator.userAgent}`

/** What a device of this identity is to do without. */
const avoidedBy = ({ avoid }: Setup, identity: string) =>
  Effect.flatMap(
    Effect.orElseSucceed(verdicts, () => undefined),
    (store) => Verdict.remembered({ avoid, identity, store })
  )

const notIsolated = "one thread, because the page is not cross-origin isolated; for more, serve it with " +
  "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp"

/** WebAssembly: with threads where memory can be shared. `because` says why it is not a GPU. */
const wasm = (because: string, setup: Setup): Layer.Layer<Services, DeviceError> => {
  const isIsolated = globalThis.crossOriginIsolated
  const threads = isIsolated ? setup.threads ?? navigator.hardwareConcurrency : 1
  const memory = isIsolated ? "shared" : "own"
  const name = `wasm, ${threads === 1 ? "one thread" : `${threads} threads`}`
  const why = isIsolated ? because : `${because}; ${notIsolated}`
  const identity = wasmIdentity()
  const trusted = Layer.effect(
    Device,
    Effect.gen(function*() {
      const device = yield* Device
      return { ...device, profile: Verdict.without(device.profile, yield* avoidedBy(setup, identity)) }
    })
  ).pipe(Layer.provide(WasmDevice.layer({ memory })))
  const options = { memory, simd: defaultSimd() } as const
  return Layer.merge(
    Layer.provide(Replaying.layer(Targets.wasm(options)), keptBy(setup, Targets.nameOf(options))),
    Layer.succeed(Chosen, { kind: "wasm", name, threads, why, identity })
  ).pipe(Layer.provideMerge(trusted), Layer.provide(BrowserThreads.layer(threads)))
}

/** A GPU. Software adapters only where the page asked for WebGPU by name. */
const webgpu = (allowSoftware: boolean, setup: Setup): Layer.Layer<Services, DeviceError> =>
  Layer.unwrap(Effect.gen(function*() {
    const { gpu } = navigator as { readonly gpu?: GPU }
    if (gpu === undefined) {
      return yield* new DeviceError({
        reason: "Unavailable",
        message: globalThis.isSecureContext
          ? "this browser has no WebGPU; use the device wasm"
          : "WebGPU is there for secure pages alone; serve the page over https or from localhost"
      })
    }
    const device = yield* Effect.promise(() => import("@tg/runtime-webgpu/WebGpu"))
    const replaying = Layer.unwrap(Effect.gen(function*() {
      const { profile } = yield* Device
      return Replaying.layer(Targets.webgpu(rendererOptions(yield* WebGpuInfo, profile)))
    }))
    const chosen = Layer.effect(
      Chosen,
      Effect.map(WebGpuInfo, ({ adapter }) => ({
        kind: "webgpu" as const,
        name: `webgpu (${(adapter.description || `${adapter.vendor} ${adapter.architecture}`).trim() || "a GPU"}${
          adapter.software ? ", software" : ""
        })`,
        threads: 0,
        why: allowSoftware ? "WebGPU was asked for" : "the browser has WebGPU with a GPU",
        identity: gpuIdentity(identityOf(adapter))
      }))
    )
    const trusted = Layer.effectContext(Effect.gen(function*() {
      const info = yield* WebGpuInfo
      const device = yield* Device
      const avoid = yield* avoidedBy(setup, gpuIdentity(identityOf(info.adapter)))
      return Context.make(Device, { ...device, profile: Verdict.without(device.profile, avoid) }).pipe(
        Context.add(WebGpuInfo, avoid.includes("packed-dot") ? withoutPackedDot(info) : info)
      )
    })).pipe(Layer.provide(device.layer(gpu, { allowSoftware })))
    return Layer.merge(Layer.provide(replaying, keptBy(setup)), chosen).pipe(Layer.provideMerge(trusted))
  }))

/** The layers of a choice. `auto` is a GPU if there is one, else WebAssembly. */
export const layer = (choice: Choice, setup: Setup = {}): Layer.Layer<Services, DeviceError> => {
  switch (choice) {
    case "wasm":
      return wasm("WebAssembly was asked for", setup)
    case "webgpu":
      return webgpu(true, setup)
    case "auto":
      return webgpu(false, setup).pipe(
        // what to do about it is the device's business; that it was not used is ours
        Layer.catchTag("DeviceError", (error) => wasm(error.message.split(";")[0]!, setup))
      )
  }
}
