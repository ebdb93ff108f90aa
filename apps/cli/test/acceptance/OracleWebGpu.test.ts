import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { isFull } from "./support/full.ts"
import * as Oracle from "./support/oracle.ts"

// what is not here, `Limits` tries under limits
const usual = { f32: ["c03", "c04", "c06"], f16: ["c03"] } as const

describe.skipIf((await availableAdapter()) === undefined)("the oracle's logits on WebGPU, software or not", () => {
  for (const cache of ["f32", "f16"] as const) {
    for (const name of isFull ? Oracle.names : usual[cache]) {
      Oracle.test(name, { cache, device: "webgpu" })
    }
  }
})
