import * as Print from "@tg/core-uop/Print"
import { buildProgram, type RandomProgram, randomProgram, shrinks } from "@tg/tensor/Random"
import { Effect } from "effect"
import { scheduled } from "./stages.ts"

const environment = (globalThis as { readonly process?: { readonly env: Record<string, string | undefined> } }).process
  ?.env

/** First seed and number of programs: `TG_SEED=123 TG_RUNS=1` replays one. Without these, seeds that found faults once come too. */
const seeds = (runs: number, kept: ReadonlyArray<number>): ReadonlyArray<number> => {
  const first = Number(environment?.["TG_SEED"] ?? 0)
  const drawn = Array.from({ length: Number(environment?.["TG_RUNS"] ?? runs) }, (_, i) => first + i)
  return environment?.["TG_SEED"] === undefined ? [...drawn, ...kept] : drawn
}

/** What is wrong with a program, or nothing. A defect of the check counts as a fault of the program. */
export type Check<R> = (random: RandomProgram, seed: number) => Effect.Effect<string | undefined, unknown, R>

const fault = <R>(check: Check<R>, random: RandomProgram, seed: number): Effect.Effect<string | undefined, never, R> =>
  Effect.suspend(() => check(random, seed)).pipe(
    Effect.catchCause((cause) => Effect.succeed(`throws ${String(cause)}`))
  )

/** The smallest program, by leaving steps out, with a fault of the same kind. */
const shrunk = <R>(check: Check<R>, random: RandomProgram, seed: number, found: string) =>
  Effect.gen(function*() {
    let best = random
    let improved = true
    // a fault that only shows on one device may take seconds to reproduce
    for (let tries = 0; improved && tries < 300;) {
      improved = false
      for (const steps of shrinks(best.steps)) {
        tries++
        const candidate = buildProgram(steps)
        if ((yield* fault(check, candidate, seed))?.slice(0, 8) !== found.slice(0, 8)) continue
        best = candidate
        improved = true
        break
      }
    }
    return best
  })

/** The program and its kernels as text. */
const describe = (random: RandomProgram): string => {
  const graph = Print.graph(random.program.sink)
  try {
    const kernels = scheduled(random).steps.map((s) =>
      s.kind === "kernel" ? `${s.name} ${Print.expression(s.ast)}` : s.name
    )
    return [graph, ...kernels].join("\n")
  } catch {
    return graph
  }
}

/** Checks random programs of about `size` steps. Fails with the seed and the shrunk program of the first fault. */
export const forAll = <R>(
  { kept = [], runs, size = 12 }: {
    readonly runs: number
    readonly size?: number
    readonly kept?: ReadonlyArray<number>
  },
  check: Check<R>
): Effect.Effect<number, Error, R> =>
  Effect.gen(function*() {
    const all = seeds(runs, kept)
    for (const seed of all) {
      const random = randomProgram(seed, size)
      const found = yield* fault(check, random, seed)
      if (found === undefined) continue
      const smallest = yield* shrunk(check, random, seed, found)
      const again = yield* fault(check, smallest, seed)
      return yield* Effect.fail(
        // the message is for a person, and nothing handles it
        // @effect-diagnostics-next-line globalErrorInEffectFailure:off
        new Error(
          `TG_SEED=${seed} TG_RUNS=1: ${found}\nshrunk to ${smallest.steps.length} steps: ${again}\n${
            describe(smallest)
          }`
        )
      )
    }
    return all.length
  })
