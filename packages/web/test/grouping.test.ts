import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import { grouped, together, type Writing } from "../src/internal/grouping.ts"
import type { Part } from "../src/internal/messages.ts"

const letters: Writing<string, string> = { each: (text) => text === "" ? [] : [text], end: () => [] }

/** Texts that each take so long. */
const written = (texts: ReadonlyArray<string>, millis: number) =>
  Stream.mapEffect(Stream.rechunk(Stream.fromIterable(texts), 1), (text) => Effect.as(TestClock.adjust(millis), text))

/** The groups in which a stream comes, and which of them are said to be the last. */
const groupsOf = <A, E>(stream: Stream.Stream<Part<A>, E>) => {
  const groups: Array<ReadonlyArray<A>> = []
  const last: Array<boolean> = []
  return Effect.map(
    Effect.exit(Stream.runForEach(stream, ({ isLast, values }) =>
      Effect.sync(() => {
        groups.push(values)
        last.push(isLast)
      }))),
    (exit) => ({ groups, exit, last })
  )
}

describe("tokens on their way to the page", () => {
  it.effect("the first one goes at once, those behind it in groups, and none is lost at the end", () =>
    Effect.gen(function*() {
      const { groups, last } = yield* groupsOf(written([..."abcdefgh"], together / 4).pipe(grouped(letters)))
      assert.deepEqual(groups.map((group) => group.join("")), ["a", "bcde", "fgh"])
      assert.deepEqual(last, [false, false, true])
    }))

  it.effect("nothing waits for what is expected later than that", () =>
    Effect.gen(function*() {
      const { groups } = yield* groupsOf(written([..."abcd"], together / 2 + 1).pipe(grouped(letters)))
      assert.deepEqual(groups, [["a"], ["b"], ["c"], ["d"]])
    }))

  it.effect("the first text is sent at once, whatever was in front of it", () =>
    Effect.gen(function*() {
      const { groups } = yield* groupsOf(written(["", "", "a", "b"], 1).pipe(grouped(letters)))
      assert.deepEqual(groups, [["a"], ["b"]])
    }))

  /** How many tokens that each take so long are computed when the first group is taken, and the groups when the second is. */
  const computedBehind = Effect.fnUntraced(function*(millis: number) {
    let computed = 0
    const numbers = Stream.mapEffect(
      Stream.fromEffectRepeat(Effect.sync(() => ++computed)),
      (n) => Effect.as(TestClock.adjust(millis), n)
    )
    const isTaken = yield* Deferred.make<void>()
    const groups: Array<ReadonlyArray<number>> = []
    const fiber = yield* Effect.forkChild(
      Stream.runForEach(
        grouped<number, number>({ each: (n) => [n], end: () => [] })(numbers),
        ({ values }) => Effect.andThen(Effect.sync(() => void groups.push(values)), Deferred.await(isTaken))
      ),
      { startImmediately: true }
    )
    for (let turns = 0; turns < 100; turns++) yield* Effect.yieldNow
    const behind = computed
    yield* Deferred.succeed(isTaken, undefined)
    while (groups.length < 2) yield* Effect.yieldNow
    yield* Fiber.interrupt(fiber)
    return { behind, groups: groups.slice(0, 2) }
  })

  it.effect("the next one is computed while one is taken, and no more", () =>
    Effect.gen(function*() {
      assert.deepEqual(yield* computedBehind(together / 4), { behind: 5, groups: [[1], [2, 3, 4, 5]] })
    }))

  it.effect("none is computed meanwhile where tokens come one by one", () =>
    Effect.gen(function*() {
      assert.deepEqual(yield* computedBehind(together / 2 + 1), { behind: 1, groups: [[1], [2]] })
    }))

  it.effect("what is said at the end is in the last group, or alone", () =>
    Effect.gen(function*() {
      const writing: Writing<string, string> = { ...letters, end: () => ["."] }
      const { groups } = yield* groupsOf(written([..."abc"], 1).pipe(grouped(writing)))
      assert.deepEqual(groups, [["a"], ["b", "c", "."]])
      assert.deepEqual((yield* groupsOf(grouped(writing)(Stream.empty))).groups, [["."]])
    }))

  it.effect("texts in front of an error are sent before it, without the end", () =>
    Effect.gen(function*() {
      const failing = Stream.concat(written([..."abc"], 1), Stream.fail("lost"))
      const { exit, groups, last } = yield* groupsOf(grouped({ ...letters, end: () => ["."] })(failing))
      assert.deepEqual([groups, last], [[["a"], ["b", "c"]], [false, true]])
      assert.deepEqual(exit, Exit.fail("lost"))
    }))

  it.effect("between two tokens it is heard that no more are wanted", () =>
    Effect.gen(function*() {
      let computed = 0
      const endless = Stream.fromEffectRepeat(Effect.sync(() => ++computed))
      const fiber = yield* Effect.forkChild(
        Stream.runDrain(grouped<number, number>({ each: (n) => [n], end: () => [] })(endless)),
        { startImmediately: true }
      )
      // the clock stands still: all behind the first one would be one group without end
      while (computed < 5) yield* Effect.yieldNow
      // one in each turn of the fibers
      assert.equal(computed, 5)
      yield* Fiber.interrupt(fiber)
      const exit = yield* Fiber.await(fiber)
      assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause))
      assert.equal(computed, 5)
    }))
})
