import * as Verdict from "@tg/self-test/Verdict"
import { Effect, Exit, Option, Result, Schema } from "effect"
import { assert, describe, it } from "vitest"
import * as Thin from "../src/internal/schema.ts"

/** The same schemas, of Effect and of bundles. */
const schemasOf = (library: typeof Schema) => {
  const { Array, Boolean, Finite, Int, Literal, Literals, Number, Struct, TaggedStruct, Tuple, Union } = library
  const { String, declare, isBetween, isGreaterThan, isGreaterThanOrEqualTo, isPattern, optional, optionalKey } =
    library
  const isMany = (value: unknown): value is ReadonlyArray<unknown> =>
    globalThis.Array.isArray(value) && value.length > 0
  return {
    string: String,
    literal: Literal(1),
    unknown: library.Unknown,
    pattern: String.check(isPattern(/^a$/)),
    range: Int.check(isBetween({ minimum: 1, maximum: 2 })),
    least: Int.check(isGreaterThanOrEqualTo(0)),
    options: Struct({
      device: optional(Literals(["auto", "wasm"])),
      threads: optional(Int.check(isGreaterThan(0))),
      temperature: optional(Finite),
      stop: optional(Array(String)),
      variables: optional(declare(isMany, { expected: "many" })),
      key: optionalKey(Boolean)
    }),
    record: library.Record(String, Int),
    tuple: Tuple([Number, Literals([1, 2])]),
    union: Union([Number, Array(Int), Struct({ base64: String })]),
    source: Union([
      TaggedStruct("Blob", { name: String }),
      TaggedStruct("Bytes", { name: String, bytes: declare(isMany, { expected: "many" }) })
    ]),
    piece: Union([
      Struct({ type: Literals(["text", "reasoning"]), text: String }),
      Struct({ type: Literal("done"), ending: Literals(["end", "length"]) })
    ]),
    tagged: TaggedStruct("Kept", { name: String, isComplete: Boolean }),
    rest: Struct({
      type: Literal("function"),
      function: library.StructWithRest(Struct({ name: String }), [library.Record(String, library.Unknown)])
    })
  }
}

const values: ReadonlyArray<unknown> = [
  ...[undefined, null, true, "a", "b", "", 0, 1, 3, -1, 1.5, Number.NaN, Infinity, 2 ** 60, 1n, Symbol.iterator],
  ...[[], {}, ["a"], [1], [1, 2], [1, 3], [1, 2, 3], [[1]], { a: 1 }, { a: "x" }, new Date(0), new Map()],
  ...["auto", 5, null].map((device) => ({ device })),
  ...[0, 1, 1.5, "a", undefined, null].map((threads) => ({ threads })),
  ...[0.5, Number.NaN, "a"].map((temperature) => ({ temperature })),
  ...["a", ["a"], [1], ["a", 1, 2], [["a"]]].map((stop) => ({ stop })),
  ...[[], [1], {}].map((variables) => ({ variables })),
  ...[{ key: true }, { key: undefined }, { key: 1 }, { thread: 1 }, { thread: 1, threads: "x" }],
  ...[{ base64: "a" }, { base64: 1 }, { base64: "a", more: 1 }],
  ...[{ _tag: "Blob" }, { _tag: "Blob", name: "a" }, { _tag: "Bytes", name: "a", bytes: [] }, { _tag: "Other" }],
  ...[{ type: "text" }, { type: "text", text: "a" }, { type: "done" }, { type: "done", ending: "end" }, { type: "x" }],
  ...[{ type: "done", ending: 1 }, { type: "text", text: 1 }, { type: 1 }],
  ...[{ _tag: "Kept", name: "a" }, { _tag: "Kept", name: "a", isComplete: true }, { _tag: "Kept", isComplete: 1 }],
  ...[{}, { name: 1 }, { name: "a" }, { name: "a", more: 1 }, 1].map((own) => ({ type: "function", function: own }))
]

