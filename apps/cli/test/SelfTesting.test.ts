import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import * as Verdict from "@tg/self-test/Verdict"
import { Effect } from "effect"
import { wasmIdentity } from "../src/Devices.ts"
import * as Profiles from "../src/Profiles.ts"
import { tg } from "./support/run.ts"

const isFull = process.env["TG_FULL"] === "1"
const folder = fs.mkdtempSync(join(tmpdir(), "tg-self-test-"))
const before = process.env["XDG_CACHE_HOME"]
beforeAll(() => {
  process.env["XDG_CACHE_HOME"] = folder
})
afterAll(() => {
  if (before === undefined) delete process.env["XDG_CACHE_HOME"]
  else process.env["XDG_CACHE_HOME"] = before
  fs.rmSync(folder, { recursive: true })
})

const verdict: Verdict.Verdict = {
  version: 1,
  device: "wasm",
  identity: wasmIdentity,
  date: "2026-11-22T00:00:00.000Z",
  cases: 65,
  failures: [{ family: "weights", name: "Q4_0", problem: "product with bytes: off by 7" }],
  avoid: [],
  refused: true
}

const keep = (changes: Partial<Verdict.Verdict>) =>
  Effect.gen(function*() {
    const keeping = yield* Profiles.keeping
    assert.isUndefined(yield* Verdict.keep(keeping!.store, { ...verdict, ...changes }))
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))

const question = ["generate", "--device", "wasm", "--no-cache", "What is 17 + 25?"]

describe("what a self-test has found", () => {
  it.live("keeps a device that is wrong from being used, and says what to do", () =>
    Effect.gen(function*() {
      yield* keep({})
      const { code, stderr, stdout } = yield* tg(question)
      assert.deepEqual([code, stdout], [1, ""])
      assert.match(stderr, /wasm computed wrong results in its self-test of 2026-11-22 \(Q4_0\); use another device/)
      const doctor = yield* tg(["doctor", "--device", "wasm"])
      assert.equal(doctor.code, 0)
      assert.match(doctor.stdout, /weights, Q4_0: product with bytes: off by 7/)
    }))

  it.live("is done without by all that runs models", () =>
    Effect.gen(function*() {
      yield* keep({ avoid: ["packed-dot"], refused: false })
      const plan = ["bench", "--device", "wasm", "--no-cache", "-p", "1", "-n", "1", "-r", "1", "--json"]
      const { code, stdout } = yield* tg(question)
      assert.deepEqual([code, stdout.trim()], [0, "17 + 25 = 42"])
      const without = JSON.parse((yield* tg(plan)).stdout)
      yield* keep({ failures: [], refused: false })
      const usual = JSON.parse((yield* tg(plan)).stdout)
      // products with bytes round their operands in launches of their own
      assert.isBelow(without.dispatchesPerToken, usual.dispatchesPerToken)
    }))

  it.live("is asked of devices that compile", () =>
    Effect.gen(function*() {
      const { code, stderr } = yield* tg(["doctor", "--self-test", "--device", "reference"])
      assert.equal(code, 1)
      assert.match(stderr, /--device webgpu or wasm/)
    }))

  // the oracle's tests ask the same of wasm
  it.live.skipIf(!isFull)(
    "is found by doctor --self-test, and told by doctor from then on",
    () =>
      Effect.gen(function*() {
        yield* keep({})
        const { code, stdout } = yield* tg(["doctor", "--self-test", "--device", "wasm"])
        assert.equal(code, 0)
        assert.match(stdout, /self-test of wasm, .*\n.*\n {2}all 66 cases are right/)
        assert.match((yield* tg(["doctor"])).stdout, /self-test of .*: all 66 cases right/)
        assert.equal((yield* tg(question)).stdout.trim(), "17 + 25 = 42")
      })
  )
})
