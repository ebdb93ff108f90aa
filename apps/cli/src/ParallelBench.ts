/** `tg bench --parallel`: how fast several conversations are together, and each of them, and what their steps take. */
import type { Counts } from "@tg/engine/Batcher"
import type { Step } from "@tg/engine/Parallel"
import * as Drafter from "@tg/engine/Drafter"
import * as Speculation from "@tg/engine/Speculation"
import * as Profiler from "@tg/jit/Profiler"
import { Device } from "@tg/runtime/Device"
import { Duration, Effect, Random } from "effect"
import type * as BatchedPeer from "./BatchedPeer.ts"
import * as Drafts from "./Drafts.ts"
import { Chosen } from "./Devices.ts"
import * as ForcedDrafts from "./ForcedDrafts.ts"
import { numbersIn, tokenIds } from "./Measurement.ts"
import * as Models from "./Models.ts"
import * as Output from "./Output.ts"
import { UsageError } from "./Report.ts"
import { table } from "./Table.ts"

/** What is measured. */
export interface Job {
  /** Numbers of conversations, rising. */
  readonly counts: ReadonlyArray<number>
  /** Tokens of each prompt, and tokens that follow it. */
  readonly prompt: number
  readonly generate: number
  readonly repeat: number
  /** With drafts of the prediction block: what they would gain if this part of them were right. */
  readonly accept?: number | undefined
}

/** `1,2,4` as numbers of conversations, rising, each once. */
export const parseCounts = (text: string): ReadonlyArray<number> | UsageError => {
  const hint = "numbers of conversations from 1 to 256 with commas between: 1,2,4,8"
  const counts = numbersIn(text, { flag: "--parallel", least: 1, most: 256, hint })
  return counts instanceof UsageError ? counts : [...counts].sort((a, b) => a - b)
}

/** The speed of so many conversations. */
export interface Speed {
  readonly parallel: number
  /** Tokens a second of all together, the mean of all rounds, and of each. */
  readonly tokensPerSecond: number
  readonly min: number
  readonly max: number
  readonly each: number
  /** Of all prompts together, until the first token of each is known. */
  readonly promptTokensPerSecond: number
  /** Tokens that steps took on average while all wrote. */
  readonly tokensPerStep: number
  readonly step: StepTimes
  /** With `--draft`: what became of the drafts of all rounds. */
  readonly drafts?: Speculation.Drafts
  /** With `--accept`: tokens a second of all together with so many drafts a round. */
  readonly forced?: ReadonlyArray<{ readonly drafts: number; readonly tokensPerSecond: number; readonly gain: number }>
}

/** Where the time of a step goes while all write; milliseconds, on average of all steps. */
export interface StepTimes {
  /** Steps of a round. */
  readonly steps: number
  readonly ms: number
  /** Of the device, and of the host to encode it: where steps run one behind the other, on the same tokens. */
  readonly deviceMs: number
  readonly encodeMs: number
  /** Choosing what a step takes. */
  readonly planMs: number
  /** Writing, encoding and submitting it. */
  readonly submitMs: number
  /** Waiting, with nothing else to do, for a step that is under way. */
  readonly waitMs: number
  /** No step is under way. */
  readonly idleMs: number
  /** The part of the steps that were submitted before the one in front of them had come back. */
  readonly ahead: number
  /** Tokens that were drawn and not wanted. */
  readonly dropped: number
}

const round = (value: number): number => Number(value.toPrecision(5))

const mean = (values: ReadonlyArray<number>): number => values.reduce((a, b) => a + b, 0) / values.length

/** Writes greedily behind a prompt whose first token is known, with what drafts. */
const write = Effect.fnUntraced(function*(steps: Stepping, tokens: Array<number>, count: number) {
  for (let i = 0; i < count; i++) tokens.push(yield* steps.next([...tokens]))
})

/** Drafts of a round that are measured with `--accept`. */
const forcedLengths = [1, 3]

/** The same with drafts of the prediction block, of which this part is taken for right. */
const writeForced = Effect.fnUntraced(function*(
  steps: Speculation.Steps,
  tokens: Array<number>,
  { accept, count, drafts: wanted }: { readonly accept: number; readonly count: number; readonly drafts: number }
) {
  const end = tokens.length + count
  while (tokens.length < end) {
    const drafts = yield* steps.predict(tokens, wanted)
    const ids = yield* ForcedDrafts.verifiedOf(steps, tokens, drafts)
    const right = yield* ForcedDrafts.rightOf(drafts.length, accept)
    tokens.push(...drafts.slice(0, right), ids[right] ?? 0)
  }
})

