/** Matrix units on a device without: what fragments do is computed by what every device has. */
import * as WgslRenderer from "@tg/codegen-wgsl/WgslRenderer"
import { type DeviceProfile, h200 } from "@tg/core-uop/DeviceProfile"
import { Renderer } from "@tg/core-uop/Program"
import { toposort } from "@tg/core-uop/UOp"
import { Effect, Layer } from "effect"

/** An H200, with matrix units or without, within the limits of the device that there is. */
export const profileOf = (device: DeviceProfile, matrixUnits: boolean | undefined): DeviceProfile => {
  const { maxBindingBytes, maxBufferBytes, maxStorageBuffers, maxWorkgroupBytes, maxWorkgroupThreads } = device
  const limits = { maxBindingBytes, maxBufferBytes, maxStorageBuffers, maxWorkgroupBytes, maxWorkgroupThreads }
  return { ...h200, ...limits, matrixUnits }
}

/** Renders without subgroups, whose size is another one there, and tells of each kernel that has fragments. */
export const renderer = (withFragments: (name: string) => void) =>
  Layer.effect(
    Renderer,
    Effect.map(Renderer, (own) => ({
      ...own,
      render: (name, linear) =>
        Effect.suspend(() => {
          if (toposort(linear).some(({ op }) => op === "FRAGMENT")) withFragments(name)
          return own.render(name, linear)
        })
    }))
  ).pipe(Layer.provide(WgslRenderer.layer({ matrixUnits: "emulated" })))
