import { Effect } from "effect"
import { afterEach, assert, beforeEach, describe, it, vi } from "vitest"
import * as scheduling from "../src/internal/scheduling.ts"

/** Lets a fiber take so many turns; in how many of them messages were heard, and how long it took. */
const take = (turns: number) =>
  Effect.runPromiseWith(scheduling.context())(Effect.gen(function*() {
    const post = vi.spyOn(MessagePort.prototype, "postMessage")
    // begins behind one that heard them
    yield* Effect.yieldNow
    post.mockClear()
    const began = performance.now()
    for (let turn = 0; turn < turns; turn++) yield* Effect.yieldNow
    return { heard: post.mock.calls.length, millis: performance.now() - began }
  }))

describe("turns of fibers", () => {
  const { mail } = scheduling
  const before = { ...mail }
  beforeEach(() => void Object.assign(mail, { sent: new Int32Array(1), come: 0 }))
  afterEach(() => {
    Object.assign(mail, before)
    vi.restoreAllMocks()
  })

  it("messages are heard in each of a page, where nobody counts them", async () => {
    Object.assign(mail, before)
    assert.equal((await take(1000)).heard, 1000)
  })

  it("a worker to which nothing was sent goes on at once, and hears others now and then", async () => {
    const { heard, millis } = await take(100_000)
    assert.isAbove(millis, 3)
    assert.isAtLeast(heard, 1)
    assert.isAtMost(heard, 1 + millis / 2)
  })

  it("a worker hears messages in each, from when one was sent until it has come", async () => {
    Atomics.add(mail.sent, 0, 1)
    assert.equal((await take(1000)).heard, 1000)
    mail.come++
    assert.isBelow((await take(1000)).heard, 1000)
  })
})
