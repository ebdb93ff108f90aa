import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { questions, test } from "./support/tiny.ts"

/** One in 17, which have many kinds. */
const sample = questions.filter((_, i) => i % 17 === 0)

describe("the answers of tg-tiny are those of llama.cpp", () => {
  test("on wasm", { device: "wasm" }, questions)
  test("on wasm, with activations of 8 bits", { device: "wasm", activations: "int8" }, sample)
})

// Software Vulkan takes minutes for all of them: without TG_FULL=1 it is asked the sample.
const all = process.env["TG_FULL"] === "1"
const asked = all ? questions : sample

describe.skipIf((await availableAdapter()) === undefined)(
  "the answers of tg-tiny are those of llama.cpp, on WebGPU, software or not",
  () => test(`to ${asked.length} of the questions`, { device: "webgpu" }, asked)
)
