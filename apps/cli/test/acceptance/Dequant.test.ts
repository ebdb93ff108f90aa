import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import * as Dequant from "./support/dequant.ts"

describe("dequantisation on the reference device", () => Dequant.test("reference", Dequant.sameBits, 60_000))

describe("dequantisation on wasm", () => Dequant.test("wasm", Dequant.sameBits, 60_000))

describe.skipIf((await availableAdapter()) === undefined)(
  "dequantisation on WebGPU, software or not",
  () => Dequant.test("webgpu", Dequant.oneRounding, 120_000)
)
