/** A device with lower limits than it has: its profile says so, and it refuses what exceeds them. */
import { as, ProfileMismatch, restrict, type Restrictions } from "@tg/core-uop/DeviceLimits"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Program } from "@tg/core-uop/Program"
import { Effect, Layer } from "effect"
import { Device, DeviceError, type DeviceShape, type Dispatch, windowOf } from "./Device.ts"

const exceeded = (message: string): DeviceError => new DeviceError({ reason: "LimitExceeded", message })

/** Why a program is too large for a profile, if it is. */
const checkProgram = (program: Program, profile: DeviceProfile): DeviceError | undefined => {
  const { bindings, name, workgroup } = program
  if (bindings.length > profile.maxStorageBuffers) {
    return exceeded(`${name} binds ${bindings.length} buffers, ${profile.maxStorageBuffers} are allowed`)
  }
  const threads = workgroup.reduce((a, b) => a * b, 1)
  return profile.kind === "gpu" && threads > profile.maxWorkgroupThreads
    ? exceeded(`${name} has ${threads} threads in a workgroup, ${profile.maxWorkgroupThreads} are allowed`)
    : undefined
}

/** Why the arguments of a launch are too large, or reach over the end of a buffer of the largest size. */
const checkDispatch = ({ buffers, executable }: Dispatch, profile: DeviceProfile): DeviceError | undefined => {
  const { maxBindingBytes, maxBufferBytes } = profile
  for (const binding of buffers) {
    const window = windowOf(binding)
    // what is wrong with it otherwise, the device says
    if (typeof window === "string") continue
    const { buffer, bytes, offset } = window
    const what = `${executable.program.name} binds ${bytes} bytes of ${buffer.label}`
    if (bytes > maxBindingBytes) return exceeded(`${what}, ${maxBindingBytes} are allowed; bind a window of it`)
    const segment = maxBufferBytes - maxBufferBytes % 256
    if (buffer.bytes > maxBufferBytes && Math.floor(offset / segment) !== Math.floor((offset + bytes - 1) / segment)) {
      return exceeded(`${what} from ${offset} on, over the end of a buffer of ${segment}; bind a window for each`)
    }
  }
  return undefined
}

/** The device within these limits. */
export const limited = (device: DeviceShape, restrictions: Restrictions): DeviceShape => {
  const profile = restrict(device.profile, restrictions)
  const { memoryBytes = Infinity } = profile
  return {
    ...device,
    profile,
    allocate: (bytes, label) =>
      Effect.suspend(() =>
        device.allocatedBytes() + bytes > memoryBytes
          ? Effect.fail(
            new DeviceError({
              reason: "OutOfMemory",
              message: `${label}: ${bytes} bytes asked, ${device.allocatedBytes()} are in use, and all may take ` +
                `${memoryBytes}; use a smaller context or model`
            })
          )
          : device.allocate(bytes, label)
      ),
    load: (program) => {
      const refused = checkProgram(program, profile)
      return refused === undefined ? device.load(program) : Effect.fail(refused)
    },
    plan: (dispatches) => {
      const refused = dispatches.map((dispatch) => checkDispatch(dispatch, profile)).find((e) => e !== undefined)
      return refused === undefined ? device.plan(dispatches) : Effect.fail(refused)
    }
  }
}

/** The layer's device within these limits. */
export const within = (restrictions: Restrictions) => <A, E, R>(layer: Layer.Layer<A | Device, E, R>) =>
  Layer.provideMerge(Layer.effect(Device, Effect.map(Device, (device) => limited(device, restrictions))), layer)

/** The device, planned for as a given profile says. */
export const planned = (device: DeviceShape, given: DeviceProfile): Effect.Effect<DeviceShape, DeviceError> => {
  const profile = as(device.profile, given)
  return profile instanceof ProfileMismatch
    ? Effect.fail(new DeviceError({ reason: "BadArgument", message: profile.message }))
    : Effect.succeed({ ...device, profile })
}

/** The layer's device, planned for as a given profile says; as it is without one. */
export const plannedAs = (given: DeviceProfile | undefined) => <A, E, R>(layer: Layer.Layer<A | Device, E, R>) =>
  Layer.provideMerge(
    Layer.effect(
      Device,
      Effect.flatMap(Device, (device) => given === undefined ? Effect.succeed(device) : planned(device, given))
    ),
    layer
  )
