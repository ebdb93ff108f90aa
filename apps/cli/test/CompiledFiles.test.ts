import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { afterAll, assert, beforeAll, beforeEach, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { KeyValueStore } from "effect/persistence/KeyValueStore"
import { identity, identityOf } from "../src/Build.ts"
import * as CompiledFiles from "../src/CompiledFiles.ts"
import { child, tg } from "./support/run.ts"

// a folder for caches of this file's own
const folder = fs.mkdtempSync(join(tmpdir(), "tg-compiled-"))
const programs = join(folder, "tg", "programs")
const before = process.env["XDG_CACHE_HOME"]
beforeAll(() => {
  process.env["XDG_CACHE_HOME"] = folder
})
beforeEach(() => fs.rmSync(join(folder, "tg"), { recursive: true, force: true }))
afterAll(() => {
  if (before === undefined) delete process.env["XDG_CACHE_HOME"]
  else process.env["XDG_CACHE_HOME"] = before
  fs.rmSync(folder, { recursive: true })
})

const ask = ["generate", "--device", "wasm", "What is 17 + 25?"]
const answer = "17 + 25 = 42\n"

/** The files that are there, with what is in them. */
const files = (): ReadonlyMap<string, string> =>
  new Map(fs.readdirSync(programs).sort().map((name) => [name, fs.readFileSync(join(programs, name), "utf8")]))

describe("a command that compiles", () => {
  it.live("keeps its programs, uses them, and makes damaged ones again", () =>
    Effect.gen(function*() {
      assert.strictEqual((yield* tg(ask)).stdout, answer)
      const kept = files()
      assert.isAbove(kept.size, 0)
      const [first] = kept.keys()
      const written = fs.statSync(join(programs, first!)).ino
      assert.strictEqual((yield* tg(ask)).stdout, answer)
      assert.strictEqual(
        fs.statSync(join(programs, first!)).ino,
        written,
        "a program that is kept is not written again"
      )
      for (const name of kept.keys()) fs.writeFileSync(join(programs, name), "not a program")
      const { stderr, stdout } = yield* tg(ask)
      assert.strictEqual(stdout, answer)
      assert.notInclude(stderr, "warning")
      assert.deepStrictEqual(files(), kept)
      const { cache } = JSON.parse((yield* tg(["doctor", "--json"])).stdout) as { readonly cache: CompiledFiles.Usage }
      const bytes = [...kept.values()].reduce((sum, text) => sum + Buffer.byteLength(text), 0)
      assert.deepStrictEqual(cache, { folder: programs, programs: kept.size, bytes })
    }))

  it.live("keeps nothing with --no-cache, and with --check", () =>
    Effect.gen(function*() {
      for (const flag of ["--no-cache", "--check"]) {
        assert.strictEqual((yield* tg([...ask, flag])).stdout, answer)
        assert.isFalse(fs.existsSync(programs))
      }
    }))

  it.live("says that there is no room for them, and goes on", () =>
    Effect.gen(function*() {
      fs.mkdirSync(join(folder, "tg"))
      fs.writeFileSync(programs, "a file where the folder would be")
      const { stderr, stdout } = yield* tg(ask)
      assert.strictEqual(stdout, answer)
      assert.strictEqual(stderr.split("\n").filter((line) => line.startsWith("warning: ")).length, 1)
      assert.include(stderr, "compiled programs are not kept")
    }))

  it("does not mind another one that keeps the same", async () => {
    const both = await Promise.all([child(ask), child(ask)])
    assert.deepStrictEqual(both.map(({ stdout }) => stdout), [answer, answer])
    const kept = files()
    assert.isTrue([...kept.keys()].every((name) => /^[0-9a-f]+$/.test(name)))
    assert.strictEqual((await child(ask)).stdout, answer)
    assert.deepStrictEqual(files(), kept)
  })
})

const hour = 60 * 60 * 1000

describe("a folder of programs", () => {
  const write = (name: string, bytes: number, age: number): void => {
    fs.mkdirSync(programs, { recursive: true })
    fs.writeFileSync(join(programs, name), "x".repeat(bytes))
    const used = new Date(Date.now() - age)
    fs.utimesSync(join(programs, name), used, used)
  }
  const withStore = <A, E>(most: number, use: (store: KeyValueStore) => Effect.Effect<A, E>) =>
    Effect.flatMap(KeyValueStore, use).pipe(
      Effect.provide(CompiledFiles.layer(programs, most).pipe(Layer.provide(NodeServices.layer)))
    )

  it.live("drops what was not used for longest, and what was begun and left", () =>
    Effect.gen(function*() {
      write("old", 400, 4 * hour)
      write("older", 400, 5 * hour)
      write("oldest", 400, 6 * hour)
      write("left.1.0.new", 1, 2 * hour)
      write("underway.1.0.new", 1, 0)
      yield* withStore(1000, (store) =>
        Effect.gen(function*() {
          assert.strictEqual((yield* store.get("oldest"))?.length, 400)
          yield* store.set("made", "x".repeat(100))
        }))
      assert.deepStrictEqual(fs.readdirSync(programs).sort(), ["made", "old", "oldest", "underway.1.0.new"])
    }))

  it.live("is left alone where nothing was written", () =>
    Effect.gen(function*() {
      write("large", 5000, hour)
      yield* withStore(1000, (store) => store.get("large"))
      assert.deepStrictEqual(fs.readdirSync(programs), ["large"])
    }))
})

describe("the name of the code", () => {
  /** A package as the workspace has them. */
  const make = (root: string, name: string, manifest: object, code: string): void => {
    fs.mkdirSync(join(root, "src"), { recursive: true })
    fs.writeFileSync(join(root, "package.json"), JSON.stringify({ name, version: "1.0.0", ...manifest }))
    fs.writeFileSync(join(root, "src", "main.ts"), code)
  }
  const root = join(folder, "code")
  const main = join(root, "src", "main.ts")
  const stage = join(root, "node_modules", "@tg", "stage")
  const library = join(root, "node_modules", "library")
  const build = (): void => {
    make(root, "@tg/cli", { dependencies: { "@tg/stage": "1" } }, "a")
    make(stage, "@tg/stage", { dependencies: { library: "1" } }, "b")
    make(library, "library", { main: "src/main.ts" }, "c")
  }

  it("is that of all packages", () => {
    build()
    const name = identityOf(main)
    assert.strictEqual(identityOf(main), name)
    fs.writeFileSync(join(stage, "README.md"), "words")
    assert.strictEqual(identityOf(main), name)
    const changes: ReadonlyArray<() => void> = [
      () => fs.writeFileSync(main, "A"),
      () => fs.writeFileSync(join(stage, "src", "main.ts"), "B"),
      () => fs.writeFileSync(join(stage, "src", "other.ts"), ""),
      () => fs.writeFileSync(join(stage, "src", "data.json"), "{}"),
      () => make(library, "library", { main: "src/main.ts", version: "1.0.1" }, "c")
    ]
    const names = changes.map((change) => {
      change()
      return identityOf(main)
    })
    assert.strictEqual(new Set([name, ...names]).size, changes.length + 1)
  })

  it("is that of the file in a bundle", () => {
    const bundle = join(folder, "bundle.mjs")
    const names = ["a", "b"].map((code) => {
      fs.writeFileSync(bundle, code)
      return identityOf(bundle)
    })
    assert.strictEqual(new Set(names).size, 2)
  })

  it("is found for this program", () => assert.match(identity(), /^[0-9a-f]{64}$/))
})
