import * as Wgsl from "@tg/codegen-wgsl/Wgsl"
import { Kernel } from "../../codegen-wgsl/test/kernels.ts"
import type { DType } from "@tg/core-uop/DType"
import { type Program, RenderError } from "@tg/core-uop/Program"
import { Device } from "@tg/runtime/Device"
import { Effect } from "effect"
import { rendererOptions, WebGpuInfo } from "../src/WebGpuInfo.ts"

export { Kernel }
export type Words = Float32Array | Int32Array | Uint32Array

export const bytesOf = (data: Words): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength)

/** Bytes as words of a dtype. */
export const wordsOf = (bytes: Uint8Array, dtype: DType): Words => {
  const copy = bytes.slice().buffer
  return dtype.scalar === "f32"
    ? new Float32Array(copy)
    : dtype.scalar === "i32"
    ? new Int32Array(copy)
    : new Uint32Array(copy)
}

/** The program of a kernel for the device under test. */
export const render = (name: string, kernel: Kernel, options: Wgsl.Options = {}) =>
  Effect.gen(function*() {
    const ofDevice = rendererOptions(yield* WebGpuInfo, (yield* Device).profile)
    const program = Wgsl.render(name, kernel.linear(), Wgsl.caps({ ...ofDevice, ...options }))
    return program instanceof RenderError ? yield* program : program
  })

/** Runs a program once. `inputs` fill the buffers in the order of the bindings; returns what all of them hold afterwards. */
export const launch = (program: Program, inputs: ReadonlyArray<Words>, vars: Readonly<Record<string, number>> = {}) =>
  Effect.scoped(Effect.gen(function*() {
    const device = yield* Device
    const buffers = yield* Effect.forEach(inputs, (data, i) => device.allocate(data.byteLength, `argument ${i}`))
    for (const [i, data] of inputs.entries()) yield* device.write(buffers[i]!, bytesOf(data))
    const replay = yield* device.plan([{ executable: yield* device.load(program), buffers }])
    yield* replay.run(vars)
    return yield* Effect.forEach(buffers, (buffer) => device.read(buffer))
  }))
