import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as Lock from "../src/Lock.ts"
import { Machine } from "../src/Machine.ts"
import * as NodeMachine from "../src/NodeMachine.ts"
import { Store } from "../src/Store.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { noise, sha256, start } from "./support/server.ts"
import { folder, layer, nameOf, pull } from "./support/store.ts"

const services = Layer.merge(NodeMachine.layer, NodeServices.layer)
const patience: Lock.Patience = { beatMillis: 20, staleMillis: 60_000, pollMillis: 5 }
/** Takes a lock soon: but not so soon that a machine which stands still for a moment makes an owner look dead. */
const impatience: Lock.Patience = { ...patience, staleMillis: 1500 }

describe("a lock", () => {
  it.live("one at a time, and everyone in the end", () =>
    Effect.gen(function*() {
      const file = path.join(yield* folder, "x.lock")
      let inside = 0
      let most = 0
      const use = Effect.gen(function*() {
        most = Math.max(most, ++inside)
        yield* Effect.sleep(2)
        inside--
      })
      yield* Effect.forEach(Array.from({ length: 30 }), () => Lock.withLock(file, { patience }, use), {
        concurrency: "unbounded"
      })
      assert.strictEqual(most, 1)
      assert.deepStrictEqual(fs.readdirSync(path.dirname(file)), [])
    }).pipe(Effect.provide(services)))

  it.live("of a dead process is taken at once, by one", () =>
    Effect.gen(function*() {
      const file = path.join(yield* folder, "x.lock")
      const { host } = yield* Machine
      // larger than any process of Linux
      fs.writeFileSync(file, `uuid 4194999 ${host}`)
      let inside = 0
      let most = 0
      const use = Effect.gen(function*() {
        most = Math.max(most, ++inside)
        yield* Effect.sleep(5)
        inside--
      })
      yield* Effect.forEach(Array.from({ length: 10 }), () => Lock.withLock(file, { patience }, use), {
        concurrency: "unbounded"
      })
      assert.strictEqual(most, 1)
    }).pipe(Effect.provide(services)))

  it.live("without a sign of life is taken, and its owner notices", () =>
    Effect.gen(function*() {
      const file = path.join(yield* folder, "x.lock")
      // asleep: it beats only after it was taken for dead
      const first = yield* Effect.forkScoped(
        Effect.flip(Lock.withLock(file, { patience: { beatMillis: 2500 } }, Effect.never))
      )
      while (!fs.existsSync(file)) yield* Effect.sleep(5)
      // until the owner has noticed
      const error = yield* Lock.withLock(file, { patience: impatience }, Fiber.join(first))
      assert.strictEqual(error.problem, "in-use")
    }).pipe(Effect.provide(services)))

  it.live("with signs of life is waited for", () =>
    Effect.gen(function*() {
      const file = path.join(yield* folder, "x.lock")
      let isDone = false
      const work = Effect.andThen(
        Effect.sleep(2000),
        Effect.sync(() => {
          isDone = true
        })
      )
      const first = yield* Effect.forkScoped(Lock.withLock(file, { patience: impatience }, work))
      while (!fs.existsSync(file)) yield* Effect.sleep(5)
      yield* Lock.withLock(file, { patience: impatience }, Effect.sync(() => assert.isTrue(isDone)))
      yield* Fiber.join(first)
    }).pipe(Effect.provide(services)))
})

describe("two pulls at once", () => {
  const server = Effect.acquireRelease(Effect.promise(start), (made) => Effect.promise(made.close))

  it.live("fetch once, and both have it", () =>
    Effect.gen(function*() {
      const made = yield* server
      const bytes = noise(600_000)
      made.files.set("/m.gguf", { bytes })
      made.speed = 2000
      const root = yield* folder
      const name = `${made.url}/m.gguf`
      let waits = 0
      const onEvent = ({ type }: { readonly type: string }) =>
        Effect.sync(() => void (waits += type === "waiting" ? 1 : 0))
      const models = yield* Effect.forEach([1, 2, 3], () =>
        pull(name, { onEvent }).pipe(Effect.provide(Layer.fresh(layer({ root, patience })))), {
        concurrency: "unbounded"
      })
      for (const { path } of models) {
        assert.strictEqual(sha256(fs.readFileSync(path)), sha256(bytes))
      }
      assert.isAbove(waits, 0)
      const asked = made.asked.flatMap(({ range = "" }) => {
        const [, first, last] = /bytes=(\d+)-(\d+)/.exec(range) ?? []
        return last === "0" ? [] : [Number(last) - Number(first) + 1]
      })
      assert.strictEqual(
        asked.reduce((a, b) =>
          a + b, 0),
        bytes.length
      )
    }))

  it.live("what is being fetched is not removed", () =>
    Effect.gen(function*() {
      const made = yield* server
      made.files.set("/m.gguf", { bytes: noise(400_000) })
      made.speed = 500
      const root = yield* folder
      const name = `${made.url}/m.gguf`
      const here = layer({ root, patience })
      const first = yield* Effect.forkScoped(pull(name).pipe(Effect.provide(here)))
      // after the one for its size
      while (made.asked.length < 4) yield* Effect.sleep(10)
      const error = yield* Effect.flatMap(Store, ({ remove }) => Effect.flip(remove(nameOf(name)))).pipe(
        Effect.provide(here)
      )
      assert.strictEqual(error.problem, "in-use")
      yield* Fiber.interrupt(first)
      const { freedBytes } = yield* Effect.flatMap(Store, ({ remove }) => remove(nameOf(name))).pipe(
        Effect.provide(here)
      )
      assert.isAbove(freedBytes, 0)
      assert.deepStrictEqual(fs.readdirSync(path.join(root, "blobs")), [])
    }))
})
