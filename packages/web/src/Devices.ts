/** Where programs run in a browser: the layers of a choice of device. What a choice does not need is not even fetched. */
import { Profile } from "@tg/core-uop/DeviceProfile"
import { given } from "@tg/core-uop/Given"
import { Renderer } from "@tg/core-uop/Program"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device, DeviceError } from "@tg/runtime/Device"
import * as Tuned from "@tg/tuner/Tuned"
import { Context, Effect, Layer } from "effect"
import type * as Protocol from "./Protocol.ts"

/** What can be asked for. */
export type Choice = typeof Protocol.choices[number]

/** The device in use, in words. */
export class Chosen extends Context.Service<Chosen, Protocol.DeviceInfo>()("@tg/web/Devices/Chosen") {}

/** What every choice provides. */
export type Services = Device | Jit | Chosen

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))

/** The compiler for a device, over its renderer and its profile. */
const compiler = <R>(renderer: Layer.Layer<Renderer, never, R>) =>
  Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provide(
      Pipeline.layerNoDeps.pipe(
        Layer.provide(Tuned.layer(Tuned.shipped)),
        Layer.provide([Pipeline.stages, given(Renderer, renderer)])
      )
    ),
    Layer.provide(profileOfDevice)
  )

const notIsolated = "one thread, because the page is not cross-origin isolated; for more, serve it with " +
  "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp"

/** WebAssembly: with threads where memory can be shared. `because` says why it is not a GPU. */
const wasm = (because: string, asked: number | undefined): Layer.Layer<Services, DeviceError> =>
  Layer.unwrap(Effect.gen(function*() {
    const [renderer, device, browser] = yield* Effect.promise(() =>
      Promise.all([
        import("@tg/codegen-wasm/Wasm"),
        import("@tg/runtime-wasm/WasmDevice"),
        import("@tg/runtime-wasm/BrowserThreads")
      ])
    )
    const isIsolated = globalThis.crossOriginIsolated
    const threads = isIsolated ? asked ?? navigator.hardwareConcurrency : 1
    const memory = isIsolated ? "shared" : "own"
    const name = `wasm, ${threads === 1 ? "one thread" : `${threads} threads`}`
    const why = isIsolated ? because : `${because}; ${notIsolated}`
    return Layer.merge(
      compiler(renderer.layerWith({ memory })),
      Layer.succeed(Chosen, { kind: "wasm", name, threads, why })
    ).pipe(Layer.provideMerge(device.layer({ memory })), Layer.provide(browser.layer(threads)))
  }))

/** A GPU. Software adapters only where the page asked for WebGPU by name. */
const webgpu = (allowSoftware: boolean): Layer.Layer<Services, DeviceError> =>
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
    const [device, { rendererOptions, WebGpuInfo }, renderer] = yield* Effect.promise(() =>
      Promise.all([
        import("@tg/runtime-webgpu/WebGpu"),
        import("@tg/runtime-webgpu/WebGpuInfo"),
        import("@tg/codegen-wgsl/WgslRenderer")
      ])
    )
    const rendererOfDevice = Layer.unwrap(Effect.gen(function*() {
      return renderer.layer(rendererOptions(yield* WebGpuInfo, (yield* Device).profile))
    }))
    const chosen = Layer.effect(
      Chosen,
      Effect.map(WebGpuInfo, ({ adapter }) => ({
        kind: "webgpu" as const,
        name: `webgpu (${(adapter.description || `${adapter.vendor} ${adapter.architecture}`).trim() || "a GPU"}${
          adapter.software ? ", software" : ""
        })`,
        threads: 0,
        why: allowSoftware ? "WebGPU was asked for" : "the browser has WebGPU with a GPU"
      }))
    )
    return Layer.merge(compiler(rendererOfDevice), chosen).pipe(
      Layer.provideMerge(device.layer(gpu, { allowSoftware }))
    )
  }))

/** The layers of a choice. `auto` is a GPU if there is one, else WebAssembly. */
export const layer = (choice: Choice, threads?: number): Layer.Layer<Services, DeviceError> => {
  switch (choice) {
    case "wasm":
      return wasm("WebAssembly was asked for", threads)
    case "webgpu":
      return webgpu(true)
    case "auto":
      return webgpu(false).pipe(
        // what to do about it is the device's business; that it was not used is ours
        Layer.catchTag("DeviceError", (error) => wasm(error.message.split(";")[0]!, threads))
      )
  }
}
