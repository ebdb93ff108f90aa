import { execFile } from "node:child_process"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Stream } from "effect"
import * as Model from "../src/Model.ts"

const root = fileURLToPath(new URL("../../..", import.meta.url))
const tiny = fileURLToPath(new URL("../../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url))
const question = "What is 17 + 25?"

describe("load", () => {
  it.live("chats, and goes on with the conversation", () =>
    Effect.gen(function*() {
      const model = yield* Model.load(tiny, { device: "wasm", threads: 1 })
      assertEquals([model.name, model.device], ["tg-tiny", "wasm"])
      assert.strictEqual(yield* Stream.mkString(model.chat(question)), "17 + 25 = 42")
      const cached = (yield* model.engine.cached).length
      const next = [
        { role: "user", content: "What is the capital of Peru?" },
        { role: "assistant", content: "Lima" },
        { role: "user", content: question }
      ]
      assert.strictEqual(yield* Stream.mkString(model.chat(next)), "17 + 25 = 42")
      assert.isAbove((yield* model.engine.cached).length, cached)
      assert.strictEqual(yield* Stream.mkString(model.chat(question, { maxTokens: 2 })), "17")
      const drawn = (seed: number) => Stream.mkString(model.chat(question, { temperature: 2, seed, maxTokens: 8 }))
      assert.strictEqual(yield* drawn(1), yield* drawn(1))
    }).pipe(Effect.scoped))

  it.live("fails with the loader's errors", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(Effect.scoped(Model.load("/no/such/file.gguf")))
      assert.strictEqual(error._tag, "ByteSourceError")
    }))
})

describe("open", () => {
  it("streams to programs without Effect, and ends a reply that is not read on", async () => {
    await using model = await Model.open(tiny, { device: "wasm", threads: 1 })
    for await (const text of model.chat(question)) {
      assert.strictEqual(text, "1")
      break
    }
    const texts: Array<string> = []
    for await (const text of model.chat(question)) texts.push(text)
    assert.strictEqual(texts.join(""), "17 + 25 = 42")
  })

  it("throws typed errors", async () => {
    const error = await Model.open("/no/such/file.gguf").catch((cause: unknown) => cause)
    assert.propertyVal(error, "_tag", "ByteSourceError")
    assert.include(String(error), "/no/such/file.gguf")
  })
})

describe("the examples", () => {
  it.each(["chat.ts", "effect.ts"])("%s answers, and ends", async (name) => {
    const { stdout } = await promisify(execFile)(process.execPath, [`examples/node/${name}`], { cwd: root })
    assert.strictEqual(stdout.trim(), "17 + 25 = 42")
  })
})
