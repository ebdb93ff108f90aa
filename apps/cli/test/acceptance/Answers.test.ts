import { describe } from "@effect/vitest"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { questions, test } from "./support/tiny.ts"

describe("the answers of tg-tiny are those of llama.cpp", () => test("on wasm", "wasm", questions, 180_000))

// Software Vulkan takes minutes for all of them: without TG_FULL=1 it is asked one question of every kind it can be.
const all = process.env["TG_FULL"] === "1"
const asked = all ? questions : questions.filter((_, i) => i % 17 === 0)

describe.skipIf((await availableAdapter()) === undefined)(
  "the answers of tg-tiny are those of llama.cpp on WebGPU, software or not",
  () => test(`${asked.length} questions`, "webgpu", asked, 1_800_000)
)
