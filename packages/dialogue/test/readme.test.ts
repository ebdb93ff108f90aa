import { assert, it } from "@effect/vitest"
import { Result } from "effect"
import { readFileSync } from "node:fs"
import { call } from "./support/example.ts"
import { models } from "./support/models.ts"

const here = (path: string): string => readFileSync(new URL(path, import.meta.url), "utf8")

it("shows an example that runs", () => {
  assert.include(here("../README.md"), here("./support/example.ts"))
  const { codec, template } = models.youtu
  const wanted = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\":17,\"b\":25}}</tool_call>"
  let left = codec.encode(wanted, { parseSpecial: true })
  const parts = Result.getOrThrow(call(template, codec, (_, mask) => {
    const [id, ...rest] = left
    left = rest
    assert.strictEqual((mask[id! >>> 5]! >>> (id! & 31)) & 1, 1)
    return id!
  }))
  assert.deepStrictEqual(parts.at(0), { type: "tool-start", index: 0, name: "add" })
  assert.strictEqual(
    parts.map((part) => part.type === "tool-arguments" ? part.text : "").join(""),
    "{\"a\":17,\"b\":25}"
  )
})
