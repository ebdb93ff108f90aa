import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Aliases from "../src/Aliases.ts"
import * as Hub from "../src/Hub.ts"
import { isName, type ModelName, parse, print, shortOf } from "../src/ModelName.ts"
import * as Selection from "../src/Selection.ts"

describe("names", () => {
  it.each<readonly [string, ModelName]>([
    ["hf:a/b/c.gguf", { type: "file", owner: "a", repo: "b", file: "c.gguf" }],
    ["hf:a/b/d/c.GGUF", { type: "file", owner: "a", repo: "b", file: "d/c.GGUF" }],
    ["hf:a/b@v1.0/c.gguf", { type: "file", owner: "a", repo: "b", revision: "v1.0", file: "c.gguf" }],
    ["hf:a-b/c.d_e:q4_k_m", { type: "model", owner: "a-b", repo: "c.d_e", quant: "Q4_K_M" }],
    ["hf:a/b@main:Q8_0", { type: "model", owner: "a", repo: "b", revision: "main", quant: "Q8_0" }],
    ["hf:a/b", { type: "model", owner: "a", repo: "b" }],
    ["https://h/x.gguf?a=b#c", { type: "address", url: "https://h/x.gguf?a=b" }],
    ["http://127.0.0.1:80/x", { type: "address", url: "http://127.0.0.1/x" }],
    ["http://[::1]:8080/x", { type: "address", url: "http://[::1]:8080/x" }]
  ])("%s", (text, name) => {
    assert.isTrue(isName(text))
    assert.deepStrictEqual(parse(text), Result.succeed(name))
    assert.deepStrictEqual(parse(print(name)), Result.succeed(name))
  })

  it.each([
    "",
    "model.gguf",
    "./hf.gguf",
    "hf:",
    "hf:a",
    "hf:a/",
    "hf:a/b:",
    "hf:a/b:Q4 0",
    "hf:a/b/c.txt",
    "hf:a/b/../c.gguf",
    "hf:a/b//c.gguf",
    "hf:a/b/..\\c.gguf",
    "hf:../b/c.gguf",
    "hf:a/b@../x:Q4_0",
    "http://example.org/x.gguf",
    "http://127.0.0.1.example.org/x.gguf",
    "https://user:secret@h/x.gguf",
    "https://",
    "ftp://h/x",
    "glm-4.7-flash:a:b",
    "glm"
  ])("%s is none", (text) => {
    const result = parse(text)
    assert.isTrue(Result.isFailure(result))
    assert.notInclude(Result.isFailure(result) ? result.failure.message : "", "secret")
  })

  it("short names lead to repositories and come back", () => {
    for (const [short, { owner, quant, repo }] of Object.entries(Aliases.aliases)) {
      const name = Result.getOrThrow(parse(short))
      assert.strictEqual(print(name), `hf:${owner}/${repo}:${quant}`)
      assert.strictEqual(shortOf(name), short)
      assert.strictEqual(shortOf(Result.getOrThrow(parse(`${short}:q6_k`))), `${short}:Q6_K`)
    }
    assert.isFalse(isName("glm"))
  })

  it("what becomes a file name leads nowhere else", () => {
    for (const path of ["a/../..", "..", "a/%2e%2e%2fb", "/", "a/CON:x", "%00", "%2Fetc%2Fpasswd", "a\\b", "%ZZ"]) {
      assert.notMatch(Hub.fileNameOf(path), /[/\\:\0]|^\./)
      assert.notStrictEqual(Hub.fileNameOf(path), "")
    }
    assert.strictEqual(Hub.fileNameOf("/x/My%20Model.gguf"), "My Model.gguf")
  })
})

describe("quantisations in file names", () => {
  it.each([
    ["A-Q4_K_M.gguf", "Q4_K_M"],
    ["a.q8_0.gguf", "Q8_0"],
    ["BF16/A-BF16-00001-of-00003.gguf", "BF16"],
    ["A-IQ2_XXS.gguf", "IQ2_XXS"],
    ["A-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"],
    ["A-F16.gguf", "F16"],
    ["Q4_0/A.gguf", "Q4_0"],
    ["A-MXFP4_MOE.gguf", "MXFP4_MOE"],
    ["A.gguf", undefined],
    ["Q-4.gguf", undefined]
  ])("%s", (path, quant) => assert.strictEqual(Selection.quantOf(path), quant))
})
