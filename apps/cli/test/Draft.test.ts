import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { defaultModel } from "../src/Flags.ts"
import { tg } from "./support/run.ts"

const Drafts = Schema.Struct({ steps: Schema.Int, drafted: Schema.Int, accepted: Schema.Int })
const Generated = Schema.fromJsonString(
  Schema.Struct({ text: Schema.String, tokens: Schema.Array(Schema.Int), drafts: Schema.optionalKey(Drafts) })
)
const Measured = Schema.fromJsonString(Schema.Struct({
  decode: Schema.Tuple([
    Schema.Struct({
      drafts: Drafts,
      verify: Schema.Array(Schema.Struct({ tokens: Schema.Int, ms: Schema.Finite }))
    })
  ])
}))
const ForcedRounds = Schema.fromJsonString(Schema.Struct({
  forced: Schema.Array(Schema.Struct({ drafts: Schema.Int, tokensPerRound: Schema.Finite }))
}))
const TogetherRounds = Schema.fromJsonString(Schema.Struct({
  parallel: Schema.Tuple([Schema.Struct({
    forced: Schema.Array(Schema.Struct({ drafts: Schema.Int, tokensPerSecond: Schema.Finite, gain: Schema.Finite })),
    drafts: Schema.Struct({ drafted: Schema.Int, accepted: Schema.Int })
  })])
}))

/** A model with a prediction block, of random weights. */
const predicting = fileURLToPath(new URL("../../../test/vectors/oracle-families/mtp01.gguf", import.meta.url))
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

  it.live("takes a second model: tg-tiny guesses all that tg-tiny says", () =>
    Effect.gen(function*() {
      const { stdout } = yield* tg(["generate", "What is 17 + 25?", "--draft-model", defaultModel, ...onWasm])
      const { drafts, text } = yield* Schema.decodeEffect(Generated)(stdout)
      assert.strictEqual(text, "17 + 25 = 42")
      assert.isAbove(drafts!.drafted, 0)
      assert.strictEqual(drafts!.accepted, drafts!.drafted)
    }))

  it.live("refuses a second model of another vocabulary, or with another way to draft", () =>
    Effect.gen(function*() {
      const other = yield* tg(["generate", "hi", "--draft-model", predicting])
      assert.notStrictEqual(other.code, 0)
      assert.include(other.stderr, "it has 384 tokens, and 1280 are needed")
      const both = yield* tg(["generate", "hi", "--draft-model", defaultModel, "--draft", "lookup"])
      assert.notStrictEqual(both.code, 0)
      assert.include(both.stderr, "--draft lookup")
    }))

  it.live("drafts by the prediction block, and plan says what that takes", () =>
    Effect.gen(function*() {
      const text = ["generate", "-m", predicting, "--raw", "hello", "-n", "12", "--draft", "mtp"]
      const { drafts, tokens } = yield* Schema.decodeEffect(Generated)((yield* tg([...text, ...onWasm])).stdout)
      assert.isAtMost(tokens.length, 12)
      assert.isAbove(drafts!.drafted, 0)
      assert.isAtMost(drafts!.accepted, drafts!.drafted)
      const { stdout } = yield* tg(["plan", "-m", predicting, "--parallel", "2", "--profile", "wasm"])
      assert.include(stdout, "of the prediction block besides")
      assert.match(stdout, /2 conversations in the same steps: .* of memory/)
      assert.match(
        stdout,
        /a round of 3 of the prediction block's guesses for each, all right: \d+ launches, .* ms predicted/
      )
      const { code, stderr } = yield* tg(["plan", "--shape", "tiny-glm:q4_0", "--draft", "mtp"])
      assert.notStrictEqual(code, 0)
      assert.include(stderr, "tiny-glm:q4_0 has no prediction block")
    }))

  it.live("bench says what drafts gain if so many are right", () =>
    Effect.gen(function*() {
      const { stdout } = yield* tg([
        ...["bench", "-m", predicting, "-p", "2", "-n", "8", "-r", "1", "--draft", "mtp", "--accept", "1"],
        ...onWasm
      ])
      const { forced } = yield* Schema.decodeEffect(ForcedRounds)(stdout)
      assert.deepStrictEqual(forced.map(({ drafts, tokensPerRound }) => tokensPerRound - drafts), [1, 1, 1, 1, 1])
    }))

  it.live("bench --parallel says it of conversations in one step", () =>
    Effect.gen(function*() {
      const { stdout } = yield* tg([
        ...["bench", "-m", predicting, "-p", "4", "-n", "6", "-r", "1", "--draft", "mtp", "--accept", "1"],
        ...["--parallel", "2", ...onWasm]
      ])
      const { parallel: [speed] } = yield* Schema.decodeEffect(TogetherRounds)(stdout)
      assert.deepStrictEqual(speed.forced.map(({ drafts }) => drafts), [1, 3])
      assert.isAbove(speed.drafts.drafted, 0)
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
