import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Result } from "effect"
import * as fs from "node:fs"
import * as Gguf from "../src/Gguf.ts"
import * as Metadata from "../src/Metadata.ts"
import { load, path, paths } from "./support/sources.ts"

const read = (relative: string) => Result.getOrThrow(Gguf.fromBytes(relative, load(relative)))

const counts = (gguf: Gguf.Gguf) => {
  const found: Record<string, number> = {}
  for (const { type } of gguf.tensors) found[type] = (found[type] ?? 0) + 1
  return found
}

describe("files of other writers", () => {
  it("are 21", () => assert.strictEqual(paths.length, 21))

  it.each(paths.filter((each) => each.includes("oracle")))("%s has the tensors its description counts", (relative) => {
    const gguf = read(relative)
    const { architecture = "deepseek2", n_vocab, tensor_types } = JSON.parse(
      fs.readFileSync(path(relative.replace(".gguf", ".json")), "utf8")
    )
    assertEquals(counts(gguf), tensor_types)
    assert.strictEqual(Result.getOrThrow(Metadata.getString(gguf, "general.architecture")), architecture)
    assert.strictEqual(Result.getOrThrow(Metadata.getStrings(gguf, "tokenizer.ggml.tokens")).length, n_vocab)
    // The usual writers place tensors one after the other and pad the last one too.
    let end = gguf.dataOffset
    for (const { bytes, offset } of gguf.tensors) {
      assert.strictEqual(offset, end)
      end = Math.ceil((offset + bytes) / gguf.alignment) * gguf.alignment
    }
    assert.strictEqual(end, gguf.size)
  })

  const sizes: Readonly<Record<string, number>> = { "llama-bpe": 1024, qwen2: 1024, spm: 1280, "spm-b": 1088 }

  it.each(paths.filter((each) => each.includes("tokenizer")))("%s has a vocabulary and no tensors", (relative) => {
    const gguf = read(relative)
    assert.strictEqual(gguf.tensors.length, 0)
    const size = sizes[/([^/]+)\.vocab\.gguf$/.exec(relative)?.[1] ?? ""] ?? 1536
    assert.strictEqual(Result.getOrThrow(Metadata.getStrings(gguf, "tokenizer.ggml.tokens")).length, size)
    assert.strictEqual(Result.getOrThrow(Metadata.getInt32s(gguf, "tokenizer.ggml.token_type")).length, size)
  })

  it("reads the small model of the command line", () => {
    const gguf = read("apps/cli/models/tg-tiny-Q4_0.gguf")
    assert.isAbove(gguf.tensors.length, 0)
    assert.isDefined(counts(gguf).Q4_0)
  })

  it.each(paths)(
    "%s reads the same in small chunks",
    (relative) =>
      assertEquals(Result.getOrThrow(Gguf.fromBytes(relative, load(relative), { chunkBytes: 100 })), read(relative))
  )
})
