import { Duration } from "effect"
import { assert, it } from "vitest"
import * as Thin from "../src/internal/duration.ts"

it("durations of pages are those of Effect, as far as they go", () => {
  for (const millis of [0, -0, 1, 500, 60_000, 1.5, 0.001, -3, NaN, Infinity, -Infinity]) {
    assert.equal(Thin.toMillis(millis), Duration.toMillis(millis), String(millis))
    assert.equal(Thin.toMillis(Thin.millis(millis)), Duration.toMillis(Duration.millis(millis)), String(millis))
  }
  for (const nanos of [0n, 1n, 999n, 1_500_000n, 86_400_000_000_000n, 123_456_789_012_345n]) {
    assert.equal(Thin.toMillis(Thin.nanos(nanos)), Duration.toMillis(Duration.nanos(nanos)), String(nanos))
  }
  assert.equal(Thin.toMillis(Thin.fromInputUnsafe(7)), 7)
  assert.equal(Thin.format(Thin.millis(500)), Duration.format(Duration.millis(500)))
})

it("others are refused", () => {
  for (const input of ["5 seconds", Duration.seconds(5)]) {
    assert.throws(() => Thin.fromInputUnsafe(input as never), /as numbers of milliseconds, and not as .*5/)
  }
})
