import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Deferred, Effect, Exit, Fiber, Scope } from "effect"
import * as FairQueue from "../src/FairQueue.ts"
import * as RoundRobin from "../src/internal/roundRobin.ts"

describe("a line", () => {
  const filled = (limit: number, ...items: ReadonlyArray<string>) => {
    const line = RoundRobin.make<string>(limit)
    for (const item of items) line.add(item[0]!, item)
    return line
  }
  const all = (line: RoundRobin.RoundRobin<string>) => Array.from({ length: line.size() }, () => line.take())

  it("serves one client after the other, each in order", () =>
    assertEquals(all(filled(9, "a1", "a2", "a3", "b1", "c1", "b2")), ["a1", "b1", "c1", "a2", "b2", "a3"]))
  it("puts a client that was served behind the others", () => {
    const line = filled(9, "a1", "a2", "b1")
    assert.strictEqual(line.take(), "a1")
    line.add("c", "c1")
    assertEquals(all(line), ["b1", "a2", "c1"])
  })
  it("refuses the one who comes when it is full of equals", () =>
    assert.strictEqual(filled(2, "a1", "b1").add("c", "c1"), "c1"))
  it("lets the greedy give way: their last item is out", () => {
    const line = filled(3, "a1", "a2", "a3")
    assert.strictEqual(line.add("b", "b1"), "a3")
    assertEquals(all(line), ["a1", "b1", "a2"])
  })
  it("does not let the greedy push others out", () =>
    assert.strictEqual(filled(3, "a1", "a2", "b1").add("a", "a3"), "a3"))
  it("of no length refuses everyone", () => assert.strictEqual(filled(0).add("a", "a1"), "a1"))
  it("forgets who leaves", () => {
    const line = filled(9, "a1", "a2", "b1")
    line.remove("a", "a1")
    line.remove("b", "b1")
    line.remove("b", "b1")
    assertEquals([line.size(), all(line)], [1, ["a2"]])
  })
})

const limits = { parallel: 1, queue: 2 }

/** Whoever can go on has gone on. */
const settled = Effect.repeat(Effect.yieldNow, { times: 8 })

/** Enters, notes that it has its turn, and keeps it until it is let go. */
const visitor = Effect.fnUntraced(function*(queue: FairQueue.FairQueue["Service"], name: string, log: Array<string>) {
  const leave = yield* Deferred.make<void>()
  const fiber = yield* Effect.forkChild(
    Effect.scoped(Effect.gen(function*() {
      yield* queue.enter(name)
      log.push(name)
      yield* Deferred.await(leave)
    })),
    { startImmediately: true }
  )
  return { fiber, leave: Effect.andThen(Deferred.succeed(leave, undefined), Fiber.await(fiber)) }
})

describe("turns", () => {
  it.effect("come one after the other", () =>
    Effect.gen(function*() {
      const queue = yield* FairQueue.make(limits)
      const log: Array<string> = []
      const a = yield* visitor(queue, "a", log)
      const b = yield* visitor(queue, "b", log)
      assertEquals([[...log], yield* queue.counts], [["a"], { running: 1, waiting: 1 }])
      yield* a.leave
      yield* settled
      assertEquals([...log], ["a", "b"])
      yield* b.leave
      assertEquals(yield* queue.counts, { running: 0, waiting: 0 })
    }))

  it.effect("are refused with 429 and a time where too many wait", () =>
    Effect.gen(function*() {
      const queue = yield* FairQueue.make(limits)
      for (const name of ["a", "b", "c"]) yield* visitor(queue, name, [])
      const error = yield* Effect.flip(Effect.scoped(queue.enter("d")))
      assertEquals([error.status, error.code], [429, "queue_full"])
      assert.isAtLeast(error.retryAfter ?? 0, 1)
    }))

  it.effect("of someone who goes away are given to the next", () =>
    Effect.gen(function*() {
      const queue = yield* FairQueue.make(limits)
      const log: Array<string> = []
      const a = yield* visitor(queue, "a", log)
      const b = yield* visitor(queue, "b", log)
      const c = yield* visitor(queue, "c", log)
      yield* Fiber.interrupt(b.fiber)
      assertEquals(yield* queue.counts, { running: 1, waiting: 1 })
      yield* Fiber.interrupt(a.fiber)
      yield* settled
      assertEquals([...log], ["a", "c"])
      yield* c.leave
      assertEquals(yield* queue.counts, { running: 0, waiting: 0 })
    }))

  it.effect("end with the Scope, and never twice", () =>
    Effect.gen(function*() {
      const queue = yield* FairQueue.make({ parallel: 2, queue: 0 })
      const scope = yield* Scope.make()
      yield* Scope.provide(queue.enter("a"), scope)
      yield* Scope.close(scope, Exit.void)
      yield* Scope.close(scope, Exit.void)
      assertEquals(yield* queue.counts, { running: 0, waiting: 0 })
    }))
})

describe("draining", () => {
  it.effect("refuses who waits and who comes, and waits for who has a turn", () =>
    Effect.gen(function*() {
      const queue = yield* FairQueue.make(limits)
      const a = yield* visitor(queue, "a", [])
      const b = yield* visitor(queue, "b", [])
      const drained = yield* Effect.forkChild(queue.drain, { startImmediately: true })
      assertEquals(Exit.isFailure(yield* Fiber.await(b.fiber)), true)
      assert.strictEqual((yield* Effect.flip(Effect.scoped(queue.enter("c")))).status, 503)
      assert.isUndefined(drained.pollUnsafe())
      yield* a.leave
      yield* Fiber.join(drained)
    }))
})
