import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { isFull } from "./support/full.ts"
import * as Oracle from "./support/oracle.ts"

describe.skipIf((await availableAdapter()) === undefined)("the oracle's logits on WebGPU, software or not", () => {
  for (const cache of ["f32", "f16"] as const) {
    for (const name of isFull || cache === "f32" ? Oracle.names : ["c03"] as const) {
      Oracle.test(name, { cache, device: "webgpu" })
    }
  }
})
