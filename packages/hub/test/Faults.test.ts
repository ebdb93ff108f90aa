import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type * as Pull from "../src/Pull.ts"
import { Store } from "../src/Store.ts"
import { type Fault, noise, sha256, start } from "./support/server.ts"
import { folder, impatient, layer, nameOf, pull, quick } from "./support/store.ts"

const server = Effect.acquireRelease(Effect.promise(start), (made) => Effect.promise(made.close))

/** A server with one file, and a store. */
const scene = Effect.fnUntraced(function*(size = 300_000) {
  const made = yield* server
  const root = yield* folder
  const bytes = noise(size, 7)
  made.files.set("/m.gguf", { bytes })
  return { made, root, bytes, name: `${made.url}/m.gguf`, chunk: (index: number) => index * 16 * 1024 }
})

const isProbe = (range: string | undefined): boolean => range === "bytes=0-0"

/** What goes wrong at first and then no more. */
const sometimes: ReadonlyArray<readonly [string, Fault]> = [
  ["another Content-Range", { type: "content-range", value: "bytes 5-9/300000" }],
  ["a Content-Range that makes no sense", { type: "content-range", value: "bytes 9-5/x" }],
  ["the whole file with status 200", { type: "whole" }],
  ["more than it announced", { type: "too-much", extra: 1000 }],
  ["less than it announced", { type: "too-little", missing: 1000 }],
  ["nothing at all", { type: "too-little", missing: 300_000 }],
  ["a connection that breaks before the first byte", { type: "break", after: 0 }],
  ["a connection that breaks", { type: "break", after: 20_000 }],
  ["a connection on which nothing comes", { type: "stall", after: 20_000 }],
  ["429", { type: "status", status: 429, headers: { "retry-after": "0" } }],
  ["502", { type: "status", status: 502 }]
]

