import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { noise, sha256, start, type TestServer } from "./support/server.ts"
import { folder } from "./support/store.ts"

const server = Effect.acquireRelease(Effect.promise(start), (made) => Effect.promise(made.close))
const script = fileURLToPath(new URL("./support/pull.ts", import.meta.url))

interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
  /** Bytes that were there when it began to fetch, and when it ended. */
  readonly from: number
  readonly to: number
}

/** A process that pulls. Once it has begun it is ended with a signal after so many bytes more, if they are given. */
const child = (made: TestServer, root: string, end?: { readonly after: number; readonly signal: NodeJS.Signals }) =>
  Effect.promise(() =>
    new Promise<Ended>((resolve, reject) => {
      const process_ = spawn(process.execPath, [script, `${made.url}/m.gguf`, root], {
        stdio: ["ignore", "pipe", "pipe"]
      })
      let stdout = ""
      let stderr = ""
      let first: number | undefined
      let last = 0
      process_.stdout.on("data", (data) => {
        stdout += String(data)
        const done = Number(/(\d+)\n$/.exec(stdout)?.[1] ?? 0)
        first ??= done
        last = done
        if (end !== undefined && done - first >= end.after) process_.kill(end.signal)
      })
      process_.stderr.on("data", (data) => {
        stderr += String(data)
      })
      process_.on("error", reject)
      process_.on("close", (code) => resolve({ code, stdout, stderr, from: first ?? 0, to: last }))
    })
  )

describe("a pull that is killed", () => {
  it.live("ten times at random ends with the right hash, and fetches little twice", () =>
    Effect.gen(function*() {
      const made = yield* server
      const size = 24 * 2 ** 20 + 12_345
      const bytes = noise(size)
      made.files.set("/m.gguf", { bytes })
      made.speed = 16_000
      const root = yield* folder
      let before = 0
      // what four connections have of chunks that are not whole, and of requests whose end they have not seen
      const lost = 4 * 2 * 64 * 1024
      for (const random of noise(10, 2026)) {
        const after = 2 ** 19 + random * 2 ** 12
        // some more than that, so that a busy machine does not fetch all of it before the signal comes
        made.left = after + 2 ** 20
        const { code, from, to } = yield* child(made, root, { after, signal: "SIGKILL" })
        assert.isNull(code)
        assert.isAtLeast(from, before - lost)
        before = to
      }
      assert.isAbove(before, 2 ** 21)
      made.speed = undefined
      made.left = Infinity
      const last = yield* child(made, root)
      assert.isAtLeast(last.from, before - lost)
      assert.strictEqual(last.stderr, "")
      assert.strictEqual(last.code, 0)
      const [found = ""] = fs.readdirSync(path.join(root, "names"))
      assert.strictEqual(sha256(fs.readFileSync(path.join(root, "names", found, "m.gguf"))), sha256(bytes))
      assert.deepStrictEqual(fs.readdirSync(path.join(root, "locks")), [])
    }))

  it.live("by Ctrl-C keeps what came and leaves no lock", () =>
    Effect.gen(function*() {
      const made = yield* server
      made.files.set("/m.gguf", { bytes: noise(8 * 2 ** 20) })
      made.speed = 4000
      const root = yield* folder
      yield* child(made, root, { after: 5 * 2 ** 20, signal: "SIGINT" })
      assert.deepStrictEqual(fs.readdirSync(path.join(root, "locks")), [])
      const table = fs.readdirSync(path.join(root, "blobs")).find((file) => file.endsWith(".chunks"))!
      assert.isAbove(fs.readFileSync(path.join(root, "blobs", table), "utf8").split("\n").length, 3)
    }))
})
