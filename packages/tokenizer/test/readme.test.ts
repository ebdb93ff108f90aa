import { assert, it } from "@effect/vitest"
import { Result } from "effect"
import { metadataOf, readText } from "./support/files.ts"
import { reply } from "./support/example.ts"

it("shows an example that runs", () => {
  assert.include(readText("packages/tokenizer/README.md"), readText("packages/tokenizer/test/support/example.ts"))
  const metadata = metadataOf("apps/cli/models/tg-tiny-Q4_0.gguf")
  const { answer, prompt } = Result.getOrThrow(reply(metadata, [72, 636, 391, 32, 49, 52, 50, 1063, 46, 1259]))
  assert.strictEqual(answer, "Hans has 142 marbles.")
  assert.deepStrictEqual(prompt.slice(0, 3), [1261, 1263, 1266])
})
