import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type * as Pull from "../src/Pull.ts"
import { Store } from "../src/Store.ts"
import { noise, sha256, start } from "./support/server.ts"
import { folder, layer, nameOf, pull } from "./support/store.ts"

const server = Effect.acquireRelease(Effect.promise(start), (made) => Effect.promise(made.close))

/** Bytes asked for by ranges, without those that only ask how long a file is. */
const rangesOf = (asked: ReadonlyArray<{ readonly range: string | undefined }>): ReadonlyArray<string> =>
  asked.flatMap(({ range }) => range === undefined || range === "bytes=0-0" ? [] : [range])

/** Contents and their tables. */
const files = (root: string): ReadonlyArray<string> =>
  fs.readdirSync(path.join(root, "blobs")).filter((file) => !file.endsWith(".found")).sort()

describe("pull", () => {
  it.live("a file of any size is the same here", () =>
    Effect.gen(function*() {
      const { files, url } = yield* server
      const root = yield* folder
      const chunk = 16 * 1024
      for (const size of [0, 1, chunk - 1, chunk, chunk + 1, 20 * chunk, 20 * chunk + 7]) {
        const bytes = noise(size, size)
        files.set(`/m${size}.gguf`, { bytes })
        const model = yield* pull(`${url}/m${size}.gguf`).pipe(Effect.provide(layer({ root })))
        assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
        assert.strictEqual(model.files[0]!.sha256, sha256(bytes))
        assert.isTrue(model.isComplete)
      }
    }))

  it.live("connections that break at random cost no bytes that came", () =>
    Effect.gen(function*() {
      const made = yield* server
      const bytes = noise(1_000_003)
      made.files.set("/m.gguf", { bytes })
      let breaks = 0
      made.fault = ({ range }, index) => {
        if (range === "bytes=0-0" || index % 4 === 3) return undefined
        breaks++
        return { type: "break", after: (index * 7919) % 30_000 }
      }
      const root = yield* folder
      const model = yield* pull(`${made.url}/m.gguf`).pipe(Effect.provide(layer({ root }, { attempts: 20 })))
      assert.isAbove(breaks, 10)
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
    }))

  it.live("a flipped byte is found, and only its chunk is fetched again", () =>
    Effect.gen(function*() {
      const made = yield* server
      const bytes = noise(500_000)
      made.files.set("/m.gguf", { bytes })
      const root = yield* folder
      const name = `${made.url}/m.gguf`
      const { path } = yield* pull(name).pipe(Effect.provide(layer({ root })))
      const handle = fs.openSync(path, "r+")
      fs.writeSync(handle, Uint8Array.of(bytes[100_000]! ^ 1), 0, 1, 100_000)
      fs.closeSync(handle)
      made.asked.length = 0
      const events: Array<Pull.Event> = []
      const again = yield* pull(name, { onEvent: (event) => Effect.sync(() => void events.push(event)) }).pipe(
        Effect.provide(layer({ root }))
      )
      assert.deepStrictEqual(events.filter(({ type }) => type === "damaged"), [
        { type: "damaged", file: "m.gguf", chunks: [6] }
      ])
      assert.deepStrictEqual(rangesOf(made.asked), [`bytes=${6 * 16384}-${7 * 16384 - 1}`])
      assert.strictEqual(sha256(fs.readFileSync(again.path)), sha256(bytes))
      assert.deepStrictEqual(files(root), [sha256(bytes), `${sha256(bytes)}.chunks`])
    }))

  it.live("one copy, however many names", () =>
    Effect.gen(function*() {
      const made = yield* server
      const bytes = noise(100_000)
      made.files.set("/a.gguf", { bytes })
      made.files.set("/b.gguf", { bytes })
      const root = yield* folder
      yield* Effect.gen(function*() {
        const { find, list, remove } = yield* Store
        const a = yield* pull(`${made.url}/a.gguf`)
        const b = yield* pull(`${made.url}/b.gguf`)
        assert.strictEqual(fs.statSync(a.path).ino, fs.statSync(b.path).ino)
        assert.deepStrictEqual(files(root), [sha256(bytes), `${sha256(bytes)}.chunks`])
        assert.deepStrictEqual((yield* list).map(({ name }) => name), [`${made.url}/a.gguf`, `${made.url}/b.gguf`])
        assert.strictEqual((yield* remove(nameOf(a.name))).freedBytes, 0)
        assert.strictEqual(sha256(fs.readFileSync(b.path)), sha256(bytes))
        assert.isUndefined(yield* find(nameOf(a.name)))
        assert.strictEqual((yield* remove(nameOf(b.name))).freedBytes, bytes.length)
        assert.deepStrictEqual(fs.readdirSync(path.join(root, "blobs")), [])
        assert.strictEqual((yield* Effect.flip(remove(nameOf(b.name)))).problem, "unknown-name")
      }).pipe(Effect.provide(layer({ root })))
    }))
})
