import { assert, describe, it } from "@effect/vitest"
import { Ready } from "@tg/jit/Persistent"
import { Effect } from "effect"
import { whileFilling } from "../src/Meanwhile.ts"

describe("programs that are compiled while weights are on their way", () => {
  it.live("are tried once those are there", () =>
    Effect.gen(function*() {
      const done: Array<string> = []
      const note = (what: string) => Effect.sync(() => void done.push(what))
      const fill = Effect.delay(note("filled"), "20 millis")
      const compile = note("compiled").pipe(Effect.andThen(Effect.flatten(Ready)), Effect.andThen(note("tried")))
      yield* whileFilling(fill, compile)
      assert.deepStrictEqual(done, ["compiled", "filled", "tried"])
      // nothing is on its way any more
      yield* Effect.flatten(Ready)
    }))

  it.live("do not wait for weights that never come", () =>
    Effect.gen(function*() {
      const found = yield* Effect.result(whileFilling(Effect.fail("no such file" as const), Effect.flatten(Ready)))
      assert.deepStrictEqual(found._tag === "Failure" ? found.failure : undefined, "no such file")
    }))
})