/** Tokens a second of all together with so many drafts a round, if this part of them is right. */
const forcedOf = Effect.fnUntraced(function*(
  job: Job,
  parallel: number,
  { accept, drafts }: { readonly accept: number; readonly drafts: number }
) {
  const { file, join } = yield* Models.Steps
  const written = (i: number, count: number) =>
    Effect.gen(function*() {
      const steps = yield* join
      const tokens = [...tokenIds(job.prompt, i + 1, file.config.vocabulary)]
      tokens.push(yield* steps.next(tokens))
      yield* writeForced(steps, tokens, { accept, count: 8, drafts })
      return yield* Effect.timed(writeForced(steps, tokens, { accept, count, drafts })).pipe(
        Effect.map(([time]) => Duration.toSeconds(time))
      )
    }).pipe(Random.withSeed(`drafts ${i}`))
  const seconds = yield* Effect.forEach(
    Array.from({ length: parallel }, (_, i) => i),
    (i) => written(i, job.generate),
    { concurrency: "unbounded" }
  )
  return round(parallel * job.generate / Math.max(...seconds))
}, Effect.scoped)

/** What writes a text: steps, or steps with drafts. */
type Stepping = Pick<Speculation.Steps, "next">

/** One round: microseconds until all first tokens are there, and then until all have written. */
const roundOf = Effect.fnUntraced(function*(job: Job, parallel: number, seed: number) {
  const { counts, file, join } = yield* Models.Steps
  const { vocabulary } = file.config
  const drafter = yield* Drafter.Drafter
  const speculation = drafter && Speculation.make(drafter)
  const members = yield* Effect.forEach(
    Array.from({ length: parallel }, (_, i) => i),
    (i) =>
      Effect.map(join, (steps) => ({
        drafting: speculation && Speculation.over(steps, speculation, { most: Infinity }),
        steps,
        tokens: [...tokenIds(job.prompt, seed * 256 + i + 1, vocabulary)]
      }))
  )
  const together = (count: number) =>
    Effect.timed(
      Effect.forEach(members, ({ drafting, steps, tokens }) => write(drafting ?? steps, tokens, count), {
        concurrency: "unbounded",
        discard: true
      })
    )
  const [reading] = yield* together(1)
  const before = counts()
  const [writing] = yield* together(job.generate)
  const after = counts()
  return {
    prompt: parallel * job.prompt / Duration.toSeconds(reading),
    decode: parallel * job.generate / Duration.toSeconds(writing),
    millis: Duration.toMillis(writing),
    before,
    after,
    drafts: drafter && Drafts.sum(members.map(({ drafting }) => drafting!.drafts()))
  }
}, Effect.scoped)

type Round = Effect.Success<ReturnType<typeof roundOf>>

/** Steps behind one another that the time of one is taken from. */
const measuredSteps = 32

/** What a step takes the device, and the host to encode it. */
const deviceTimes = Effect.fnUntraced(function*({ prepared, vars }: Step) {
  const { profile } = yield* Device
  const runs = profile.kind === "cpu" ? 2 : measuredSteps
  const { micros } = yield* Profiler.backToBack(prepared, vars, runs)
  const encodeMicros = yield* Profiler.encoding(prepared, vars, runs)
  return { deviceMs: round(micros / 1000), encodeMs: round(encodeMicros / 1000) }
})

/** Where the time of the steps of all rounds went. */
const stepTimes = (rounds: ReadonlyArray<Round>, device: Pick<StepTimes, "deviceMs" | "encodeMs">): StepTimes => {
  const sum = (of: (counts: Counts) => number): number =>
    rounds.reduce((n, { after, before }) => n + of(after) - of(before), 0)
  const steps = sum((counts) => counts.steps)
  const each = (of: (counts: Counts) => number): number => round(sum(of) / steps)
  return {
    steps: round(steps / rounds.length),
    ms: round(rounds.reduce((n, { millis }) => n + millis, 0) / steps),
    ...device,
    planMs: each(({ planMillis }) => planMillis),
    submitMs: each(({ submitMillis }) => submitMillis),
    waitMs: each(({ waitMillis }) => waitMillis),
    idleMs: each(({ idleMillis }) => idleMillis),
    ahead: each(({ ahead }) => ahead),
    dropped: round(sum(({ dropped }) => dropped) / rounds.length)
  }
}

/** Compiles what steps of so many conversations and fewer run, and warms the device up. */
const prepared = Effect.fnUntraced(function*(job: Job, parallel: number) {
  const { step } = yield* Models.Steps
  for (let count = 1; count < parallel; count *= 2) yield* step(count, job.prompt)
  yield* roundOf(job, parallel, 0)
  const own = yield* step(parallel, job.prompt + job.generate / 2)
  yield* Profiler.warm(own.prepared, own.vars)
  return own
})

/** With `--accept`: speeds with forced drafts, and of those without drafts. */
const forcedSpeeds = Effect.fnUntraced(function*(job: Job, parallel: number) {
  const { accept } = job
  if (accept === undefined) return undefined
  const rounds = yield* Effect.forEach(
    Array.from({ length: job.repeat }, (_, i) => i + 1),
    (i) => roundOf(job, parallel, i)
  )
    .pipe(Effect.provideService(Drafter.Drafter, undefined))
  const plain = mean(rounds.map(({ decode }) => decode))
  return yield* Effect.forEach(
    forcedLengths,
    (drafts) =>
      Effect.map(forcedOf(job, parallel, { accept, drafts }), (tokensPerSecond) => ({
        drafts,
        tokensPerSecond,
        gain: round(tokensPerSecond / plain)
      }))
  )
})

