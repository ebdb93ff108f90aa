import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { isFull } from "./support/full.ts"
import * as Int8 from "./support/int8.ts"
import * as Oracle from "./support/oracle.ts"

describe("logits with activations of 8 bits are as near to the float ones as llama.cpp's", () => {
  for (const name of Oracle.names) Int8.test(name, { device: "wasm" })
})

describe("prompts in tiles too", () => {
  for (const name of Oracle.names) Int8.test(name, { device: "wasm", order: "features" })
})

describe.skipIf((await availableAdapter()) === undefined)("on WebGPU too, software or not", () => {
  // experts, scales of 16 values, and minima
  Int8.test("c02", { device: "webgpu", tokens: 5 })
  Int8.test("c02", { device: "webgpu", order: "features", tokens: 17 })
  for (const name of isFull ? Oracle.names : ["c02", "c06"] as const) Int8.testDecoding(name, { device: "webgpu" })
})
