import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { questions, test } from "./support/tiny.ts"

describe("the answers of tg-tiny are those of llama.cpp", () => test("on wasm", "wasm", questions, 180_000))

// Software Vulkan takes minutes for all of them: without TG_FULL=1 it is asked one in 17, which have many kinds.
const all = process.env["TG_FULL"] === "1"
const asked = all ? questions : questions.filter((_, i) => i % 17 === 0)

describe.skipIf((await availableAdapter()) === undefined)(
  "the answers of tg-tiny are those of llama.cpp, on WebGPU, software or not",
  () => test(`to ${asked.length} of the questions`, "webgpu", asked, 1_800_000)
)
