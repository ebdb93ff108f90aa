import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import * as Dequant from "./support/dequant.ts"

describe("dequantisation on the reference device", () => Dequant.test("reference", Dequant.sameBits))

describe("dequantisation on wasm", () => Dequant.test("wasm", Dequant.sameBits))

describe.skipIf((await availableAdapter()) === undefined)(
  "dequantisation on WebGPU, software or not",
  () => Dequant.test("webgpu", Dequant.oneRounding)
)