describe("a server that misbehaves", () => {
  it.live.each(sometimes)("now and then: %s", ([, fault]) =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      let index = 0
      made.fault = ({ range }) => isProbe(range) || index++ % 3 !== 0 ? undefined : fault
      const here = layer({ root }, fault.type === "stall" ? impatient : quick)
      const model = yield* pull(name).pipe(Effect.provide(here))
      assert.isAbove(index, 3)
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
    }))

  it.live.each(
    [
      ["wrong-range", sometimes[0]![1]],
      ["too-much", sometimes[3]![1]],
      ["too-little", sometimes[5]![1]]
    ] as const
  )("always: %s is an error, and what came is kept", ([problem, fault]) =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      made.fault = ({ range }) => isProbe(range) || range?.startsWith("bytes=0-") === true ? undefined : fault
      const error = yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root })))
      assert.strictEqual(error._tag === "TransferError" ? error.problem : error, problem)
      const kept = yield* Effect.flatMap(Store, ({ find }) => find(nameOf(name))).pipe(Effect.provide(layer({ root })))
      assert.isAbove(kept!.doneBytes, 0)
      assert.isBelow(kept!.doneBytes, bytes.length)
      assert.isFalse(fs.existsSync(kept!.path))
    }))

  it.live("one that never sends parts is read in one go", () =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      let broken = 0
      made.fault = ({ range }) =>
        range === undefined && broken++ < 2 ? { type: "break", after: 100_000 } : { type: "whole" }
      const model = yield* pull(name).pipe(Effect.provide(layer({ root })))
      assert.strictEqual(broken, 3)
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
    }))

  it.live("one that stops sending parts is read in one go", () =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      made.fault = (_, index) => index < 3 ? undefined : { type: "whole" }
      const model = yield* pull(name).pipe(Effect.provide(layer({ root })))
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
    }))

  it.live("without a validator nothing of another attempt is used", () =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      made.files.set("/m.gguf", { bytes: noise(bytes.length, 1), etag: null })
      made.fault = ({ range }) => isProbe(range) ? undefined : { type: "break", after: 200_000 }
      yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root })))
      made.fault = () => undefined
      made.files.set("/m.gguf", { bytes, etag: null })
      const model = yield* pull(name).pipe(Effect.provide(layer({ root })))
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
    }))

  it.live("a date of change does where there is no entity tag", () =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      const lastModified = "Mon, 02 Mar 2026 10:00:00 GMT"
      made.files.set("/m.gguf", { bytes, etag: null, lastModified })
      const model = yield* pull(name).pipe(Effect.provide(layer({ root })))
      assert.isTrue(made.asked.filter(({ range }) => !isProbe(range)).every(({ ifRange }) => ifRange === lastModified))
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
    }))

  it.live("a file that changes between requests begins again", () =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      const other = noise(bytes.length, 99)
      let requests = 0
      made.fault = ({ range }) => {
        if (!isProbe(range) && ++requests === 3) made.files.set("/m.gguf", { bytes: other })
        return undefined
      }
      const events: Array<Pull.Event["type"]> = []
      const model = yield* pull(name, { onEvent: ({ type }) => Effect.sync(() => void events.push(type)) }).pipe(
        Effect.provide(layer({ root, connections: 1 }))
      )
      assert.include(events, "restarted")
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(other))
    }))

  it.live("a file that changes between two attempts begins again", () =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      made.fault = ({ range }) =>
        isProbe(range) || range?.startsWith("bytes=0-") ? undefined : { type: "status", status: 404 }
      yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root })))
      made.fault = () => undefined
      made.files.set("/m.gguf", { bytes: noise(bytes.length, 99) })
      const model = yield* pull(name).pipe(Effect.provide(layer({ root })))
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(noise(bytes.length, 99)))
    }))

  it.live("one that changes all the time is an error", () =>
    Effect.gen(function*() {
      const { bytes, made, name, root } = yield* scene()
      made.fault = (_, index) => void made.files.set("/m.gguf", { bytes: noise(bytes.length, index + 2) })
      const error = yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root, connections: 1 })))
      assert.strictEqual(error._tag === "TransferError" ? error.problem : error, "changed")
    }))

  it.live("Retry-After is followed, and refused where it is too long", () =>
    Effect.gen(function*() {
      const { made, name, root } = yield* scene(50_000)
      made.fault = (_, index) =>
        index === 1 ? { type: "status", status: 503, headers: { "retry-after": "1" } } : undefined
      const started = performance.now()
      yield* pull(name).pipe(Effect.provide(layer({ root, connections: 1 })))
      assert.isAtLeast(performance.now() - started, 990)
      made.asked.length = 0
      made.fault = () => ({ type: "status", status: 429, headers: { "retry-after": "3600" } })
      const error = yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root })))
      assert.strictEqual(made.asked.length, 1)
      assert.strictEqual(error._tag === "HttpError" ? error.problem : error, "busy")
      assert.include(error.message, "3600 s")
    }))

  it.live.each(
    [
      [401, "unauthorized", "put a token into HF_TOKEN"],
      [403, "forbidden", "accept its conditions"],
      [404, "not-found", "check the name"],
      [410, "not-found", "check the name"],
      [418, "status", "refuses"]
    ] as const
  )("status %s is asked for once, and says what to do", ([status, problem, hint]) =>
    Effect.gen(function*() {
      const { made, name, root } = yield* scene(1000)
      made.fault = () => ({ type: "status", status })
      const error = yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root })))
      assert.strictEqual(error._tag === "HttpError" ? error.problem : error, problem)
      assert.include(error.message, hint)
      assert.strictEqual(made.asked.length, 1)
    }))

  it.live("redirections without an end, and to nowhere, are errors", () =>
    Effect.gen(function*() {
      const { made, name, root } = yield* scene(1000)
      for (
        const [to, hint] of [[name, "without an end"], ["http://example.org/m", "on the way"], [
          "ftp://x/",
          "no address"
        ]]
      ) {
        made.fault = () => ({ type: "redirect", to: to! })
        const error = yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root })))
        assert.strictEqual(error._tag === "HttpError" ? error.problem : error, "redirect")
        assert.include(error.message, hint!)
      }
    }))

  it.live("nobody there is an error", () =>
    Effect.gen(function*() {
      const { made, name, root } = yield* scene(1000)
      yield* Effect.promise(made.close)
      const error = yield* Effect.flip(pull(name)).pipe(Effect.provide(layer({ root })))
      assert.strictEqual(error._tag === "HttpError" ? error.problem : error, "unreachable")
      assert.deepStrictEqual(fs.readdirSync(path.join(root, "blobs")), [])
    }))
})
