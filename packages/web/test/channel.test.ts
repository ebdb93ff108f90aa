import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Stream } from "effect"
import type { Answering, Asking, Part } from "../src/internal/messages.ts"
import { connect } from "../src/internal/page.ts"
import { type Handler, type Port, serve } from "../src/internal/platform.ts"
import { ModelError } from "../src/ModelError.ts"

type Listener = (event: { readonly data?: unknown }) => void

/** Waits until what was posted has come. */
const posted = Effect.promise(() => new Promise<void>((resolve) => setTimeout(resolve, 5)))

/** Both ends, in one thread; what each has sent to the other. */
const both = Effect.fnUntraced(function*(
  handlers: Readonly<Record<string, Handler>>,
  { isLate = false }: { readonly isLate?: boolean } = {}
) {
  const toWorker: Array<Asking> = []
  const toPage: Array<Answering> = []
  const listeners = { page: new Map<string, Listener>(), worker: new Map<string, Listener>() }
  let isEnded = false
  const deliver = <M>(message: M, log: Array<M>, to: Map<string, Listener>, moved: Array<Transferable>) => {
    const data = structuredClone(message, { transfer: moved })
    log.push(data)
    setTimeout(() => isEnded || to.get("message")?.({ data }))
  }
  const worker = {
    postMessage: (message: Asking, moved: Array<Transferable>) => deliver(message, toWorker, listeners.worker, moved),
    addEventListener: (type: string, listener: Listener) => void listeners.page.set(type, listener),
    terminate: () => void (isEnded = true)
  }
  const port: Port = {
    postMessage: (message, moved) => deliver(message, toPage, listeners.page, moved),
    addEventListener: (type, listener) => void listeners.worker.set(type, listener as Listener)
  }
  const start = Effect.forkScoped(serve(handlers, port), { startImmediately: true })
  if (!isLate) yield* start
  const asker = yield* connect(() => worker as unknown as Worker)
  const fail = (message: string) => listeners.page.get("error")!({ message, preventDefault() {} } as never)
  return { asker, fail, start, toPage, toWorker, isEnded: () => isEnded }
})

const gone = new ModelError({ reason: "Gone", message: "it is gone" })
const parts = (...groups: ReadonlyArray<readonly [number, ...Array<number>]>): Stream.Stream<Part<number>> =>
  Stream.rechunk(
    Stream.fromIterable(groups.map((values, i) => ({ values, isLast: i === groups.length - 1 }))),
    1
  )

