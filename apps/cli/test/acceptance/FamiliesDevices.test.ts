import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { isFull } from "./support/full.ts"
import * as Int8 from "./support/int8.ts"
import * as Oracle from "./support/oracle.ts"

describe("the logits of other families on the reference device", () => {
  for (const cache of isFull ? ["f32", "f16"] as const : ["f16"] as const) {
    // with windows
    for (const name of isFull ? Oracle.families : ["g01"] as const) {
      Oracle.test(name, { cache, device: "reference" })
    }
  }
})

describe.skipIf((await availableAdapter()) === undefined)("on WebGPU too, software or not", () => {
  for (const cache of isFull ? ["f32", "f16"] as const : ["f16"] as const) {
    for (const name of isFull ? Oracle.families : ["l01"] as const) {
      Oracle.test(name, { cache, device: "webgpu" })
      if (!isFull) continue
      Oracle.test(name, {
        cache,
        device: "webgpu",
        batchFrom: Infinity,
        chunk: 1,
        what: ", token by token"
      })
    }
  }
  if (isFull) { for (const name of Oracle.families) Int8.testDecoding(name, { device: "webgpu" }) }
})