/** What is wrong with values, or nothing. */
const saidOf = (library: typeof Schema, onExcessProperty: "error" | undefined) =>
  Object.entries(schemasOf(library)).flatMap(([name, schema]) => {
    const decode = library.decodeUnknownResult(
      library.toType(schema as Schema.Codec<unknown>),
      onExcessProperty && { onExcessProperty }
    )
    return values.map((value) => {
      const result = decode(value)
      return [name, value, Result.isSuccess(result) ? "is one" : result.failure.message] as const
    })
  })

const thin = Thin as unknown as typeof Schema

describe("what stands in for Schema in bundles", () => {
  it("finds the same faults and says the same of them", () => {
    for (const excess of [undefined, "error"] as const) {
      const [own, expected] = [saidOf(thin, excess), saidOf(Schema, excess)]
      const differing = own.map((each, i) => [...each, expected[i]![2]]).filter(([, , said, expected]) =>
        said !== expected
      )
      assert.deepEqual(differing, [])
      assert.isAbove(new Set(own.map(([, , said]) => said)).size, 40)
    }
  })

  it("reads and writes JSON as Schema does", async () => {
    const verdict = {
      version: 1,
      device: "a",
      identity: "b",
      date: "c",
      cases: 3,
      failures: [{ family: "steps", name: "d", problem: "e" }],
      avoid: ["subgroups"],
      refused: false
    }
    const of = async (library: typeof Schema) => {
      const json = library.fromJsonString(library.Array(library.Struct({ a: library.optionalKey(library.Int) })))
      const decode = library.decodeUnknownResult(json)
      const messages = ["[{\"a\":1},{}]", "[{\"a\":\"1\"}]", "{", 3].map((text) => {
        const result = decode(text)
        return Result.isSuccess(result) ? result.success : result.failure.message
      })
      const option = library.decodeUnknownOption(json)
      return {
        messages,
        options: [option("[]"), option("")].map(Option.getOrUndefined),
        written: await Effect.runPromise(library.encodeEffect(json)([{ a: 1 }])),
        read: await Effect.runPromiseExit(library.decodeEffect(json)("[{}]")),
        failed: Exit.isFailure(await Effect.runPromiseExit(library.decodeUnknownEffect(json)("[1]")))
      }
    }
    assert.deepEqual(await of(thin), await of(Schema))
    const read = Verdict.find({ get: () => Effect.succeed(JSON.stringify(verdict)) } as never, "b")
    assert.deepEqual<unknown>(await Effect.runPromise(read), verdict)
  })

  it("has errors and classes with the tag, the fields and the message of Schema's", async () => {
    const of = async (library: typeof Schema) => {
      class Own extends library.TaggedError<Own>()("Own", { a: library.String, b: library.optional(library.Int) }) {
        override get message(): string {
          return `${this.a} is wrong`
        }
      }
      class Told extends library.TaggedError<Told>()("Told", { reason: library.String, message: library.String }) {}
      class Opt extends library.TaggedClass<Opt>()("Opt", { kind: library.String, range: library.Int }) {}
      const all = [new Own({ a: "x" }), new Told({ message: "m", reason: "r" })]
      const opt = new Opt({ range: 1, kind: "k" })
      return {
        all: all.map((error) => [
          ...[error._tag, error.name, error.message, String(error), error instanceof Error],
          Object.fromEntries(Object.entries(error))
        ]),
        caught: await Effect.runPromise(
          Effect.catchTag(Effect.fail(all[0] as Own), "Own", ({ a }) => Effect.succeed(a))
        ),
        yielded: await Effect.runPromise(
          Effect.flip(Effect.gen(function*() {
            return yield* new Told({ message: "m", reason: "r" })
          })).pipe(Effect.map(({ _tag }) => _tag))
        ),
        opt: JSON.stringify(opt),
        fields: Object.keys(Opt.fields)
      }
    }
    const [own, expected] = [await of(thin), await of(Schema)]
    assert.deepEqual({ ...own, fields: ["_tag", ...own.fields] }, expected)
  })
})
