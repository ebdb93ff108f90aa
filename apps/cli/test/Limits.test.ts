import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, type Scope } from "effect"
import { type Outcome, tg } from "./support/run.ts"

const folder: Effect.Effect<string, never, Scope.Scope> = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "tg-limits-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true }))
)

const assertRefused = ({ code, stderr, stdout }: Outcome, ...words: ReadonlyArray<string>): void => {
  assert.strictEqual(code, 1)
  assert.strictEqual(stdout, "")
  for (const word of words) assert.include(stderr, word)
  assert.notMatch(stderr, /^\s+at /m)
}

const wasm = ["--device", "wasm"]

describe("--limit, --no-subgroups and --no-matrix-units", () => {
  it.live("change nothing about an answer", () =>
    Effect.gen(function*() {
      const windows = ["--limit", "maxStorageBufferBindingSize=262144", "--limit", "maxBufferSize=524288"]
      const { code, stdout } = yield* tg([
        "generate",
        ...wasm,
        ...windows,
        "--no-subgroups",
        "--no-matrix-units",
        "--context",
        "128",
        "What is 17 + 25?"
      ])
      assertEquals([code, stdout], [0, "17 + 25 = 42\n"])
    }))

  it.live("are refused before anything is loaded, with the limits that there are", () =>
    Effect.gen(function*() {
      const commands = [
        ["generate", "hello"],
        ["eval", "questions.jsonl"],
        ["logits", "--tokens", "1", "--out", "x"],
        ["bench", "-n", "1"],
        ["profile"],
        ["tune"],
        ["plan", "--shape", "tiny-glm:q4_0"],
        ["kernel"],
        ["doctor"]
      ]
      for (const command of commands.filter(([name]) => name !== "eval")) {
        assertRefused(
          yield* tg([...command, "--limit", "maxStorageBufferBinding=1"]),
          "maxStorageBufferBinding is not known",
          "maxStorageBufferBindingSize, maxBufferSize"
        )
      }
      assertRefused(
        yield* tg(["generate", "hello", "--limit", "maxBufferSize=1MB"]),
        "maxBufferSize=1MB",
        "whole number"
      )
    }))

  it.live("memory=BYTES refuses a model that takes more, with the sum", () =>
    Effect.gen(function*() {
      assertRefused(
        yield* tg(["generate", ...wasm, "--limit", "memory=1000000", "hello"]),
        "does not fit wasm: weights 0.00",
        "> 0.00100 GB; its weights alone are more; use a smaller model"
      )
      const plan = ["plan", "--shape", "glm-4.7-flash:q4_0", "--profile", "wasm"]
      assert.match((yield* tg(plan)).stdout, /of memory, MORE THAN the 4\.29 GB there are: weights 17\.\d+ GB/)
    }))
})

describe("doctor --measure", () => {
  it.live("writes a profile that plan takes", () =>
    Effect.gen(function*() {
      const out = join(yield* folder, "here.json")
      const { code, stdout } = yield* tg(["doctor", "--measure", ...wasm, "--out", out, "--json"])
      assert.strictEqual(code, 0)
      const { measured } = JSON.parse(stdout)
      assert.strictEqual(measured.device, "wasm")
      assert.isAbove(measured.dispatchMicros, 0)
      assert.isAtLeast(measured.readings.length, 2)
      for (const { bytes, bytesPerMicro, micros } of measured.readings) {
        assert.isAbove(micros, 0)
        // a byte a second to a terabyte a second
        assert.isTrue(bytesPerMicro > 1e-6 && bytesPerMicro < 1e6, `${bytes} bytes: ${bytesPerMicro}`)
      }
      const planned = JSON.parse(
        (yield* tg(["plan", "--shape", "tiny-glm:q4_0", "--profile", out, "--json"])).stdout
      )
      assert.strictEqual(planned.deviceProfile, "wasm")
      const { bytesPerMicro, dispatchMicros } = measured.profile
      assert.closeTo(
        1000 * planned.predictedMsPerToken,
        planned.dispatchesPerToken * dispatchMicros + planned.movedBytesPerToken / bytesPerMicro,
        1e-6 * 1000 * planned.predictedMsPerToken
      )
    }).pipe(Effect.scoped))

  it.live("--out alone makes no sense", () =>
    Effect.map(tg(["doctor", "--out", "x.json"]), (outcome) => assertRefused(outcome, "--out", "--measure")))
})
