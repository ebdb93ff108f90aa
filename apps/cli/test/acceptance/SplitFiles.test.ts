import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Gguf, GgufWriter, Split } from "@tg/gguf"
import { Effect, Result, type Scope } from "effect"
import { tg } from "../support/run.ts"

const bytes = new Uint8Array(readFileSync(new URL("../../models/tg-tiny-Q4_0.gguf", import.meta.url)))
const whole = Result.getOrThrow(Gguf.fromBytes("tiny", bytes))

/** tg-tiny in three files. */
const parts: Effect.Effect<ReadonlyArray<string>, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tg-split-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
).pipe(Effect.map((directory) => {
  const tensors = whole.tensors.map((t) => ({ ...t, data: bytes.subarray(t.offset, t.offset + t.bytes) }))
  return Result.getOrThrow(Split.divide({ metadata: whole.metadata, tensors }, 3)).map((part, i) => {
    const path = join(directory, Split.fileName("tiny", { number: i + 1, count: 3 }))
    writeFileSync(path, Result.getOrThrow(GgufWriter.write(part)))
    return path
  })
}))

const wasm = ["--device", "wasm"]

describe("a model in several files", () => {
  it.live("answers as it does in one, opened by any part", () =>
    Effect.gen(function*() {
      for (const path of yield* parts) {
        const { code, stdout } = yield* tg(["generate", ...wasm, "--model", path, "What is 17 + 25?"])
        assertEquals([code, stdout], [0, "17 + 25 = 42\n"])
      }
    }))

  it.live("is inspected, planned and measured as a whole", () =>
    Effect.gen(function*() {
      const [first, second] = yield* parts
      const inspected = JSON.parse((yield* tg(["inspect", "--json", "--model", second!])).stdout)
      assertEquals(
        [inspected.file, inspected.loadable, inspected.tensors.length],
        [first, true, whole.tensors.length]
      )
      assert.isUndefined(inspected.metadata["split.count"])
      const plan = (path: ReadonlyArray<string>) => tg(["plan", "--json", ...path])
      const numbers = (stdout: string) => {
        // a name, and times
        const { egraph: _, model: __, schedules: ___, ...rest } = JSON.parse(stdout)
        return rest
      }
      const planned = yield* plan(["--model", second!])
      const expected = yield* plan(["--model", new URL("../../models/tg-tiny-Q4_0.gguf", import.meta.url).pathname])
      assertEquals(numbers(planned.stdout), numbers(expected.stdout))
      const bench = yield* tg(["bench", ...wasm, "--json", "-p", "4", "-n", "2", "-r", "1", "--model", first!])
      assert.strictEqual(bench.code, 0, bench.stderr)
    }))

  it.live("is refused with the reason when it is not complete", () =>
    Effect.gen(function*() {
      const [first, second, third] = yield* parts
      renameSync(third!, `${third}.part`)
      for (const command of [["inspect"], ["generate", ...wasm, "hi"], ["bench", ...wasm]]) {
        const { code, stderr, stdout } = yield* tg([...command, "--model", first!])
        assertEquals([code, stdout], [1, ""])
        assert.include(stderr, "tiny-00003-of-00003.gguf: is not there, and the model has 3 parts; download it")
      }
      renameSync(second!, third!)
      const exchanged = yield* tg(["inspect", "--model", third!])
      assert.include(exchanged.stderr, "is named part 3, but says it is part 2; rename it")
      renameSync(third!, join(third!, "../other.gguf"))
      const renamed = yield* tg(["inspect", "--model", join(third!, "../other.gguf")])
      assert.include(renamed.stderr, "name the parts NAME-00002-of-00003.gguf")
    }))
})
