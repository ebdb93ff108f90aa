import * as fs from "node:fs"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FileSystem, Layer, PlatformError } from "effect"
import * as Http from "../src/Http.ts"
import { Machine } from "../src/Machine.ts"
import * as NodeMachine from "../src/NodeMachine.ts"
import { Store } from "../src/Store.ts"
import { noise, sha256, start } from "./support/server.ts"
import { folder, nameOf, pull, quick } from "./support/store.ts"

const server = Effect.acquireRelease(Effect.promise(start), (made) => Effect.promise(made.close))

/** A disk with room for so many bytes of contents. */
const small = (room: { bytes: number }) =>
  Layer.effect(
    FileSystem.FileSystem,
    Effect.map(FileSystem.FileSystem, (files) => ({
      ...files,
      open: (path: string, options?: Parameters<typeof files.open>[1]) =>
        Effect.map(files.open(path, options), (file) => ({
          ...file,
          stat: file.stat,
          sync: file.sync,
          seek: file.seek.bind(file),
          read: file.read.bind(file),
          truncate: file.truncate.bind(file),
          writeAll: (bytes: Uint8Array) => {
            if (!path.endsWith(".part")) return file.writeAll(bytes)
            if (room.bytes < bytes.length) {
              const cause = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" })
              // as much as fits is written, as disks do
              return Effect.andThen(
                file.writeAll(bytes.subarray(0, room.bytes)),
                Effect.fail(
                  PlatformError.systemError({ _tag: "Unknown", module: "FileSystem", method: "writeAll", cause })
                )
              )
            }
            room.bytes -= bytes.length
            return file.writeAll(bytes)
          }
        }))
    }))
  ).pipe(Layer.provideMerge(NodeServices.layer))

const layerOn = (root: string, room: { bytes: number }, free = 1e12) =>
  Store.layer({ root, chunkBytes: 16 * 1024 }).pipe(
    Layer.provide(Http.Http.layer(quick)),
    Layer.provide(
      Layer.effect(Machine, Effect.map(Machine, (machine) => ({ ...machine, freeBytes: () => Effect.succeed(free) })))
    ),
    Layer.provide(NodeMachine.layer),
    Layer.provideMerge(small(room))
  )

describe("a full disk", () => {
  it.live("is an error that keeps what is there, and the next pull goes on", () =>
    Effect.gen(function*() {
      const made = yield* server
      const bytes = noise(400_000)
      made.files.set("/m.gguf", { bytes })
      const root = yield* folder
      const name = `${made.url}/m.gguf`
      const room = { bytes: 150_000 }
      const error = yield* Effect.flip(pull(name)).pipe(Effect.provide(layerOn(root, room)))
      assert.strictEqual(error._tag === "StoreError" ? error.problem : error, "no-space")
      assert.match(error.message, /disk is full \(ENOSPC\); make room.*TG_MODELS.*is kept/)
      const kept = yield* Effect.flatMap(Store, ({ find }) => find(nameOf(name))).pipe(
        Effect.provide(layerOn(root, room))
      )
      assert.strictEqual(kept?.doneBytes, 9 * 16 * 1024)
      room.bytes = 1e9
      made.asked.length = 0
      const model = yield* pull(name).pipe(Effect.provide(layerOn(root, room)))
      assert.strictEqual(sha256(fs.readFileSync(model.path)), sha256(bytes))
      assert.strictEqual(1e9 - room.bytes, bytes.length - 9 * 16 * 1024)
    }))

  it.live("is asked for before anything is fetched", () =>
    Effect.gen(function*() {
      const made = yield* server
      made.files.set("/m.gguf", { bytes: noise(400_000) })
      const root = yield* folder
      const error = yield* Effect.flip(pull(`${made.url}/m.gguf`)).pipe(
        Effect.provide(layerOn(root, { bytes: 1e9 }, 399_999))
      )
      assert.strictEqual(error._tag === "StoreError" ? error.problem : error, "no-space")
      assert.include(error.message, "400.0 kB are still to come, and 400.0 kB are free")
      assert.strictEqual(made.asked.length, 1)
    }))
})
