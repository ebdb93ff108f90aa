import { mkdtemp, readFile, rm, stat } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, type Scope } from "effect"
import { tg } from "./support/run.ts"

const folder: Effect.Effect<string, never, Scope.Scope> = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "tg-synth-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true }))
)

describe("synth", () => {
  it.live("writes a file that can be loaded, and runs", () =>
    Effect.gen(function*() {
      const dir = yield* folder
      const [path, out] = [join(dir, "tiny.gguf"), join(dir, "logits.bin")]
      const made = JSON.parse((yield* tg(["synth", "--shape", "tiny-glm:q4_k_m", "--out", path, "--json"])).stdout)
      assert.strictEqual((yield* Effect.promise(() => stat(path))).size, made.bytes)
      const inspected = JSON.parse((yield* tg(["inspect", "--model", path, "--json"])).stdout)
      assertEquals([inspected.loadable, inspected.tensors.length], [true, made.tensors])

      const wasm = ["--model", path, "--device", "wasm"]
      const run = yield* tg(["logits", ...wasm, "--tokens", "1,2,3", "--out", out])
      assert.strictEqual(run.code, 0, run.stderr)
      const bytes = yield* Effect.promise(() => readFile(out))
      const logits = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)
      assert.strictEqual(logits.length, 3 * 512)
      assert.isTrue(logits.every(Number.isFinite))
      assert.isAbove(new Set(logits).size, 1000)

      const raw = yield* tg(["generate", ...wasm, "--raw", "-n", "4", "--json", "hello there"])
      assert.strictEqual(JSON.parse(raw.stdout).tokens.length, 4)
    }).pipe(Effect.scoped))

  it.live("depends on the seed only", () =>
    Effect.gen(function*() {
      const dir = yield* folder
      const write = (name: string, ...more: ReadonlyArray<string>) =>
        Effect.gen(function*() {
          const path = join(dir, name)
          yield* tg(["synth", "--shape", "tiny-youtu:q4_0", "--layers", "1", "--out", path, ...more])
          return yield* Effect.promise(() => readFile(path))
        })
      const [a, b, c] = [yield* write("a"), yield* write("b"), yield* write("c", "--seed", "2")]
      assert.isAbove(a.length, 100_000)
      assert.isTrue(a.equals(b))
      assert.strictEqual(a.length, c.length)
      assert.isFalse(a.equals(c))
    }).pipe(Effect.scoped))

  it.live("--split writes parts with the same tensors", () =>
    Effect.gen(function*() {
      const dir = yield* folder
      const synth = (out: string, ...more: ReadonlyArray<string>) =>
        Effect.map(
          tg(["synth", "--shape", "tiny-youtu:q4_0", "--layers", "1", "--out", out, "--json", ...more]),
          ({ stdout }) => JSON.parse(stdout)
        )
      const whole = join(dir, "whole.gguf")
      yield* synth(whole)
      const { out, parts } = yield* synth(join(dir, "parts.gguf"), "--split", "3")
      assertEquals([out, parts], [join(dir, "parts-00001-of-00003.gguf"), 3])
      const logits = (model: string) =>
        Effect.gen(function*() {
          const path = join(dir, "logits.bin")
          const run = yield* tg([
            "logits",
            "--device",
            "wasm",
            "--model",
            model,
            "--tokens",
            "5,6",
            "--out",
            path,
            "--force"
          ])
          assert.strictEqual(run.code, 0, run.stderr)
          return yield* Effect.promise(() => readFile(path))
        })
      assert.isTrue((yield* logits(out)).equals(yield* logits(whole)))
    }).pipe(Effect.scoped))

  it.live("refuses shapes it does not know, and places it cannot write to", () =>
    Effect.gen(function*() {
      const unknown = yield* tg(["synth", "--shape", "tiny-glm", "--out", "/dev/null"])
      assertEquals([unknown.code, unknown.stdout], [1, ""])
      assert.include(unknown.stderr, "tiny-glm:q4_0")
      const nowhere = join(yield* folder, "missing", "tiny.gguf")
      const denied = yield* tg(["synth", "--shape", "tiny-glm:q4_0", "--out", nowhere])
      assert.strictEqual(denied.code, 1)
      assert.include(denied.stderr, "cannot be written")
    }).pipe(Effect.scoped))
})