/** Measures each number of conversations, after one round to warm up. */
export const run = Effect.fn("cli.bench.parallel")(function*(job: Job) {
  const { context, file, loadTimes } = yield* Models.Steps
  const chosen = yield* Chosen
  const device = yield* Device
  yield* Output.note(`${file.config.name} on ${chosen.name}, context ${context}`)
  const speeds: Array<Speed> = []
  for (const parallel of job.counts) {
    const step = yield* prepared(job, parallel)
    const forced = yield* forcedSpeeds(job, parallel)
    const measured = yield* Effect.forEach(
      Array.from({ length: job.repeat }, (_, i) => i + 1),
      (i) => roundOf(job, parallel, i)
    )
    const times = stepTimes(measured, yield* deviceTimes(step))
    const decode = measured.map((each) => each.decode)
    const speed: Speed = {
      parallel,
      tokensPerSecond: round(mean(decode)),
      min: round(Math.min(...decode)),
      max: round(Math.max(...decode)),
      each: round(mean(decode) / parallel),
      promptTokensPerSecond: round(mean(measured.map((each) => each.prompt))),
      tokensPerStep: round(
        mean(measured.map(({ after, before }) => (after.tokens - before.tokens) / (after.steps - before.steps)))
      ),
      step: times,
      ...forced && { forced },
      ...measured[0]!.drafts && { drafts: Drafts.sum(measured.map(({ drafts }) => drafts!)) }
    }
    speeds.push(speed)
    yield* Output.note(`${parallel}: ${speed.tokensPerSecond} tokens/s together`)
  }
  return {
    model: file.config.name,
    device: chosen.name,
    context,
    prompt: job.prompt,
    generate: job.generate,
    weightsMs: round(loadTimes.weights),
    compileMs: round(loadTimes.compile),
    parallel: speeds,
    gpuBytes: device.allocatedBytes()
  }
})

/** What was measured, and what a peer did on the same file. */
export interface Report extends Effect.Success<ReturnType<typeof run>> {
  readonly peer?: ReadonlyArray<BatchedPeer.Speed>
}

/** What the peer did with as many conversations, and how many times that we are. */
const besidePeer = (own: Speed, peer: ReadonlyArray<BatchedPeer.Speed>): ReadonlyArray<string> => {
  const found = peer.find(({ parallel }) => parallel === own.parallel)
  if (found === undefined) return ["", "", "", ""]
  const { promptTokensPerSecond, tokensPerSecond } = found
  return [
    String(tokensPerSecond),
    (own.tokensPerSecond / tokensPerSecond).toFixed(2),
    String(promptTokensPerSecond),
    (own.promptTokensPerSecond / promptTokensPerSecond).toFixed(2)
  ]
}

/** What is told of steps. */
const columns = [
  "steps",
  "ms",
  "deviceMs",
  "encodeMs",
  "planMs",
  "submitMs",
  "waitMs",
  "idleMs",
  "ahead",
  "dropped"
] as const

/** The report as a table. */
export const asText = ({ device, generate, model, parallel, peer, prompt }: Report): string => {
  const [first] = parallel
  return [
    `${model} on ${device}: ${generate} tokens behind prompts of ${prompt}, greedily`,
    "",
    ...table([
      [
        "conversations",
        "together/s",
        "min/s",
        "max/s",
        "each/s",
        `times ${first!.parallel}`,
        "prompts/s",
        "tokens a step",
        ...peer === undefined ? [] : ["llama.cpp/s", "times it", "its prompts/s", "times them"]
      ],
      ...parallel.map((each) => [
        String(each.parallel),
        ...[each.tokensPerSecond, each.min, each.max, each.each].map(String),
        (each.tokensPerSecond / first!.tokensPerSecond).toFixed(2),
        String(each.promptTokensPerSecond),
        String(each.tokensPerStep),
        ...peer === undefined ? [] : besidePeer(each, peer)
      ])
    ]),
    "",
    "milliseconds of a step while all write (device, encode: steps behind one another, without anyone who reads them):",
    "",
    ...table([
      ["conversations", ...columns],
      ...parallel.map(({ parallel, step }) => [String(parallel), ...columns.map((name) => String(step[name]))])
    ]),
    ...parallel.flatMap(({ forced = [], parallel }) =>
      forced.map(({ drafts, gain, tokensPerSecond }) =>
        `${parallel}, ${drafts} drafts a round, part of them taken for right: ${tokensPerSecond} tokens/s, ${gain} times without`
      )
    ),
    ...parallel.flatMap(({ drafts, parallel }) => drafts ? [`drafts of ${parallel}: ${Drafts.show(drafts)}`] : []),
    ""
  ].join("\n")
}
