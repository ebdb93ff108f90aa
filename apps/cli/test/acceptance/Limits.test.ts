import { describe } from "@effect/vitest"
import type { Restrictions } from "@tg/core-uop/DeviceLimits"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { isFull } from "./support/full.ts"
import * as Oracle from "./support/oracle.ts"

const window = { maxStorageBufferBindingSize: 2 ** 20 }
const workgroup = { maxComputeWorkgroupStorageSize: 16384 }
const buffers = { maxStorageBuffersPerShaderStage: 8 }
const together = { ...window, ...workgroup, ...buffers }
/** Small enough that every weight, most activations and the cache take several windows, and buffers several segments. */
const tiny = { maxStorageBufferBindingSize: 2 ** 16, maxBufferSize: 2 ** 17 }

const limited = (limits: Restrictions["limits"]): Restrictions => ({ limits, subgroups: true })
const without = (limits: Restrictions["limits"]): Restrictions => ({ limits, subgroups: false })

describe("the oracle's logits on wasm, within limits", () => {
  for (const name of isFull ? ["c01", "c03", "c04"] as const : ["c01", "c04"] as const) {
    const setting = { cache: "f16", device: "wasm" } as const
    Oracle.test(name, { ...setting, what: ", windows of 64 KiB", restrictions: limited(tiny) })
  }
})

// one under all of them; each restriction alone, of which windows change the most
describe.skipIf((await availableAdapter()) === undefined)("the oracle's logits on WebGPU, within limits", () => {
  const cases: ReadonlyArray<readonly [Oracle.Name, string, Restrictions]> = [
    ["c01", ", windows of 1 MiB", limited(window)],
    ["c02", ", all of these", without(together)]
  ]
  const alone: typeof cases = [
    ["c02", ", 16 KiB of workgroup memory", limited(workgroup)],
    ["c03", ", without subgroups", without({})],
    ["c06", ", 8 buffers", limited(buffers)]
  ]
  for (const [name, what, restrictions] of isFull ? [...cases, ...alone] : cases) {
    Oracle.test(name, { cache: "f16", device: "webgpu", what, restrictions })
  }
})
