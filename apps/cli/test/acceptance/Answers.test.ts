import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { isFull } from "./support/full.ts"
import { questions, test } from "./support/tiny.ts"

/** One in 17, which have many kinds. */
const sample = questions.filter((_, i) => i % 17 === 0)

describe("the answers of tg-tiny are those of llama.cpp", () => {
  test("on wasm", { device: "wasm" }, questions)
  test("on wasm, with activations of 8 bits", { device: "wasm", activations: "int8" }, sample)
})

const asked = isFull ? questions : sample

describe.skipIf((await availableAdapter()) === undefined)(
  "the answers of tg-tiny are those of llama.cpp, on WebGPU, software or not",
  () => test(`to ${asked.length} of the questions`, { device: "webgpu" }, asked)
)
