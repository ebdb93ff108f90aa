/** What conversations in the same steps will take: memory, a step with a token of each, and rounds of the prediction block's guesses. */
import type { Estimate, LaunchEstimate, Vars } from "@tg/jit/Estimate"
import type { TensorProgram } from "@tg/tensor/Program"
import { Effect, Result } from "effect"
import type * as MemoryPlan from "./MemoryPlan.ts"
import { pagesFor } from "./Pages.ts"
import * as Parallel from "./Parallel.ts"
import { type PoolOptions, ringOf } from "./Pool.ts"
import * as PoolMemory from "./PoolMemory.ts"
import { guessProgram, type PoolPredictionShape, readProgram } from "./PoolPredictionProgram.ts"
import { poolProgram } from "./PoolProgram.ts"
import { fullest } from "./StepCost.ts"
import * as TokenRing from "./TokenRing.ts"

/** What a program's launches do, once or several times. */
export interface Taken {
  readonly launches: number
  readonly movedBytes: number
  readonly predictedMs: number
}

/** Steps in which each conversation has had a token, as far as they are full: with more conversations than a step takes, they take turns. */
export interface PoolStep extends Taken {
  /** Conversations of such a step. */
  readonly tokens: number
}

/** A round of all conversations: guesses behind the text of each, and what verifies them; all of them right, which is most to read. */
export interface PoolRound extends Taken {
  /** Guesses for each conversation. */
  readonly guesses: number
  /** Submissions that the host waits for, or encodes, one after the other. */
  readonly steps: number
  /** Parts of the predicted time: the model verifies, the block reads what was accepted, and guesses on. */
  readonly verifyMs: number
  readonly readMs: number
  readonly guessMs: number
}

/** Sizes in bytes. */
export interface PoolPlan extends MemoryPlan.Memory {
  readonly conversations: number
  readonly step: PoolStep
  /** Of each number of guesses; none where no prediction block is loaded. */
  readonly rounds: ReadonlyArray<PoolRound>
}

const nothing: Taken = { launches: 0, movedBytes: 0, predictedMs: 0 }

const both = (a: Taken, b: Taken): Taken => ({
  launches: a.launches + b.launches,
  movedBytes: a.movedBytes + b.movedBytes,
  predictedMs: a.predictedMs + b.predictedMs
})

const ofLaunches = (launches: ReadonlyArray<LaunchEstimate>): Taken =>
  launches.reduce<Taken>(
    (sum, { bytes, micros }) => both(sum, { launches: 1, movedBytes: bytes, predictedMs: micros / 1000 }),
    nothing
  )

/** So many tokens in steps of at most so many. */
const partsOf = (tokens: number, most: number): ReadonlyArray<number> =>
  Array.from({ length: Math.ceil(tokens / most) }, (_, i) => Math.min(most, tokens - i * most))

type Asked = Pick<MemoryPlan.Setting, "estimate" | "profile" | "prompts"> & { readonly behind: number }

/** What steps of each kind take, by their tokens; every program is looked at once. */
const costsOf = (model: MemoryPlan.Model, { behind, estimate, profile }: Asked, options: PoolOptions) => {
  const { activations, cache, context, draws, pages: pieces, predicts: states, sizes, tokens: most } = options
  const known = new Map<string, Estimate>()
  const shape = { activations, cache, context, pieces, profile }
  const sizeOf = (tokens: number): number | undefined => sizes.find((size) => size >= tokens)
  const taken = Effect.fnUntraced(function*(kind: string, tokens: number, { sink }: TensorProgram, vars: Vars) {
    const key = `${kind} ${sizeOf(tokens)}`
    const made = known.get(key) ?? (yield* estimate(sink))
    known.set(key, made)
    return ofLaunches(yield* made.launches({ T: tokens, R: tokens, pieces: pagesFor(behind + 1), ...vars }))
  })
  const ring = ringOf(options)
  const ofBlock = (kind: string, make: typeof readProgram) => (tokens: number) => {
    const block = Result.getOrThrow(model.prediction!)
    const own: PoolPredictionShape = { ...shape, most, size: sizeOf(tokens) }
    return taken(kind, tokens, make({ model, block }, own), { guess: 0 })
  }
  return {
    verify: (tokens: number) => {
      const size = sizeOf(tokens)
      const own = { tokens: size ?? most, rows: size ?? most, isWhole: size !== undefined }
      const program = poolProgram(model, { ...shape, ...own, draws, ring, states })
      return taken("verify", tokens, program, { drawn: TokenRing.placeOf(ring, 0) })
    },
    read: ofBlock("read", readProgram),
    guess: ofBlock("guess", guessProgram)
  }
}

type Costs = ReturnType<typeof costsOf>

/** All steps of a kind together. */
const together = (cost: Costs["verify"], steps: ReadonlyArray<number>) =>
  Effect.map(Effect.forEach(steps, cost), (all) => all.reduce(both, nothing))

/** Guesses of each conversation that are planned for. */
const guessSizes = [1, 3, 7] as const

/** A round, as `Guesses`, `PoolPrediction` and `Fair` go through it. */
const roundOf = Effect.fnUntraced(
  function*(costs: Costs, guesses: number, { conversations, full, most }: {
    readonly conversations: number
    /** Tokens of a step that verifies as many. */
    readonly full: (tokens: number) => number
    /** Tokens of a step at most. */
    readonly most: number
  }) {
    const tokens = conversations * (guesses + 1)
    const verifying = partsOf(tokens, full(tokens))
    const groups = partsOf(conversations, most)
    const reading = groups.flatMap((group) => partsOf(group * (guesses + 1), most))
    const guessing = groups.flatMap((group) => Array.from({ length: guesses - 1 }, () => group))
    const verify = yield* together(costs.verify, verifying)
    const read = yield* together(costs.read, reading)
    const guess = yield* together(costs.guess, guessing)
    const round: PoolRound = {
      ...both(verify, both(read, guess)),
      guesses,
      steps: verifying.length + reading.length + guessing.length,
      verifyMs: verify.predictedMs,
      readMs: read.predictedMs,
      guessMs: guess.predictedMs
    }
    return round
  }
)

/** Plans the pool of so many conversations, each of which is behind so many tokens. */
export const plan = Effect.fnUntraced(function*(
  model: MemoryPlan.Model,
  setting: MemoryPlan.Setting,
  { behind, conversations }: { readonly behind: number; readonly conversations: number }
) {
  const { predicts = false, profile, prompts } = setting
  const pool = Parallel.poolOf(setting, { draws: Parallel.drawsOn(profile), parallel: conversations })
  const options: PoolOptions = { ...pool, predicts }
  const memory = yield* PoolMemory.memoryOf(model, setting, options)
  const costs = costsOf(model, { ...setting, behind }, options)
  const full = (tokens: number): number => Math.min(tokens, options.tokens, fullest(prompts.costs, tokens))
  const tokens = full(conversations)
  const made: PoolPlan = {
    ...memory,
    conversations,
    step: { tokens, ...yield* costs.verify(tokens) },
    rounds: predicts
      ? yield* Effect.forEach(
        guessSizes,
        (guesses) => roundOf(costs, guesses, { conversations, full, most: options.tokens })
      )
      : []
  }
  return made
})
