import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { Acceptor, type Grammar, JsonSchema } from "../src/index.ts"

const grammarOf = (schema: unknown, options?: JsonSchema.Options): Grammar.Grammar =>
  Result.getOrThrow(JsonSchema.compile(schema, options))

const two = (n: number): string => String(n).padStart(2, "0")
const clock = (minute: number): string => `${two(Math.floor(minute / 60))}:${two(minute % 60)}`

describe("formats", () => {
  it("a leap second is where it is 23:59 in UTC, whatever the offset", () => {
    const [time, dateTime] = [grammarOf({ format: "time" }), grammarOf({ format: "date-time" })]
    const offsets = [0, 1, 30, 59, 60, 330, 720, 1439]
    let leaps = 0
    for (let minute = 0; minute < 1440; minute++) {
      for (const [sign, offset] of offsets.flatMap((offset) => [[1, offset], [-1, offset]] as const)) {
        const isLast = (minute - sign * offset + 2880) % 1440 === 1439
        const text = `${clock(minute)}:60.5${sign > 0 ? "+" : "-"}${clock(offset)}`
        assert.strictEqual(Acceptor.accepts(time, JSON.stringify(text)), isLast, text)
        assert.strictEqual(Acceptor.accepts(dateTime, JSON.stringify(`2016-12-31t${text}`)), isLast, text)
        leaps += Number(isLast)
      }
    }
    assert.strictEqual(leaps, 2 * offsets.length)
  })

  it("can be combined with lengths, patterns and other formats", () => {
    const late = grammarOf({ format: "date-time", minLength: 21, maxLength: 25, pattern: "0$" })
    assert.isTrue(Acceptor.accepts(late, "\"2026-12-31T15:59:60-08:00\""))
    assert.isFalse(Acceptor.accepts(late, "\"2026-12-31T15:59:60.5-08:00\""))
    assert.isFalse(Acceptor.accepts(late, "\"2026-12-31T15:59:59Z\""))
    const none = grammarOf({ type: "string", not: { format: "time" } })
    assert.isFalse(Acceptor.accepts(none, "\"01:29:60+01:30\""))
    assert.isTrue(Acceptor.accepts(none, "\"01:29:60+01:31\""))
  })

  it("are annotations if that is asked for, known or not", () => {
    for (const format of ["date", "hostname", "no such format"]) {
      assert.isTrue(Acceptor.accepts(grammarOf({ type: "string", format }, { format: "annotate" }), "\"x y\""))
    }
  })
})
