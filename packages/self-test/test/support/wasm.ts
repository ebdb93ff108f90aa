/** WebAssembly to test, right or broken. */
import * as Wasm from "@tg/codegen-wasm/Wasm"
import { Profile } from "@tg/core-uop/DeviceProfile"
import type { Program } from "@tg/core-uop/Program"
import { Compiler } from "@tg/jit/Compiler"
import { Jit } from "@tg/jit/Jit"
import { Pipeline } from "@tg/jit/Pipeline"
import { Device, DeviceError, type DeviceShape } from "@tg/runtime/Device"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { Effect, Layer } from "effect"
import type { SelfTest } from "../../src/index.ts"
import { without } from "../../src/Verdict.ts"

const same = (device: DeviceShape): DeviceShape => device

/** One thread, with what `broken` makes of the device. */
export const subject = (broken: (device: DeviceShape) => DeviceShape = same): SelfTest.Subject => ({
  device: "wasm, one thread",
  identity: "the tests",
  layer: (avoid) => {
    const device = Layer.effect(
      Device,
      Effect.map(Device, (device) => ({ ...broken(device), profile: without(device.profile, avoid) }))
    ).pipe(Layer.provide(WasmDevice.layer()))
    const profile = Layer.effect(Profile, Effect.map(Device, ({ profile }) => profile))
    const compiling = Layer.provideMerge(
      Jit.layer.pipe(Layer.provide(Compiler.layer)),
      Pipeline.layer.pipe(Layer.provide(Wasm.layer))
    )
    return compiling.pipe(Layer.provide(profile), Layer.provideMerge(device))
  }
})

/** An instruction of 128-bit SIMD, as it is encoded. */
const instruction = (...code: ReadonlyArray<number>): Buffer => Buffer.from([0xfd, ...code])
const dot = instruction(0xba, 0x01) // i32x4.dot_i16x8_s
const multiply = instruction(0xb5, 0x01) // i32x4.mul
const multiplyHalves = instruction(0x95, 0x01) // i16x8.mul
const relaxedDot = instruction(0x92, 0x02) // i16x8.relaxed_dot_i8x16_i7x16_s
const relaxedDotAdd = instruction(0x93, 0x02) // i32x4.relaxed_dot_i8x16_i7x16_add_s
const relaxedMultiplyAdd = instruction(0x85, 0x02) // f32x4.relaxed_madd

/** Code in which one instruction does what another one should, of as many vectors. */
const replaced = (program: Program, from: Buffer, to: Buffer): Program => {
  if (!(program.code instanceof Uint8Array)) return program
  const code = Buffer.from(program.code)
  for (let at = code.indexOf(from); at >= 0; at = code.indexOf(from, at + from.length)) to.copy(code, at)
  return { ...program, code: new Uint8Array(code) }
}

/** What multiplies bytes, whichever of it a processor has, and what does something else in its place. */
const wrong = [[dot, multiply], [relaxedDot, multiplyHalves], [relaxedDotAdd, relaxedMultiplyAdd]] as const

/** A device that multiplies bytes wrongly. */
export const wrongBytes = (device: DeviceShape): DeviceShape => ({
  ...device,
  load: (program) => device.load(wrong.reduce((made, [from, to]) => replaced(made, from, to), program))
})

/** A device that changes a bit of what it is given. */
export const wrongMemory = (device: DeviceShape): DeviceShape => ({
  ...device,
  write: (buffer, data, offset) => {
    const changed = data.slice()
    if (changed.length > 100) changed[77]! ^= 4
    return device.write(buffer, changed, offset)
  }
})

/** A device that is lost when a program is loaded whose name has this in it: as often as `times` says. */
export const losing = (name: string, times: number) => {
  let left = times
  return (device: DeviceShape): DeviceShape => ({
    ...device,
    load: (program) => {
      if (!program.name.includes(name) || left === 0) return device.load(program)
      left--
      return Effect.fail(new DeviceError({ reason: "DeviceLost", message: "the tests have lost it" }))
    }
  })
}
