/** `tg bench --parallel`: how fast several conversations are together, and each of them. */
import type { Steps } from "@tg/engine/Speculation"
import { Device } from "@tg/runtime/Device"
import { Duration, Effect } from "effect"
import type * as BatchedPeer from "./BatchedPeer.ts"
import { Chosen } from "./Devices.ts"
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
  /** A prompt of its own for each conversation: equal for equal arguments. */
  readonly tokenIds: (count: number, seed: number, vocabulary: number) => ReadonlyArray<number>
}

/** `1,2,4` as numbers of conversations, rising, each once. */
export const parseCounts = (text: string): ReadonlyArray<number> | UsageError => {
  const parts = text.split(",").map((part) => part.trim())
  const bad = parts.find((part) => !/^\d{1,3}$/.test(part) || Number(part) < 1 || Number(part) > 256)
  return bad === undefined
    ? [...new Set(parts.map(Number))].sort((a, b) => a - b)
    : new UsageError({
      message: `--parallel has ${
        JSON.stringify(bad)
      }; give numbers of conversations from 1 to 256 with commas between: 1,2,4,8`
    })
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
}

const round = (value: number): number => Number(value.toPrecision(5))

const mean = (values: ReadonlyArray<number>): number => values.reduce((a, b) => a + b, 0) / values.length

/** Writes greedily behind a prompt whose first token is known. */
const write = Effect.fnUntraced(function*(steps: Steps, tokens: Array<number>, count: number) {
  for (let i = 0; i < count; i++) tokens.push(yield* steps.next(tokens))
})

/** One round: microseconds until all first tokens are there, and then until all have written. */
const roundOf = Effect.fnUntraced(function*(job: Job, parallel: number, seed: number) {
  const { counts, file, join } = yield* Models.Steps
  const { vocabulary } = file.config
  const members = yield* Effect.forEach(
    Array.from({ length: parallel }, (_, i) => i),
    (i) =>
      Effect.map(join, (steps) => ({
        steps,
        tokens: [...job.tokenIds(job.prompt, seed * 256 + i + 1, vocabulary)]
      }))
  )
  const together = (count: number) =>
    Effect.timed(
      Effect.forEach(members, ({ steps, tokens }) => write(steps, tokens, count), {
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
    tokensPerStep: (after.tokens - before.tokens) / (after.steps - before.steps)
  }
}, Effect.scoped)

/** Measures each number of conversations, after one round to warm up. */
export const run = Effect.fn("cli.bench.parallel")(function*(job: Job) {
  const { context, file, loadTimes } = yield* Models.Steps
  const chosen = yield* Chosen
  const device = yield* Device
  yield* Output.note(`${file.config.name} on ${chosen.name}, context ${context}`)
  const speeds: Array<Speed> = []
  for (const parallel of job.counts) {
    const rounds = yield* Effect.forEach(
      Array.from({ length: job.repeat + 1 }, (_, i) => i),
      (i) => roundOf(job, parallel, i)
    )
    const measured = rounds.slice(1)
    const decode = measured.map((each) => each.decode)
    const speed: Speed = {
      parallel,
      tokensPerSecond: round(mean(decode)),
      min: round(Math.min(...decode)),
      max: round(Math.max(...decode)),
      each: round(mean(decode) / parallel),
      promptTokensPerSecond: round(mean(measured.map((each) => each.prompt))),
      tokensPerStep: round(mean(measured.map((each) => each.tokensPerStep)))
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
    ""
  ].join("\n")
}
