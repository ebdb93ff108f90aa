import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { afterAll, assert, describe, it } from "vitest"
import { tg } from "./support/run.ts"

const folder = mkdtempSync(join(tmpdir(), "tg-form-"))
afterAll(() => rmSync(folder, { recursive: true }))

const file = (name: string, content: unknown): string => {
  const path = join(folder, name)
  writeFileSync(path, JSON.stringify(content))
  return path
}

const generate = (args: ReadonlyArray<string>, stdin = "") =>
  Effect.runPromise(tg(["generate", "--device", "wasm", ...args], stdin))

const question = "What is 17 + 25?"
const number = { type: "integer", enum: [17, 25, 42] }
const answer = file("answer.json", {
  type: "object",
  properties: { answer: number },
  required: ["answer"],
  additionalProperties: false
})
const parameters = { type: "object", properties: { a: number, b: number }, required: ["a", "b"] }
const tools = file("tools.json", [{ type: "function", function: { name: "add", description: "Adds", parameters } }])

describe("generate", () => {
  it("ends in front of --stop, also where the text crosses tokens", async () => {
    const { code, stdout } = await generate(["--stop", "no such", "--stop", "5 =", question])
    assert.deepStrictEqual([code, stdout], [0, "17 + 2\n"])
    const json = JSON.parse((await generate(["--json", "--stop", "= 4", question])).stdout)
    assert.deepStrictEqual([json.text, json.stop], ["17 + 25 ", "text"])
  })

  it("--schema gives JSON that the schema allows", async () => {
    const { code, stdout } = await generate(["--schema", answer, question])
    assert.strictEqual(code, 0)
    assert.include([17, 25, 42], JSON.parse(stdout).answer)
  })

  it("--schema says so where the text is cut before it is whole", async () => {
    const { code, stderr, stdout } = await generate(["-n", "2", "--schema", answer, question])
    assert.strictEqual(code, 1)
    assert.throws(() => JSON.parse(stdout))
    assert.include(stderr, "the text was cut after 2 tokens and is not whole: -n 2 ended it; give it more")
    const json = JSON.parse((await generate(["--json", "-n", "2", "--schema", answer, question])).stdout)
    assert.deepStrictEqual([json.complete, json.stop], [false, "length"])
  })

  it("--tools with --tool-choice calls a tool, on a line of JSON", async () => {
    const { code, stdout } = await generate(["--tools", tools, "--tool-choice", "add", question])
    assert.strictEqual(code, 0)
    const call = JSON.parse(stdout)
    assert.deepStrictEqual([call.name, Object.keys(call.arguments)], ["add", ["a", "b"]])
    assert.isTrue(Object.values(call.arguments).every((n) => [17, 25, 42].includes(Number(n))))
  })

  it("--tools with --json tells calls apart from the text", async () => {
    const { stdout } = await generate(["--json", "--tools", tools, "--tool-choice", "add", question])
    const { text, tool_calls } = JSON.parse(stdout)
    assert.deepStrictEqual([text, tool_calls.length, tool_calls[0].name, tool_calls[0].complete], ["", 1, "add", true])
  })

  it("reads stdin where there is no prompt, and behind -p with -", async () => {
    assert.strictEqual((await generate([], `${question}\n`)).stdout, "17 + 25 = 42\n")
    assert.strictEqual((await generate([question], "never read")).stdout, "17 + 25 = 42\n")
    const both = JSON.parse((await generate(["--json", "-n", "1", "-p", "a", "-"], "b\n")).stdout)
    const alone = JSON.parse((await generate(["--json", "-n", "1", "a\n\nb"])).stdout)
    assert.strictEqual(both.timings.promptTokens, alone.timings.promptTokens)
    const { code, stderr } = await generate([])
    assert.strictEqual(code, 1)
    assert.include(stderr, "there is nothing to answer")
  })

  it.each(
    [
      [["--temprature", "1"], "unknown flag --temprature, did you mean --temperature?"],
      [["--stop", ""], "--stop needs a text"],
      [["--schema", "/no/such.json"], "/no/such.json"],
      [["--schema", file("unique.json", { type: "array", uniqueItems: true })], "asks for what cannot be enforced"],
      [["--schema", answer, "--thinking"], "leave out --thinking"],
      [["--schema", answer, "--tools", tools], "keep one of them"],
      [["--tool-choice", "add"], "--tools, which is missing"],
      [["--tools", tools, "--tool-choice", "sub"], "the tools are add"],
      [["--tools", tools, "--raw"], "leave out --raw"],
      [["--tools", file("bad.json", [{ type: "function" }])], "another form than expected"]
    ] as const
  )("%j is refused in a line or two", async (args, message) => {
    const { code, stderr, stdout } = await generate([...args, question])
    assert.deepStrictEqual([code, stdout], [1, ""])
    assert.include(stderr, message)
    assert.isAtMost(stderr.trim().split("\n").length, 2)
  })
})
