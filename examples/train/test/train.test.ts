import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Devices from "@tg/node/Devices"
import { load } from "@tg/node/Model"
import { Effect, Result, Stream } from "effect"
import * as Curve from "../src/Curve.ts"
import { file, model, turns } from "../src/Model.ts"
import { addition, additions, batchOf, sequenceLength } from "../src/Problems.ts"
import { type Settings, train, TrainError } from "../src/Train.ts"

const settings: Settings = { digits: 1, steps: 40, sequences: 16, rate: 4e-3, seed: 1 }
const own = Result.getOrThrow(model)
const wasm = Devices.layer("wasm", { threads: 2 })

describe("training", () => {
  it.live("makes the loss fall, and a file that answers", () =>
    Effect.gen(function*() {
      const told: Array<number> = []
      const { losses, weights } = yield* train(own, settings, ({ step }) => Effect.sync(() => void told.push(step)))
        .pipe(Effect.provide(wasm))
      assert.deepStrictEqual(told, losses.map((_, i) => i + 1))
      const [first] = losses
      const last = losses.slice(-4).reduce((a, b) => a + b) / 4
      // it begins with a guess among all tokens, ln(268) = 5.6, and first learns that answers are digits: ln(10) = 2.3
      assert.closeTo(first!, Math.log(268), 0.2)
      assert.isBelow(last, 2)

      const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tg-train-"))
      try {
        const out = path.join(folder, "adds.gguf")
        fs.writeFileSync(out, yield* Effect.fromResult(file(weights)))
        const loaded = yield* load(out, { device: "wasm", threads: 2, context: 64 })
        assert.strictEqual(loaded.name, "tg-adds")
        assert.match(yield* Stream.mkString(loaded.chat("3+4", { maxTokens: 4 })), /^[0-9]*$/)
      } finally {
        fs.rmSync(folder, { recursive: true })
      }
    }).pipe(Effect.scoped))

  it.live("refuses what does not fit", () =>
    Effect.gen(function*() {
      for (const wrong of [{ digits: 3 }, { sequences: 7 }, { steps: 0 }]) {
        const error = yield* Effect.flip(train(own, { ...settings, ...wrong }))
        assert.instanceOf(error, TrainError)
      }
    }).pipe(Effect.provide(wasm)))
})

describe("problems", () => {
  it("count the tokens of the answer, and the mark behind it", () => {
    const { counts, targets, tokens } = batchOf([addition(3, 9), addition(0, 0)], turns, sequenceLength(1))
    const text = [..."3+9", "A", ..."12", "U"].map((c) =>
      c === "A" ? turns.assistant : c === "U" ? turns.user : c.charCodeAt(0)
    )
    assert.deepStrictEqual([...tokens.subarray(0, 8)], [turns.user, ...text])
    assert.deepStrictEqual([...targets.subarray(0, 7)], text)
    assert.deepStrictEqual([...counts], [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0])
  })

  it("are learnt or asked, never both", () => {
    const { asked, learnt } = additions(2, 1)
    assert.strictEqual(new Set([...asked, ...learnt].map(({ question }) => question)).size, 10_000)
    assert.isAbove(asked.length, 900)
  })
})

describe("the curve", () => {
  it("is a line of points inside of the picture", () => {
    const [, points] = /points="([^"]*)"/.exec(Curve.svg(Array.from({ length: 1000 }, (_, i) => 5 / (i + 1)), "a < b"))!
    const places = points!.split(" ").map((point) => point.split(",").map(Number))
    assert.strictEqual(places.length, 200)
    assert.isTrue(places.every(([x, y]) => x! >= 0 && x! <= 720 && y! >= 0 && y! <= 360))
  })

  it("is told as a bar", () => {
    const line = Curve.progress({ step: 250, steps: 1000, loss: 0.5, millis: 25_000 })
    assert.strictEqual(line, "[#######-----------------------] 250/1000, loss 0.500, 100 ms a step, 75 s left")
  })
})
