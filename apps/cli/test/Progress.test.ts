import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Exit, Sink, Stdio } from "effect"
import { TestClock } from "effect/testing"
import * as Progress from "../src/Progress.ts"
import * as Screen from "../src/Screen.ts"

const at = (loadedBytes: number) => ({ tensor: "x", loadedBytes, totalBytes: 17_200_000_000 })

describe("words", () => {
  it("for sizes", () =>
    assertEquals([0, 999, 1000, 7_300_000, 17_200_000_000].map(Progress.bytes), [
      "0 B",
      "999 B",
      "1.0 kB",
      "7.3 MB",
      "17.2 GB"
    ]))
  it("for times", () =>
    assertEquals([0, 0.2, 59, 60, 125].map(Progress.seconds), ["0 s", "1 s", "59 s", "1 min 0 s", "2 min 5 s"]))
  it("the bar has bytes, rate and time left", () => {
    assert.strictEqual(
      Progress.bar(at(4_300_000_000), 4000),
      "loading [######------------------] 4.3 GB of 17.2 GB, 1.1 GB/s, 12 s left"
    )
    assert.include(Progress.bar(at(17_200_000_000), 16_000), "[########################] 17.2 GB of 17.2 GB")
  })
  it("the bar stays on its line, however narrow it is, and says what fits", () => {
    const shown = [200, 80, 72, 60, 40, 20, 9].map((columns) => Progress.bar(at(4_300_000_000), 4000, columns))
    assertEquals(shown, [
      "loading [######------------------] 4.3 GB of 17.2 GB, 1.1 GB/s, 12 s left",
      "loading [######------------------] 4.3 GB of 17.2 GB, 1.1 GB/s, 12 s left",
      "loading [#####-----------------] 4.3 GB of 17.2 GB, 1.1 GB/s, 12 s left",
      "loading [##--------] 4.3 GB of 17.2 GB, 1.1 GB/s, 12 s left",
      "loading [#-----] 4.3 GB of 17.2 GB",
      "loading [#-----]",
      "loading"
    ])
    assert.strictEqual(
      Progress.promptBar(512, 4096, 60),
      "reading the prompt [##-----------------] 512 of 4096 tokens"
    )
  })
  it("a bar at the very start divides by nothing", () => assert.notMatch(Progress.bar(at(1), 0), /NaN|Infinity/))
})

describe("reading a prompt", () => {
  /** What is written while a prompt is read for so long. */
  const read = (screen: Screen.Screen, millis: number) =>
    Effect.gen(function*() {
      const parts: Array<string> = []
      const stderr = () => Sink.forEach((part: string | Uint8Array) => Effect.sync(() => parts.push(String(part))))
      let done = 0
      yield* Effect.gen(function*() {
        yield* Progress.reading(4096, () => done)
        for (let at = 0; at < millis; at += 500) {
          done += 256
          yield* TestClock.adjust("500 millis")
        }
      }).pipe(
        Effect.scoped,
        Effect.provide(Stdio.layerTest({ stderr })),
        Effect.provideService(Screen.Screen, screen)
      )
      return parts
    })
  it.effect("a short one is read without a word", () =>
    Effect.gen(function*() {
      assertEquals(yield* read(Screen.plain, 1000 - 500), [])
      assertEquals(yield* read({ canRewrite: true, columns: 80 }, 1000 - 500), [])
    }))
  it.effect("elsewhere: a line now and then", () =>
    Effect.gen(function*() {
      assertEquals(yield* read(Screen.plain, 7000), [
        "reading the prompt: 512 of 4096 tokens\n",
        "reading the prompt: 3072 of 4096 tokens\n"
      ])
    }))
  it.effect("on a terminal: a bar that is gone in the end", () =>
    Effect.gen(function*() {
      const parts = yield* read({ canRewrite: true, columns: 60 }, 2000)
      assert.strictEqual(parts[0], "\rreading the prompt [##-----------------] 512 of 4096 tokens\u001b[K")
      assert.strictEqual(parts.at(-1), "\r\u001b[K")
    }))
})

/** What a loading of four parts, 60 ms each, writes to stderr. */
const written = (isTerminal: boolean, exit: Exit.Exit<void, string> = Exit.void) =>
  Effect.gen(function*() {
    const parts: Array<string> = []
    const stderr = () => Sink.forEach((part: string | Uint8Array) => Effect.sync(() => parts.push(String(part))))
    const told = yield* Progress.start("m.gguf", 4000).pipe(
      Effect.provide(Stdio.layerTest({ stderr })),
      Effect.provideService(Screen.Screen, { canRewrite: isTerminal, columns: 80 })
    )
    for (const loadedBytes of [1000, 2000, 3000, 4000]) {
      yield* TestClock.adjust("60 millis")
      yield* told.onProgress({ tensor: "x", loadedBytes, totalBytes: 4000 })
    }
    // compiling is not loading
    yield* TestClock.adjust("10 seconds")
    yield* told.end(exit)
    return parts
  })

describe("what is told", () => {
  it.effect("on a terminal: a line that is written over at most every 100 ms, and the end", () =>
    Effect.gen(function*() {
      const parts = yield* written(true)
      const shown = parts.map((part) => part.replace("\r", "over: ").replace("\u001b[K", "").replace(/\[.*\] /, ""))
      assertEquals(shown, [
        "over: loading 1.0 kB of 4.0 kB, 16.7 kB/s, 1 s left",
        "over: loading 3.0 kB of 4.0 kB, 16.7 kB/s, 1 s left",
        "over: loading 4.0 kB of 4.0 kB, 16.7 kB/s, compiling",
        "over: ",
        "loaded 4.0 kB in 0.2 s (16.7 kB/s)\n"
      ])
    }))
  it.effect("elsewhere: two lines", () =>
    Effect.gen(function*() {
      assertEquals(yield* written(false), ["loading m.gguf, 4.0 kB\n", "loaded 4.0 kB in 0.2 s (16.7 kB/s)\n"])
    }))
  it.effect("after a failure the bar is gone, and nothing is said to be loaded", () =>
    Effect.gen(function*() {
      assert.strictEqual((yield* written(true, Exit.fail("x"))).at(-1), "\r\x1b[K")
      assertEquals(yield* written(false, Exit.fail("x")), ["loading m.gguf, 4.0 kB\n"])
    }))
})
