/** `tg bench --steps 1,2,4,8`: what a step of several tokens takes, beside a step of one. */
import { Engine } from "@tg/engine/Engine"
import type { Session } from "@tg/engine/Session"
import * as Profiler from "@tg/jit/Profiler"
import { Effect } from "effect"
import { Chosen } from "./Devices.ts"
import { numbersIn, tokenIds } from "./Measurement.ts"
import * as Output from "./Output.ts"
import { UsageError } from "./Report.ts"
import { table } from "./Table.ts"

/** What is measured: steps of each size behind each number of tokens. */
export interface Job {
  /** Tokens of a step, rising. */
  readonly sizes: ReadonlyArray<number>
  readonly depths: ReadonlyArray<number>
  readonly repeat: number
}

/** One step. */
export interface Measured {
  readonly depth: number
  readonly tokens: number
  readonly launches: number
  /** Steps one after the other without waiting, each: the longer of computing and of encoding. The least of all rounds. */
  readonly ms: number
  /** Of the host to encode it, with as many steps in flight as while decoding. The least of all rounds. */
  readonly encodeMs: number
  /** By the device's clock, where it has one. The median of all rounds. */
  readonly deviceMs?: number
  /** Of what a step of the first size takes. */
  readonly times: number
}

/** `1,2,4` as numbers of tokens, rising, each once. A step of one is what the others are compared with. */
export const parseSizes = (text: string): ReadonlyArray<number> | UsageError => {
  const hint = "numbers of tokens with commas between: 1,2,4,8"
  const sizes = numbersIn(text, { flag: "--steps", least: 1, most: 999_999, hint })
  return sizes instanceof UsageError ? sizes : [...new Set([1, ...sizes])].sort((a, b) => a - b)
}

/** Steps of a round, submitted without waiting. */
const steps = 8

const milliseconds = (micros: number): number => Number((micros / 1000).toPrecision(4))

/** A step of so many tokens behind others, compiled, with real values in the cache. */
const prepare = Effect.fnUntraced(function*(session: Session, depth: number, tokens: number) {
  // different tokens, which choose different experts
  const all = tokenIds(depth + tokens, 0, session.vocabulary)
  yield* depth === 0 ? session.reset : session.advance(all.slice(0, depth))
  yield* session.advance(all)
  return tokens === 1
    ? { tokens, prepared: yield* session.decodeStep(depth), vars: { T: 1, startPos: depth } }
    : { tokens, ...yield* session.promptStep(depth, tokens) }
})

/** Steps of all sizes in turns: a GPU that idles while the host compiles lowers its clock, and what is measured next would be measured at that. */
const measure = Effect.fnUntraced(function*(session: Session, { repeat, sizes }: Job, depth: number) {
  const made = yield* Effect.forEach(sizes, (tokens) => prepare(session, depth, tokens))
  const last = made.at(-1)!
  yield* Profiler.warm(last.prepared, last.vars)
  const rounds = yield* Effect.replicateEffect(
    Effect.forEach(made, ({ prepared, vars }) =>
      Effect.all({
        all: Profiler.backToBack(prepared, vars, steps),
        encodeMicros: Profiler.encoding(prepared, vars, steps),
        deviceMicros: Profiler.onDevice(prepared, vars, 1)
      })),
    repeat
  )
  return made.map(({ prepared, tokens }, i) => {
    const own = rounds.map((round) => round[i]!)
    const device = own.flatMap(({ deviceMicros }) => deviceMicros ?? [])
    return {
      depth,
      tokens,
      launches: prepared.dispatches.length,
      ms: milliseconds(Math.min(...own.map(({ all }) => all.micros))),
      encodeMs: milliseconds(Math.min(...own.map(({ encodeMicros }) => encodeMicros))),
      ...device.length > 0 && { deviceMs: milliseconds(Profiler.median(device)) }
    }
  })
})

/** Measures steps of all sizes behind all depths. */
export const run = Effect.fn("cli.bench.steps")(function*(job: Job) {
  const { model, session } = yield* Engine
  const chosen = yield* Chosen
  for (const tokens of job.sizes) {
    const { length } = yield* session.promptStep(0, tokens)
    if (length === tokens) continue
    return yield* new UsageError({
      message: `--steps ${tokens}: so many tokens of a prompt are read in several steps here, the first of ${length}`
    })
  }
  const measured: Array<Measured> = []
  for (const depth of job.depths) {
    const own = yield* measure(session, job, depth)
    const taken = own.map(({ deviceMs, ms }) => deviceMs ?? ms)
    for (const [i, step] of own.entries()) {
      measured.push({ ...step, times: Number((taken[i]! / taken[0]!).toPrecision(3)) })
      yield* Output.note(`a step of ${step.tokens} behind ${depth}: ${taken[i]} ms`)
    }
  }
  return { model: model.config.name, device: chosen.name, context: session.context, steps: measured }
})

export type Report = Effect.Success<ReturnType<typeof run>>

export const asText = ({ context, device, model, steps }: Report): string =>
  [
    `${model} on ${device}, context ${context}: steps that read several tokens`,
    "",
    ...table([
      ["behind", "tokens", "launches", "device ms", "ms", "encode ms", "times one"],
      ...steps.map(({ depth, deviceMs, encodeMs, launches, ms, times, tokens }) => [
        ...[depth, tokens, launches].map(String),
        deviceMs === undefined ? "-" : deviceMs.toFixed(3),
        ...[ms, encodeMs].map((time) => time.toFixed(3)),
        times.toFixed(2)
      ])
    ]),
    ""
  ].join("\n")
