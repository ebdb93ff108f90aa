/** How fast products read quantised weights on a device: what a step of a model is bound by where a CPU computes. */
import { Tuner } from "@tg/tuner/Tuner"
import { Effect, Option } from "effect"
import * as Kernel from "./commands/Kernel.ts"
import * as Tune from "./commands/Tune.ts"

/** A step whose products are as large as those of models that people run. */
const shape = "youtu-llm-2b:q4_0"
/** So many of its largest launches are timed. */
const launches = 3

/** What was found. */
export interface WeightSpeed {
  readonly shape: string
  readonly bytesPerMicro: number
}

/** Times the launches that read most of a step, on weights that no cache holds. */
export const measure = Effect.fn("WeightSpeed.measure")(function*() {
  const tuner = yield* Tuner
  const asked = { model: Option.none(), shape: Option.some(shape), step: "decode", kv: "f16" } as const
  const kernels = yield* Kernel.kernelsOf({ ...asked, activations: "auto", context: Option.none() })
  const vars = Tune.varsOf([...kernels.values()].map(({ ast }) => ast), { depth: Option.none(), step: "decode" })
  const largest = [...kernels]
    .map(([name, { ast }]) => Tune.jobOf({ name, kernel: ast, vars, seed: 0 }))
    .toSorted((a, b) => b.setup.bytes - a.setup.bytes)
    .slice(0, launches)
  const timed = yield* Effect.forEach(largest, (job) => tuner.time(job))
  const speed: WeightSpeed = {
    shape,
    bytesPerMicro: Number(
      (largest.reduce((sum, { setup }) => sum + setup.bytes, 0) / timed.reduce((sum, { micros }) => sum + micros, 0))
        .toPrecision(4)
    )
  }
  return speed
})
