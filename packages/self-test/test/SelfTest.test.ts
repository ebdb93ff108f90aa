import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { wasm } from "@tg/core-uop/DeviceProfile"
import { DeviceError } from "@tg/runtime/Device"
import { Effect, Layer } from "effect"
import * as KeyValueStore from "effect/persistence/KeyValueStore"
import { extract } from "./support/extract.ts"
import { SelfTest, Verdict } from "../src/index.ts"
import * as NodeVectors from "../src/NodeVectors.ts"
import { losing, subject, wrongBytes, wrongMemory } from "./support/wasm.ts"

const vectors = await Effect.runPromise(NodeVectors.read())
const all = SelfTest.cases(vectors)
/** A few of each family; `tg doctor --self-test` is tested with all of them. */
const some = all.filter(({ name }) =>
  ["a large launch reaches every element", "halves", "Q4_0", "Q6_K"].includes(name) || /^m01.*as used$/.test(name)
)

/** The same without a model. */
const few = some.slice(0, -1)

const test = (broken: Parameters<typeof subject>[0], cases = few) => SelfTest.run(subject(broken), vectors, { cases })

describe("a device", () => {
  it.effect("that is right passes", () =>
    Effect.gen(function*() {
      const done: Array<number> = []
      const verdict = yield* SelfTest.run(subject(), vectors, {
        cases: few,
        onProgress: (progress) => Effect.sync(() => done.push(progress.done))
      })
      assert.deepEqual([verdict.failures, verdict.avoid, verdict.refused, verdict.cases], [[], [], false, few.length])
      assert.deepEqual(done, few.map((_, i) => i + 1))
      assert.match(Verdict.report(verdict).join("\n"), /all 4 cases are right/)
    }))

  it.effect("that multiplies bytes wrongly is used without that", () =>
    Effect.gen(function*() {
      const verdict = yield* test(wrongBytes, some)
      assert.deepEqual(verdict.failures.map(({ name }) => name), ["Q4_0", "Q6_K", some.at(-1)!.name])
      assert.deepEqual([verdict.avoid, verdict.refused], [["packed-dot"], false])
      assert.isFalse(Verdict.without(wasm, verdict.avoid).packedDot)
      assert.match(
        Verdict.report(verdict).join("\n"),
        /weights, Q4_0: product with bytes: off by .*\n.*[^]*right without packed-dot/
      )
    }))

  it.effect("that changes bits of memory is refused, and says what to do", () =>
    Effect.gen(function*() {
      const verdict = yield* test(wrongMemory)
      assert.deepEqual([verdict.avoid, verdict.refused], [[], true])
      assert.match(Verdict.report(verdict).join("\n"), /nothing that can be avoided mends it/)
    }))

  it.effect("that is lost once is tested on, and one that the same program loses again is at fault", () =>
    Effect.gen(function*() {
      assert.deepEqual((yield* test(losing("dequant", 0))).failures, [])
      const once = yield* test(losing("", 1))
      assert.deepEqual(once.failures, [])
      const always = yield* test(losing("", Infinity))
      assert.deepEqual([always.failures.length, always.refused], [few.length, true])
      assert.equal(always.failures[0]!.problem, "the tests have lost it")
    }))

  it.effect("that does not start is refused", () =>
    Effect.gen(function*() {
      const absent = Layer.effectDiscard(
        Effect.fail(new DeviceError({ reason: "Unavailable", message: "nobody is there" }))
      )
      const given = subject()
      const verdict = yield* SelfTest.run(
        { ...given, layer: (avoid) => Layer.provideMerge(given.layer(avoid), absent) },
        vectors,
        { cases: few }
      )
      assert.deepEqual([verdict.refused, verdict.failures[0]!.problem], [true, "nobody is there"])
    }))
})

describe("a verdict", () => {
  const verdict: Verdict.Verdict = {
    version: 1,
    device: "a GPU",
    identity: "a GPU\ndriver 1",
    date: "2026-11-22T00:00:00.000Z",
    cases: 65,
    failures: [{ family: "operations", name: "floats are summed", problem: "sums: element 0 is 1, not 0" }],
    avoid: ["subgroups"],
    refused: false
  }
  it.effect("is found again for the same driver alone, and what is damaged is none", () =>
    Effect.gen(function*() {
      const store = yield* KeyValueStore.KeyValueStore
      assert.isUndefined(yield* Verdict.keep(store, verdict))
      assert.deepEqual(yield* Verdict.find(store, verdict.identity), verdict)
      assert.isUndefined(yield* Verdict.find(store, "a GPU\ndriver 2"))
      const broken = { ...store, get: () => Effect.succeed("{") }
      assert.isUndefined(yield* Verdict.find(broken, verdict.identity))
      const remembered = (avoid?: ReadonlyArray<Verdict.Avoidance>) =>
        Verdict.remembered({ store, identity: verdict.identity, avoid })
      assert.deepEqual([yield* remembered(), yield* remembered([])], [["subgroups"], []])
      yield* Verdict.keep(store, { ...verdict, avoid: [], refused: true })
      const refused = yield* Effect.flip(remembered())
      assert.equal(refused.reason, "Unavailable")
      assert.match(
        refused.message,
        /self-test of 2026-11-22 \(floats are summed\); use another device, or update its driver/
      )
      assert.deepEqual(yield* remembered([]), [])
    }).pipe(Effect.provide(KeyValueStore.layerMemory)))
})

describe("the vectors", () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-self-test-"))
  afterAll(() => fs.rmSync(folder, { recursive: true }))

  it("are those of the tests", () => {
    extract(folder)
    for (const file of fs.readdirSync(folder)) {
      assert.isTrue(
        fs.readFileSync(path.join(folder, file)).equals(fs.readFileSync(path.join(NodeVectors.folder, file))),
        file
      )
    }
  })

  it.effect("that are missing are an error that names the file", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(NodeVectors.read([folder + "/../no-such-folder", os.tmpdir()]))
      assert.match(error.message, /index\.json.*cannot be read/)
    }))
})
