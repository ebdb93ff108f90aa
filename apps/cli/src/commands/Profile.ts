/** `tg profile`: where the time of a token goes, kernel by kernel. */
import { Engine } from "@tg/engine/Engine"
import { ContextFull } from "@tg/engine/Session"
import type { Prepared } from "@tg/jit/Jit"
import * as KernelTimes from "@tg/jit/KernelTimes"
import * as Profiler from "@tg/jit/Profiler"
import * as ScheduleCache from "@tg/rangeify/ScheduleCache"
import type { ModelConfig } from "@tg/model-parts/Family"
import { Device, type Vars } from "@tg/runtime/Device"
import { Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { Chosen } from "../Devices.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import { UsageError } from "../Report.ts"
import { table } from "../Table.ts"

const flags = {
  model: Flags.model,
  depth: Flag.Int("depth").pipe(
    Flag.withAlias("d"),
    Flag.withSchema(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))),
    Flag.withMetavar("TOKENS"),
    Flag.withDescription("Tokens that are in the cache already (default: 0)"),
    Flag.withDefault(0)
  ),
  prompt: Flag.Int("prompt").pipe(
    Flag.withAlias("p"),
    Flag.withSchema(Schema.Int.check(Schema.isGreaterThan(0))),
    Flag.withMetavar("TOKENS"),
    Flag.withDescription("A step that reads so many tokens of a prompt, instead of one that writes a token"),
    Flag.optional
  ),
  parallel: Flag.Int("parallel").pipe(
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 256 }))),
    Flag.withMetavar("N"),
    Flag.withDescription("A step of N conversations that write a token each, instead of one of a conversation alone"),
    Flag.optional
  ),
  ...Models.runFlags,
  json: Flags.json
} as const

/** Measures the kernels of a decode step, or of one that reads a prompt. */
export const command = Command.make(
  "profile",
  flags,
  Effect.fn("cli.profile")(function*(given) {
    const { parallel, prompt } = given
    if (Option.isSome(parallel) && Option.isSome(prompt)) {
      return yield* new UsageError({
        message: "--parallel profiles steps that write, and --prompt one that reads a prompt: give one of them"
      })
    }
    yield* ScheduleCache.counting((schedules) =>
      Option.isSome(parallel)
        ? Models.withSteps(
          given,
          { ...Models.forTokens, parallel: parallel.value },
          runTogether({ ...given, schedules, parallel: parallel.value })
        )
        : Models.withModel(given, Models.forTokens, run({ ...given, schedules }))
    )
  })
).pipe(Command.withDescription("Show which kernels a token's time goes to"))

/** What is profiled, and how it is told. */
interface Job {
  readonly depth: number
  readonly json: boolean
  readonly schedules: Effect.Effect<ScheduleCache.Counts>
}

/** A step on a loaded model. */
interface Step {
  readonly model: ModelConfig
  readonly context: number
  readonly prepared: Prepared
  readonly vars: Vars
  /** Tokens that it takes. */
  readonly tokens: number
}

/** Refuses tokens that the context has no room for. */
const checkRoom = (context: number, { contextLength }: ModelConfig, asked: number): ContextFull | undefined =>
  asked > context ? new ContextFull({ asked, limit: context, modelLimit: contextLength }) : undefined

const run = Effect.fn("cli.profile.run")(function*(job: Job & { readonly prompt: Option.Option<number> }) {
  const { depth, prompt } = job
  const { model: { config }, session } = yield* Engine
  const { context } = session
  const asked = Option.getOrElse(prompt, () => 1)
  const refusal = checkRoom(context, config, depth + asked)
  if (refusal !== undefined) return yield* refusal
  // real values in the cache, and real tokens to go on from
  const before = Option.isSome(prompt) ? depth : Math.max(1, depth)
  const tokens = Array.from({ length: before + asked }, (_, i) => i % session.vocabulary)
  if (before > 0) yield* session.advance(tokens.slice(0, before))
  if (Option.isSome(prompt)) yield* session.advance(tokens)
  const { length, prepared, vars } = Option.isSome(prompt)
    ? yield* session.promptStep(depth, asked)
    : { prepared: yield* session.decodeStep(depth), vars: { T: 1, startPos: depth }, length: 1 }
  yield* tell(job, { model: config, context, prepared, vars, tokens: length })
})

/** Tokens that each conversation writes before a step is measured: the last steps are then of all of them. */
const written = 4

/** The same of a step of several conversations, each behind a text of its own. */
const runTogether = Effect.fn("cli.profile.together")(function*(job: Job & { readonly parallel: number }) {
  const { depth, parallel } = job
  const { context, file: { config }, join, step } = yield* Models.Steps
  const refusal = checkRoom(context, config, depth + written)
  if (refusal !== undefined) return yield* refusal
  const write = Effect.fnUntraced(function*(conversation: number) {
    const steps = yield* join
    const tokens = Array.from({ length: Math.max(1, depth) }, (_, i) => (conversation + i) % steps.vocabulary)
    for (let i = 0; i < written; i++) tokens.push(yield* steps.next(tokens))
  })
  yield* Effect.forEach(Array.from({ length: parallel }, (_, i) => i), write, { concurrency: "unbounded" })
  yield* tell(job, { model: config, context, ...(yield* step(parallel, depth)) })
}, Effect.scoped)

