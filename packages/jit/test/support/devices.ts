import { Worker } from "node:worker_threads"
import { Profile } from "@tg/core-uop/DeviceProfile"
import type { Renderer } from "@tg/core-uop/Program"
import * as Wasm from "@tg/codegen-wasm/Wasm"
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { Heuristics } from "@tg/heuristics/Heuristics"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device } from "@tg/runtime/Device"
import * as Limited from "@tg/runtime/Limited"
import * as Reference from "@tg/runtime/Reference"
import * as NodeThreads from "@tg/runtime-wasm/NodeThreads"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import * as Testing from "@tg/runtime-webgpu/Testing"
import { rendererOptions, WebGpuInfo } from "@tg/runtime-webgpu/WebGpuInfo"
import type { RandomProgram } from "@tg/tensor/Random"
import { Effect, Layer } from "effect"
import { type Choose, type Contents, initial } from "./stages.ts"
import { upload } from "./upload.ts"

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))

/** The compiler over a device; `choose` replaces the heuristics. */
const jit = <R>(renderer: Layer.Layer<Renderer, never, R>, choose: Choose | undefined) =>
  Jit.layer.pipe(
    Layer.provide(Compiler.layer),
    Layer.provideMerge(Pipeline.layer),
    Layer.provide(
      choose === undefined
        ? Layer.empty
        : Layer.succeed(Heuristics, { choose: (kernel) => Effect.sync(() => choose(kernel)) })
    ),
    Layer.provide([renderer, profileOfDevice])
  )

/** The wasm device with everything needed to run tensor programs on it; `choose` replaces the heuristics. */
export const wasm = (choose?: Choose) => jit(Wasm.layer, choose).pipe(Layer.provideMerge(WasmDevice.layer()))

/** The wasm device that divides every launch among three threads, however small. */
export const wasmThreads = wasm().pipe(Layer.provide(NodeThreads.layer(Worker, 3, { sharedInstructions: 1 })))

/** The WebGPU device, software adapters included; without subgroups if asked so, and with bindings of so many bytes at most. */
export const webgpu = (
  options: { readonly choose?: Choose; readonly subgroups?: boolean; readonly maxBindingBytes?: number } = {}
) => {
  const { maxBindingBytes } = options
  const limits: Readonly<Record<string, number>> = maxBindingBytes === undefined
    ? {}
    : { maxStorageBufferBindingSize: maxBindingBytes }
  const renderer = Layer.unwrap(
    Effect.gen(function*() {
      const { profile } = yield* Device
      const subgroupSize = options.subgroups === false ? undefined : profile.subgroupSize
      return WgslRenderer.layer(rendererOptions(yield* WebGpuInfo, { subgroupSize }))
    })
  )
  return jit(renderer, options.choose).pipe(
    Layer.provideMerge(Limited.within({ limits, subgroups: true })(Testing.layer))
  )
}

/** The stages as the reference device has them. */
export const referencePipeline = Pipeline.layer.pipe(
  Layer.provide([Reference.renderer(), Profile.layer(Reference.profile)])
)

/** The reference device: kernels as rangeify made them. */
export const reference = Jit.layer.pipe(
  Layer.provide([referencePipeline, Compiler.layerReference]),
  Layer.provideMerge(Reference.layer)
)

/** Runs a random program on the device of the layer; its buffers afterwards. */
export const run = (random: RandomProgram) => Effect.map(ran(random), ({ contents }) => contents)

/** The same, and how many launches it took. */
export const ran = (random: RandomProgram) =>
  Effect.gen(function*() {
    const device = yield* Device
    const jit = yield* Jit
    const contents = initial(random)
    const buffers = yield* upload(contents)
    const prepared = yield* jit.prepare(random.program.sink, buffers)
    yield* prepared.run(random.vars)
    const after: Contents = new Map()
    for (const [id, data] of contents) {
      const bytes = yield* device.read(buffers.get(id)!, 0, data.byteLength)
      const copy = bytes.slice().buffer
      after.set(
        id,
        data instanceof Float32Array
          ? new Float32Array(copy)
          : data instanceof Int32Array
          ? new Int32Array(copy)
          : new Uint32Array(copy)
      )
    }
    return { contents: after, launches: prepared.dispatches.length }
  }).pipe(Effect.scoped)
