import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { tg } from "./support/run.ts"

const Drafts = Schema.Struct({ steps: Schema.Int, drafted: Schema.Int, accepted: Schema.Int })
const Generated = Schema.fromJsonString(
  Schema.Struct({ tokens: Schema.Array(Schema.Int), drafts: Schema.optionalKey(Drafts) })
)
const Measured = Schema.fromJsonString(Schema.Struct({
  decode: Schema.Tuple([
    Schema.Struct({
      drafts: Drafts,
      verify: Schema.Array(Schema.Struct({ tokens: Schema.Int, ms: Schema.Finite }))
    })
  ])
}))
const onWasm = ["--device", "wasm", "--json"]

describe("--draft", () => {
  it.live("says what was accepted, and the text is the same", () =>
    Effect.gen(function*() {
      const question = "Repeat these digits: 4 0 8 8 0 4 0 8 8 0 4 0 8 8 0"
      const generate = Effect.fnUntraced(function*(draft: string) {
        const { stderr, stdout } = yield* tg([
          ...["generate", question, "--temperature", "0.8", "--seed", "3", "-n", "30", "--draft", draft],
          ...onWasm
        ])
        return { ...yield* Schema.decodeEffect(Generated)(stdout), stderr }
      })
      const off = yield* generate("off")
      assert.isUndefined(off.drafts)
      for (const name of ["lookup", "auto"]) {
        const { drafts, stderr, tokens } = yield* generate(name)
        assert.deepStrictEqual(tokens, off.tokens)
        assert.include(stderr, `${drafts!.accepted} of ${drafts!.drafted} drafted token`)
        if (name === "lookup") assert.isAbove(drafts!.accepted, 0)
      }
    }))

  it.live("bench says what was accepted, and what steps of several tokens take", () =>
    Effect.gen(function*() {
      const { stdout } = yield* tg(["bench", "-p", "8", "-n", "16", "-r", "1", "--draft", "lookup", ...onWasm])
      const { decode: [{ drafts, verify }] } = yield* Schema.decodeEffect(Measured)(stdout)
      assert.deepStrictEqual(verify.map(({ tokens }) => tokens), [1, 2, 4, 8, 16])
      assert.isAbove(drafts.steps, 0)
      assert.isAtMost(drafts.accepted, drafts.drafted)
    }))

  it.live("refuses a way that it does not know", () =>
    Effect.gen(function*() {
      const { code, stderr } = yield* tg(["generate", "hi", "--draft", "guess"])
      assert.notStrictEqual(code, 0)
      assert.include(stderr, "guess")
      assert.include(stderr, "lookup")
    }))
})