/** Measures a step, kernel by kernel, and tells it. */
const tell = Effect.fnUntraced(function*(
  { depth, json, schedules }: Job,
  { context, model, prepared, tokens, vars }: Step
) {
  const chosen = yield* Chosen
  const device = yield* Device
  const measured = yield* Profiler.profile(prepared, vars)
  const kernels = KernelTimes.rowsOf(measured, yield* prepared.schedule, { vars, profile: device.profile })
  const sum = kernels.reduce((total, kernel) => total + kernel.usPerToken, 0)
  const report = {
    model: model.name,
    device: chosen.name,
    context,
    depth,
    tokens,
    method: measured.method,
    dispatchesPerToken: prepared.dispatches.length,
    kernels,
    sumMsPerToken: sum / 1000,
    stepMsPerToken: measured.stepMicros / 1000,
    restMsPerToken: (measured.stepMicros - sum) / 1000,
    schedules: yield* schedules,
    // on the device's clock
    ...(measured.deviceMicros === undefined ? {} : { deviceMsPerToken: measured.deviceMicros / 1000 })
  }
  yield* json ? Output.printJson(report) : Output.print(asText(report))
})

const methods: Readonly<Record<Profiler.Method, string>> = {
  each:
    "each launch timed by itself, in the order of the step; the median of several steps, and the mean over the calls",
  clock:
    "what it adds to a step on the device's clock: a step with more launches of the kernel in their places, less the step as " +
    "it is, divided by the extra ones; the copies read other layers' weights, so they find as little in the caches",
  extra:
    "a step with more launches of the kernel in their places, less the step as it is, divided by the extra ones; " +
    "the copies read other layers' weights, so they find as little in the caches; where submitting takes longer than the " +
    "device, that is in it"
}

const percent = (part: number): string => `${(100 * part).toFixed(1)}%`

/** More than the bandwidth of memory is that of a cache, of which the profile says nothing. */
export const roofOf = (roof: number): string => roof > 1 ? "cached" : percent(roof)

/** What the kernels leave of a step; measured one by one, with others of their kind, they can take more than all of it. */
export const restOf = ({ restMsPerToken, stepMsPerToken, sumMsPerToken }: {
  readonly restMsPerToken: number
  readonly stepMsPerToken: number
  readonly sumMsPerToken: number
}): string =>
  restMsPerToken >= 0
    ? `rest ${restMsPerToken.toFixed(3)} ms (${percent(restMsPerToken / stepMsPerToken)})`
    : `no rest: alone the kernels take ${(sumMsPerToken / stepMsPerToken).toFixed(2)} times as long as in a step`

const asText = (report: {
  readonly model: string
  readonly device: string
  readonly depth: number
  readonly tokens: number
  readonly method: Profiler.Method
  readonly dispatchesPerToken: number
  readonly kernels: ReadonlyArray<KernelTimes.KernelRow>
  readonly sumMsPerToken: number
  readonly stepMsPerToken: number
  readonly restMsPerToken: number
  readonly schedules: ScheduleCache.Counts
  readonly deviceMsPerToken?: number
}): string => {
  const { deviceMsPerToken, stepMsPerToken, sumMsPerToken } = report
  return [
    `${report.model} on ${report.device}: the step ${
      report.tokens === 1 ? "" : `of ${report.tokens} tokens `
    }behind ${report.depth} tokens, ${report.dispatchesPerToken} launches`,
    `us of a call: ${methods[report.method]}`,
    "bytes: what a call reads and writes, each byte once; roof: of the bandwidth in the device's profile, where memory can be it",
    "",
    ...table([
      [
        "kernel",
        "calls",
        "us",
        report.tokens === 1 ? "us/token" : "us/step",
        "share",
        "bytes",
        "GB/s",
        "roof",
        "where"
      ],
      ...report.kernels.map((k) => [
        k.name,
        String(k.calls),
        k.us.toFixed(2),
        k.usPerToken.toFixed(1),
        percent(k.share),
        String(k.bytes),
        k.gbPerSecond.toFixed(2),
        roofOf(k.roof),
        k.sites
      ])
    ]),
    "",
    `sum of kernels ${sumMsPerToken.toFixed(3)} ms; steps behind one another ${stepMsPerToken.toFixed(3)} ms each; ${
      restOf(report)
    }`,
    ...(deviceMsPerToken === undefined
      ? []
      : [`a step on the device's clock: ${deviceMsPerToken.toFixed(3)} ms`]),
    `schedules of function bodies (a program from the cache of compiled ones needs none until it is profiled): ${
      ScheduleCache.print(report.schedules)
    }`,
    ""
  ].join("\n")
}
