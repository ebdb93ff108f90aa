import { expect, it } from "vitest"
import { parrot } from "../src/parrot.ts"
import { say } from "../src/say.ts"

it("speaks, the same to the same", async () => {
  const said = await say("hello", [parrot])
  expect(said.length).toBeGreaterThan(0)
  expect(await say("hello", [parrot])).toBe(said)
  expect(await say("good bye", [parrot])).not.toBe(said)
}, 60_000)

it("is not known to others, who say what is", async () => {
  await expect(say("hello", [])).rejects.toMatchObject({
    _tag: "UnknownArchitecture",
    message: expect.stringContaining("llama, qwen2, qwen3")
  })
}, 60_000)
