import { assert, it } from "@effect/vitest"
import { Result } from "effect"
import { readFileSync } from "node:fs"
import { example } from "./support/example.ts"

const read = (file: string): string => readFileSync(new URL(file, import.meta.url), "utf8")

it("shows an example that runs", () => {
  assert.include(read("../README.md"), read("support/example.ts"))
  const bytes = (id: number): Uint8Array | undefined => id < 256 ? Uint8Array.of(id) : undefined
  const wanted = [...new TextEncoder().encode("{\"answer\":42}")]
  let at = 0
  const ids = example({ size: 257, bytesOf: bytes, endTokens: [256] }, (mask) => {
    const id = wanted[at++]!
    assert.strictEqual((mask[id >>> 5]! >>> (id & 31)) & 1, 1)
    return id
  })
  assert.deepStrictEqual(Result.getOrThrow(ids), wanted)
})
