/**
 * What drafts of a prediction block gain, by the costs that `plan` has for an H200: a count, no measurement. With k drafts a round, of
 * which each is right with chance a if those before it are, a round makes
 *
 *     1 + a + .. + a^k = (1 - a^(k+1)) / (1 - a) tokens
 *
 * and takes the step of k + 1 tokens that verifies them (the next larger program), the block's reading of the tokens that were
 * accepted, which makes the first guess, and k - 1 more guesses. The gain is tokens a round times the time of a step of one token, over
 * that. What the host and the transfer of logits take is not in it.
 *
 *     node bench/drafts.ts [acceptance 0.8] [shape glm-4.7-flash-mtp:q4_0] [context 1024]
 *
 * `tg bench --draft mtp --accept 0.8` measures the same on a device.
 */
import { Effect, Result } from "effect"
import { piece } from "../packages/model-parts/src/Attention.ts"
import { h200 } from "../packages/core-uop/src/DeviceProfile.ts"
import type { Pipeline } from "../packages/jit/src/Pipeline.ts"
import * as Estimate from "../packages/jit/src/Estimate.ts"
import * as ActivationPolicy from "../packages/engine/src/ActivationPolicy.ts"
import * as PredictionProgram from "../packages/engine/src/PredictionProgram.ts"
import * as RoundProgram from "../packages/engine/src/RoundProgram.ts"
import { guessSizes } from "../packages/engine/src/RoundLength.ts"
import * as StepProgram from "../packages/engine/src/StepProgram.ts"
import type { TensorProgram } from "../packages/tensor/src/Program.ts"
import * as Compiled from "./support/compiled.ts"

const [accepted = "0.8", shape = "glm-4.7-flash-mtp:q4_0", asked = "1024"] = process.argv.slice(2)
const [chance, context] = [Number(accepted), Number(asked)]
const sizes = [1, 2, 4, 8, 16]
const sizeFor = (tokens: number): number => sizes.find((size) => size >= tokens)!

/** Launches and microseconds of a step in the middle of the context. */
const costOf = Effect.fn("bench.drafts.cost")(
  function*(pipeline: Pipeline["Service"], { sink }: TensorProgram, tokens: number) {
    const made = yield* Estimate.estimate(pipeline, sink)
    const middle = Math.floor(context / 2)
    const launches = yield* made.launches({
      ...{ T: tokens, startPos: middle, guess: 1, right: RoundProgram.mostRound },
      pieces: Math.ceil(middle / piece)
    })
    return { launches: launches.length, micros: launches.reduce((sum, { micros }) => sum + micros, 0) }
  }
)

const program = Effect.gen(function*() {
  const pipeline = yield* Compiled.pipelineFor(Compiled.targets[0])
  const model = yield* Compiled.modelOf(shape)
  const block = Result.getOrThrow(model.prediction!)
  const size = { activations: ActivationPolicy.activationsOn(h200), cache: "f16", context, profile: h200 } as const
  const of = (tokens: number) => ({ ...size, chunk: tokens, isWhole: true, order: "tokens" } as const)
  const one = yield* costOf(pipeline, StepProgram.decodeProgram(model, size), 1)
  const guess = yield* costOf(pipeline, PredictionProgram.guessProgram({ model, block }, of(1)), 1)
  const verify = new Map<number, number>()
  const read = new Map<number, number>()
  for (const tokens of sizes.slice(0, 4)) {
    const step = StepProgram.stepProgram(model, { ...of(tokens), rows: "all", states: true })
    verify.set(tokens, (yield* costOf(pipeline, step, tokens)).micros)
    read.set(
      tokens,
      (yield* costOf(pipeline, PredictionProgram.readProgram({ model, block }, of(tokens)), tokens)).micros
    )
  }
  console.log(`${shape}, context ${context}, H200 by its costs; each draft right with chance ${chance}`)
  console.log(`a step of one token ${one.micros.toFixed(0)} us, ${one.launches} launches`)
  console.log(`a guess of the block ${guess.micros.toFixed(0)} us, ${guess.launches} launches`)
  for (const [tokens, micros] of verify) {
    console.log(
      `a step that verifies ${tokens}: ${micros.toFixed(0)} us; the block reads ${tokens}: ${
        read.get(tokens)!.toFixed(0)
      }`
    )
  }
  console.log("drafts  tokens a round  us a round  gain")
  for (let k = 1; k < 8; k++) {
    const tokens = chance === 1 ? k + 1 : (1 - chance ** (k + 1)) / (1 - chance)
    const micros = verify.get(sizeFor(k + 1))! + read.get(sizeFor(Math.ceil(tokens)))! + (k - 1) * guess.micros
    const gain = tokens * one.micros / micros
    console.log(
      [String(k).padEnd(8), tokens.toFixed(2).padEnd(16), micros.toFixed(0).padEnd(12), gain.toFixed(2)].join("")
    )
  }
  console.log("rounds that run ahead: nobody waits between them, each takes one submission and one read")
  console.log("drafts  launches  us verify  accept  read  guess  us a round  gain")
  const next = yield* costOf(pipeline, RoundProgram.guessProgram({ model, block }, size), 1)
  for (const k of guessSizes) {
    const count = k + 1
    const step = yield* costOf(pipeline, RoundProgram.verifyProgram(model, size, count), count)
    const accept = yield* costOf(pipeline, RoundProgram.acceptProgram(model, count), count)
    const reading = yield* costOf(pipeline, RoundProgram.readProgram({ model, block }, size, count), count)
    const tokens = chance === 1 ? count : (1 - chance ** count) / (1 - chance)
    const micros = step.micros + accept.micros + reading.micros + (k - 1) * next.micros
    const launches = step.launches + accept.launches + reading.launches + (k - 1) * next.launches
    console.log([
      String(k).padEnd(8),
      String(launches).padEnd(10),
      step.micros.toFixed(0).padEnd(11),
      accept.micros.toFixed(0).padEnd(8),
      reading.micros.toFixed(0).padEnd(6),
      next.micros.toFixed(0).padEnd(7),
      micros.toFixed(0).padEnd(12),
      (tokens * one.micros / micros).toFixed(2)
    ].join(""))
  }
})

await Effect.runPromise(program)