describe("page and worker", () => {
  it.live("one answer, an error and a defect come as they were", () =>
    Effect.gen(function*() {
      const { asker } = yield* both({
        Double: (n: number) => Effect.succeed(2 * n),
        Fail: () => gone,
        Die: () => Effect.die(new RangeError("too far")),
        End: () => Effect.interrupt
      })
      assert.equal(yield* asker.one("Double", 21, []), 42)
      const failed = yield* Effect.flip(asker.one("Fail", undefined, []))
      assert.deepEqual([failed instanceof ModelError, failed.reason, failed.message], [true, "Gone", "it is gone"])
      for (const [name, said] of [["Die", "RangeError: too far"], ["Unknown", "TypeError"]] as const) {
        const exit = yield* Effect.exit(asker.one(name, undefined, []))
        assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause))
        assert.include(Exit.isFailure(exit) ? String(Cause.squash(exit.cause)) : "", said)
      }
      const exit = yield* Effect.exit(asker.one("End", undefined, []))
      assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause))
    }).pipe(Effect.scoped))

  it.live("requests wait until the worker is ready, with what is given away", () =>
    Effect.gen(function*() {
      const { asker, start, toWorker } = yield* both(
        { Size: (bytes: ArrayBuffer) => Effect.succeed(bytes.byteLength) },
        {
          isLate: true
        }
      )
      const bytes = new ArrayBuffer(8)
      const asking = yield* Effect.forkChild(asker.one("Size", bytes, [bytes]), { startImmediately: true })
      yield* posted
      assert.deepEqual(toWorker.map(([kind]) => kind), [2])
      yield* start
      assert.equal(yield* Fiber.join(asking), 8)
      assert.equal(bytes.byteLength, 0)
    }).pipe(Effect.scoped))

  it.live("the last values and the end are one message", () =>
    Effect.gen(function*() {
      const { asker, toPage, toWorker } = yield* both({
        Count: () => parts([1], [2, 3], [4]),
        None: () => Stream.empty
      })
      assert.deepEqual(yield* Stream.runCollect(asker.many("Count", undefined, [])), [1, 2, 3, 4])
      yield* posted
      assert.deepEqual(toPage.slice(-3), [[1, 0, [1]], [1, 0, [2, 3]], [1, 0, [4], ["done", undefined]]])
      // each but the last is answered
      assert.deepEqual(toWorker.filter(([kind]) => kind !== 2).map(([kind]) => kind), [0, 1, 1])
      assert.deepEqual(yield* Stream.runCollect(asker.many("None", undefined, [])), [])
    }).pipe(Effect.scoped))

  it.live("what is given back at the end is given back before the page hears of it", () =>
    Effect.gen(function*() {
      const seen: Array<string> = []
      const release = Effect.andThen(posted, Effect.sync(() => void seen.push("given back")))
      const { asker } = yield* both({ Count: () => Stream.ensuring(parts([1], [2]), release) })
      yield* Stream.runForEach(asker.many("Count", undefined, []), (n) => Effect.sync(() => void seen.push(`${n}`)))
      assert.deepEqual(seen, ["1", "given back", "2"])
    }).pipe(Effect.scoped))

  it.live("values in front of an error come before it", () =>
    Effect.gen(function*() {
      const { asker } = yield* both({ Count: () => Stream.concat(parts([1], [2]), Stream.fail(gone)) })
      const seen: Array<unknown> = []
      const error = yield* Effect.flip(
        Stream.runForEach(asker.many("Count", undefined, []), (n) => Effect.sync(() => void seen.push(n)))
      )
      assert.deepEqual([seen, error.reason], [[1, 2], "Gone"])
    }).pipe(Effect.scoped))

  it.live("no more is sent than the page has taken, but for one group", () =>
    Effect.gen(function*() {
      const { asker, toPage } = yield* both({ Count: () => parts([1], [2], [3], [4], [5]) })
      const isTaken = yield* Deferred.make<void>()
      const sent: Array<number> = []
      yield* Stream.runForEach(asker.many("Count", undefined, []), (n) =>
        Effect.gen(function*() {
          if (n !== 1) return
          yield* posted
          sent.push(toPage.length)
          yield* Deferred.succeed(isTaken, undefined)
        }))
      // it is ready twice, the first group, and the second
      assert.deepEqual(sent, [4])
    }).pipe(Effect.scoped))

  it.live("what nobody waits for ends in the worker, and the next request is answered", () =>
    Effect.gen(function*() {
      let ended = 0
      const end = Effect.sync(() => void ended++)
      const { asker, toPage } = yield* both({
        Endless: () => Stream.ensuring(Stream.fromEffectRepeat(Effect.succeed({ values: [1], isLast: false })), end),
        Never: () => Effect.onInterrupt(Effect.never, () => end),
        Double: (n: number) => Effect.succeed(2 * n)
      })
      assert.deepEqual(yield* Stream.runCollect(Stream.take(asker.many("Endless", undefined, []), 3)), [1, 1, 1])
      const asking = yield* Effect.forkChild(asker.one("Never", undefined, []), { startImmediately: true })
      yield* posted
      yield* Fiber.interrupt(asking)
      yield* posted
      assert.equal(ended, 2)
      const messages = toPage.length
      assert.equal(yield* asker.one("Double", 1, []), 2)
      assert.equal(toPage.length, messages + 1)
    }).pipe(Effect.scoped))

  it.live("what cannot be sent is refused, and the next request is answered", () =>
    Effect.gen(function*() {
      const { asker } = yield* both({ Double: (n: number) => Effect.succeed(2 * n) })
      const error = yield* Effect.flip(asker.one("Double", () => 1, []))
      assert.equal(error.reason, "InvalidRequest")
      assert.match(error.message, /cannot be sent to the worker: .*clone/)
      assert.equal(yield* asker.one("Double", 1, []), 2)
    }).pipe(Effect.scoped))

  it.live("a worker that fails fails what waits for it, and what is asked later", () =>
    Effect.gen(function*() {
      const { asker, fail } = yield* both({ Never: () => Effect.never })
      const asking = yield* Effect.forkChild(
        Effect.all(
          [asker.one("Never", undefined, []), Stream.runDrain(asker.many("Never", undefined, []))].map(Effect.flip),
          {
            concurrency: 2
          }
        ),
        { startImmediately: true }
      )
      yield* posted
      fail("out of memory")
      const errors = [...yield* Fiber.join(asking), yield* Effect.flip(asker.one("Never", undefined, []))]
      for (const { message, reason } of errors) {
        assert.deepEqual([reason, message], ["WorkerFailed", "the worker failed: out of memory; open the model again"])
      }
    }).pipe(Effect.scoped))

  it.live("a worker ends with the scope, and what waits for it is interrupted", () =>
    Effect.gen(function*() {
      const { asker, asking, isEnded } = yield* Effect.scoped(Effect.gen(function*() {
        const ends = yield* both({ Never: () => Effect.never })
        const asking = yield* Effect.forkDetach(ends.asker.one("Never", undefined, []), { startImmediately: true })
        yield* posted
        return { ...ends, asking }
      }))
      assert.isTrue(isEnded())
      for (const exit of [yield* Fiber.await(asking), yield* Effect.exit(asker.one("Never", undefined, []))]) {
        assert.isTrue(Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause))
      }
    }))
})
