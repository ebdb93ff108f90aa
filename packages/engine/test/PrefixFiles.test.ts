import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem } from "effect"
import * as PrefixFiles from "../src/PrefixFiles.ts"
import { PrefixStore } from "../src/PrefixStore.ts"

const counting = (length: number): ReadonlyArray<number> => Array.from({ length }, (_, i) => i)
const snapshot = (length: number, forgotten = 0) => ({
  tokens: counting(length),
  rows: [Uint8Array.of(length, forgotten)],
  forgotten
})

/** A store over a folder of its own, and how much of a conversation it offers. */
const store = Effect.gen(function*() {
  const fs = yield* FileSystem.FileSystem
  const directory = yield* fs.makeTempDirectoryScoped()
  const { find, keep } = yield* PrefixStore.pipe(
    Effect.provide(PrefixFiles.layer({ directory, version: "1" }))
  )
  const shared = (length: number) => Effect.map(find("m", counting(length)), (found) => found?.shared ?? 0)
  return { keep: (length: number, forgotten?: number) => keep("m", snapshot(length, forgotten)), shared }
})

describe("files of prefixes", () => {
  it.effect("a longer one takes the place of its beginnings", () =>
    Effect.gen(function*() {
      const { keep, shared } = yield* store
      yield* keep(10)
      yield* keep(30)
      assert.deepEqual(yield* Effect.forEach([5, 10, 20, 30, 40], shared), [5, 10, 20, 30, 30])
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)))

  it.effect("one that has forgotten its first rows stands for itself alone", () =>
    Effect.gen(function*() {
      const { keep, shared } = yield* store
      yield* keep(10)
      yield* keep(30, 12)
      // in the middle of it only the other one helps
      assert.deepEqual(yield* Effect.forEach([5, 10, 20, 30, 40], shared), [5, 10, 10, 30, 30])
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)))
})
