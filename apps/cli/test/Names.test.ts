import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect } from "effect"
import { startHub, type TestHub } from "../../../packages/hub/test/support/hub.ts"
import { sha256 } from "../../../packages/hub/test/support/server.ts"
import { bar, lineOf, rateOf } from "../src/PullProgress.ts"
import { type Outcome, tg } from "./support/run.ts"

const tiny = fs.readFileSync(fileURLToPath(new URL("../models/tg-tiny-Q4_0.gguf", import.meta.url)))
const repo = "some-one/tg-tiny-GGUF"
const name = `hf:${repo}:Q4_0`

let hub: TestHub
let folder: string
const before = { ...process.env }

beforeAll(async () => {
  hub = await startHub()
  hub.put(repo, "tg-tiny-Q4_0.gguf", tiny)
  hub.put(repo, "tg-tiny-F16.gguf", tiny.subarray(0, 1000))
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-names-"))
  Object.assign(process.env, { HF_ENDPOINT: hub.hub.url, TG_MODELS: folder })
  delete process.env["HF_TOKEN"]
})

afterAll(async () => {
  process.env = before
  await hub.close()
  fs.rmSync(folder, { recursive: true, force: true })
})

const asked = { json: (outcome: Outcome): unknown => JSON.parse(outcome.stdout) }

describe("models by name", () => {
  it.live("what is not here is not fetched unasked", () =>
    Effect.gen(function*() {
      const { code, stderr, stdout } = yield* tg(["generate", "--model", name, "--device", "wasm", "Hi"])
      assert.deepStrictEqual([code, stdout], [1, ""])
      assert.include(stderr, `error: ${name} is not on this machine; fetch it: tg pull ${name} (or add --pull)`)
      assert.strictEqual(hub.storage.asked.length, 0)
      assert.include((yield* tg(["models"])).stderr, "no model was pulled yet")
    }))

  it.live("inspect and plan read only the header", () =>
    Effect.gen(function*() {
      for (
        const args of [["inspect", "--model", name], ["plan", "--model", name], [
          "inspect",
          "--model",
          `${hub.hub.url}/${repo}/resolve/main/tg-tiny-Q4_0.gguf`
        ]]
      ) {
        hub.storage.asked.length = 0
        const { code, stdout } = yield* tg(args)
        assert.strictEqual(code, 0)
        assert.include(stdout, "tg-tiny-Q4_0.gguf")
        const bytes = hub.storage.asked.map(({ range = "" }) => {
          const [, first, last] = /(\d+)-(\d+)/.exec(range) ?? []
          return Number(last) + 1 - Number(first)
        })
        assert.isBelow(bytes.reduce((a, b) => a + b), tiny.length / 2)
      }
    }))

  it.live("pull, models, generate, rm", () =>
    Effect.gen(function*() {
      const pulled = yield* tg(["pull", name, "--json"])
      assert.strictEqual(pulled.code, 0, pulled.stderr)
      assert.match(pulled.stderr, /7\.3 MB whole and checked; 7\.3 MB fetched in/)
      const { files, path: file } = asked.json(pulled) as {
        readonly path: string
        readonly files: ReadonlyArray<unknown>
      }
      assert.deepStrictEqual(files, [{ file: "tg-tiny-Q4_0.gguf", size: tiny.length, sha256: sha256(tiny) }])
      assert.isTrue(fs.readFileSync(file).equals(tiny))
      const again = yield* tg(["pull", name])
      assert.strictEqual(again.stdout, `${file}\n`)
      assert.include(again.stderr, "nothing had to be fetched")
      const listed = yield* tg(["models"])
      assert.match(listed.stdout, new RegExp(`${name}\\s+7\\.3 MB\\s+ready`))
      const answer = yield* tg(["generate", "--model", name, "--device", "wasm", "What is 17 + 25?"])
      assert.strictEqual(answer.stdout, "17 + 25 = 42\n", answer.stderr)
      assert.include((yield* tg(["models", "rm", name])).stderr, "7.3 MB are free again")
      const gone = yield* tg(["models", "rm", name])
      assert.deepStrictEqual([gone.code, gone.stderr], [1, `error: ${name}: there is no model of this name here\n`])
    }))

  it.live("--pull fetches what is not here", () =>
    Effect.gen(function*() {
      const answer = yield* tg(["generate", "--pull", "--model", name, "--device", "wasm", "What is 17 + 25?"])
      assert.strictEqual(answer.stdout, "17 + 25 = 42\n", answer.stderr)
    }))

  it.live("what is no name, and what the hub does not have", () =>
    Effect.gen(function*() {
      for (
        const [model, hint] of [
          ["no-such-thing", "names no model: give hf:owner/repo/file.gguf"],
          [`hf:${repo}:Q2_K`, "there is no Q2_K; there are F16, Q4_0"],
          ["http://example.org/x.gguf", "use https://"]
        ] as const
      ) {
        const { code, stderr } = yield* tg(["pull", model])
        assert.strictEqual(code, 1)
        assert.include(stderr, hint)
      }
      // a path of a file stays one
      assert.include((yield* tg(["inspect", "--model", "no-such-thing"])).stderr, "no-such-thing cannot be opened")
    }))
})

describe("the environment", () => {
  it.live("an endpoint that is no address is told", () =>
    Effect.gen(function*() {
      const { code, stderr } = yield* tg(["pull", name]).pipe(
        Effect.provideService(
          ConfigProvider.ConfigProvider,
          ConfigProvider.fromEnv({ env: { HOME: folder, HF_ENDPOINT: "hub" } })
        )
      )
      assert.deepStrictEqual(
        [code, stderr],
        [1, "error: HF_ENDPOINT is \"hub\", which is no address; give one like https://host\n"]
      )
    }))
})

describe("how a pull is told", () => {
  it("the bar has a rate and the time left", () => {
    const rate = rateOf([{ at: 0, bytes: 1e6 }, { at: 2000, bytes: 5e6 }])
    assert.strictEqual(rate, 2e6)
    assert.strictEqual(
      bar("pulling", { doneBytes: 5e6, totalBytes: 20e6 }, rate),
      "pulling [######------------------] 5.0 MB of 20.0 MB, 2.0 MB/s, 8 s left"
    )
    assert.strictEqual(
      bar("checking", { doneBytes: 0, totalBytes: 0 }, undefined),
      `checking [${"#".repeat(24)}] 0 B of 0 B`
    )
    assert.isUndefined(rateOf([{ at: 0, bytes: 1 }]))
  })

  it("damage has a line", () => {
    assert.strictEqual(
      lineOf({ type: "damaged", file: "m.gguf", chunks: [3, 5] }),
      "m.gguf: 2 chunks are damaged (3, 5) and fetched again"
    )
    assert.isUndefined(lineOf({ type: "progress", file: "m.gguf", doneBytes: 1 }))
  })
})
