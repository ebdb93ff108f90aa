import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { as, InvalidLimit, parse, ProfileMismatch, restrict, type Restrictions } from "../src/DeviceLimits.ts"
import { h200, webgpuDefault } from "../src/DeviceProfile.ts"

const messageOf = (found: Restrictions | InvalidLimit): string => found instanceof InvalidLimit ? found.message : ""

describe("limits", () => {
  it("lower a profile, and only lower it", () => {
    const asked = parse({
      maxStorageBufferBindingSize: "1048576",
      maxBufferSize: "2097152",
      maxStorageBuffersPerShaderStage: "99",
      maxComputeWorkgroupStorageSize: "16384",
      maxComputeInvocationsPerWorkgroup: "512",
      maxComputeWorkgroupSizeX: "128",
      maxComputeWorkgroupSizeY: "1",
      maxComputeWorkgroupSizeZ: "1",
      maxComputeWorkgroupsPerDimension: "1000",
      memory: "8000000000"
    }, false)
    if (asked instanceof InvalidLimit) throw asked
    assertEquals(restrict(h200, asked), {
      ...h200,
      maxBindingBytes: 1048576,
      maxBufferBytes: 2097152,
      maxWorkgroupBytes: 16384,
      maxWorkgroupThreads: 128,
      maxGrid: 1000,
      memoryBytes: 8e9,
      subgroupSize: undefined,
      matrixUnits: undefined
    })
  })

  it("a budget of memory is one where the device's memory is unknown", () => {
    assertEquals(restrict(webgpuDefault, { limits: { memory: 5 }, subgroups: true }), {
      ...webgpuDefault,
      memoryBytes: 5,
      matrixUnits: undefined
    })
  })

  it("take matrix units away, alone or with the subgroups that they belong to", () => {
    const device = { ...h200, matrixUnits: true }
    assert.isTrue(restrict(device, { limits: {}, subgroups: true }).matrixUnits)
    assert.isUndefined(restrict(device, { limits: {}, subgroups: false }).matrixUnits)
    const { matrixUnits, subgroupSize } = restrict(device, { limits: {}, subgroups: true, matrixUnits: false })
    assertEquals([matrixUnits, subgroupSize], [undefined, 32])
  })

  it("say what is wrong with them", () => {
    assert.match(messageOf(parse({ maxTextures: "3" }, true)), /maxTextures is not known; known are maxStorageBuffer/)
    assert.match(messageOf(parse({ memory: "1e9" }, true)), /memory=1e9 is no size/)
    assert.match(messageOf(parse({ maxBufferSize: "100" }, true)), /whole number from 256/)
  })
})

describe("a given profile", () => {
  it("has matrix units on a device that has them, too", () => {
    const unitsOf = (device: boolean | undefined, given: boolean | undefined) => {
      const profile = as({ ...h200, matrixUnits: device }, { ...h200, matrixUnits: given })
      return profile instanceof ProfileMismatch ? profile.message : profile.matrixUnits
    }
    assertEquals([unitsOf(true, true), unitsOf(undefined, true), unitsOf(true, undefined)], [
      true,
      undefined,
      undefined
    ])
  })
})
