/** Trains, writes the model and its loss curve, and asks the model what it did not see. */
import * as fs from "node:fs"
import { parseArgs } from "node:util"
import * as Devices from "@tg/node/Devices"
import { load, type Model } from "@tg/node/Model"
import { Effect, Stream } from "effect"
import * as Curve from "./Curve.ts"
import { file, model } from "./Model.ts"
import { additions, type Problem } from "./Problems.ts"
import { type Done, type Settings, train } from "./Train.ts"

const { values: given } = parseArgs({
  options: {
    digits: { type: "string", default: "2" },
    steps: { type: "string", default: "2500" },
    problems: { type: "string", default: "64" },
    rate: { type: "string", default: "0.002" },
    seed: { type: "string", default: "1" },
    device: { type: "string", default: "wasm" },
    out: { type: "string", default: "tg-adds" }
  }
})

const settings: Settings = {
  digits: Number(given.digits),
  steps: Number(given.steps),
  sequences: Number(given.problems),
  rate: Number(given.rate),
  seed: Number(given.seed)
}

/** A line on stderr that the next one replaces; where stderr is no terminal, one in fifty stays. */
const showing = (start: number) => ({ loss, step }: Done) =>
  Effect.sync(() => {
    const { isTTY } = process.stderr
    const line = Curve.progress({ step, steps: settings.steps, loss, millis: performance.now() - start })
    const isLast = step === settings.steps
    if (isTTY) process.stderr.write(`\r\x1b[K${line}${isLast ? "\n" : ""}`)
    else if (isLast || step % 50 === 0) process.stderr.write(`${line}\n`)
  })

/** How many of the problems the model answers. */
const answered = (loaded: Model, problems: ReadonlyArray<Problem>) =>
  Effect.map(
    Effect.forEach(problems, ({ answer, question }) =>
      Effect.map(Stream.mkString(loaded.chat(question, { maxTokens: 8 })), (said) =>
        said.trim() === answer)),
    (results) =>
      results.filter((isRight) => isRight).length
  )

const program = Effect.gen(function*() {
  const device = Devices.choices.find((choice) => choice === given.device)
  if (device === undefined) {
    return yield* Effect.die(new Error(`--device ${given.device}: use one of ${Devices.choices.join(", ")}`))
  }
  const own = yield* Effect.fromResult(model)
  const { losses, weights } = yield* train(own, settings, showing(performance.now())).pipe(
    Effect.provide(Devices.layer(device))
  )
  const [gguf, svg] = [`${given.out}.gguf`, `${given.out}.svg`]
  fs.writeFileSync(gguf, yield* Effect.fromResult(file(weights)))
  fs.writeFileSync(svg, Curve.svg(losses, `sums of numbers of ${settings.digits} digits, seed ${settings.seed}`))
  const loaded = yield* load(gguf, { device, context: 64 })
  const { asked, learnt } = additions(settings.digits, settings.seed)
  // as many of what it learnt from, from all over: small numbers come first
  const every = Math.ceil(learnt.length / asked.length)
  const some = learnt.filter((_, i) => i % every === 0)
  const known = yield* answered(loaded, some)
  const unknown = yield* answered(loaded, asked)
  process.stdout.write(`wrote ${gguf} and ${svg}\n`)
  process.stdout.write(`right: ${known} of ${some.length} that it learnt from, ${unknown} of ${asked.length} others\n`)
}).pipe(Effect.scoped)

await Effect.runPromise(program)
