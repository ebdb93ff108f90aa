import * as Wasm from "@tg/codegen-wasm/Wasm"
import type { Restrictions } from "@tg/core-uop/DeviceLimits"
import { Profile, wasm as profile } from "@tg/core-uop/DeviceProfile"
import { CompileCache } from "@tg/jit/CompileCache"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import type { ExecutionPlan } from "@tg/jit/Plan"
import * as Models from "@tg/models/Models"
import { Device, type DeviceBuffer, type DeviceShape } from "@tg/runtime/Device"
import * as Limited from "@tg/runtime/Limited"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { Effect, Layer } from "effect"

const profileOfDevice = Layer.effect(Profile, Effect.map(Device, (device) => device.profile))

const plans = new Map<string, ExecutionPlan>()

/** What was compiled is kept for all tests of a file, whichever device is made for them. */
const keptPrograms = Layer.succeed(CompileCache, {
  get: (key) => Effect.sync(() => plans.get(key)),
  set: (key, plan) => Effect.sync(() => void plans.set(key, plan))
})

/** The whole compiler over a wasm device. */
export const compilerOver = <E>(device: Layer.Layer<Device, E>) =>
  Jit.layer.pipe(
    Layer.provide([Compiler.layer, keptPrograms]),
    Layer.provideMerge(Pipeline.layer),
    Layer.provide([Wasm.layer, profileOfDevice]),
    Layer.provideMerge(device)
  )

/** The whole compiler over the wasm device, for the models that are known. */
export const wasm = Layer.merge(compilerOver(WasmDevice.layer()), Models.layer)

/** The wasm device, taken for one that works on its own: what decodes runs ahead, and draws by itself. Some of it may be another. */
export const onItsOwn = (changed: (device: DeviceShape) => Partial<DeviceShape> = () => ({})) =>
  Layer.merge(
    compilerOver(Layer.effect(
      Device,
      Effect.map(
        WasmDevice.make(),
        (device) => Device.of({ ...device, profile: { ...device.profile, kind: "gpu" }, ...changed(device) })
      )
    )),
    Models.layer
  )

/** What sees the bytes of reads. */
export const seeingReads = (seen: (bytes: number) => void) => (device: DeviceShape): Pick<DeviceShape, "read"> => ({
  read: (buffer, offset = 0, bytes = buffer.bytes - offset) =>
    Effect.suspend(() => {
      seen(bytes)
      return device.read(buffer, offset, bytes)
    })
})

/** The whole compiler over the wasm device within limits. */
export const wasmWithin = (restrictions: Restrictions, seen: (device: DeviceShape) => DeviceShape = (d) => d) =>
  Layer.merge(
    compilerOver(
      Layer.effect(Device, Effect.map(Device, seen)).pipe(
        Layer.provide(Limited.within(restrictions)(WasmDevice.layer()))
      )
    ),
    Models.layer
  )

/** A device that only keeps bytes. */
export const memory = () => {
  const contents = new Map<DeviceBuffer, Uint8Array>()
  let allocated = 0
  const shape: Pick<DeviceShape, "allocatedBytes" | "allocate" | "write" | "read"> = {
    allocatedBytes: () => allocated,
    allocate: (bytes, label) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          const buffer: DeviceBuffer = { label, bytes }
          contents.set(buffer, new Uint8Array(bytes))
          allocated += bytes
          return buffer
        }),
        () =>
          Effect.sync(() => {
            allocated -= bytes
          })
      ),
    write: (buffer, data, offset = 0) => Effect.sync(() => contents.get(buffer)!.set(data, offset)),
    read: (buffer, offset = 0, bytes = buffer.bytes - offset) =>
      Effect.sync(() => contents.get(buffer)!.slice(offset, offset + bytes))
  }
  return { contents, layer: Layer.mock(Device, { profile, ...shape }) }
}
