/** `tg profile`: where the time of a token goes, kernel by kernel. */
import { Engine } from "@tg/engine/Engine"
import { ContextFull } from "@tg/engine/Session"
import * as KernelTimes from "@tg/jit/KernelTimes"
import * as Profiler from "@tg/jit/Profiler"
import * as ScheduleCache from "@tg/rangeify/ScheduleCache"
import { Device } from "@tg/runtime/Device"
import { Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { Chosen } from "../Devices.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
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
  ...Models.runFlags,
  json: Flags.json
} as const

/** Measures the kernels of a decode step, or of one that reads a prompt. */
export const command = Command.make(
  "profile",
  flags,
  Effect.fn("cli.profile")(function*(given) {
    yield* ScheduleCache.counting((schedules) =>
      Models.withModel(given, Models.forTokens, run({ ...given, schedules }))
    )
  })
).pipe(Command.withDescription("Show which kernels a token's time goes to"))

const run = Effect.fn("cli.profile.run")(
  function*(
    { depth, json, prompt, schedules }: {
      readonly depth: number
      readonly json: boolean
      readonly prompt: Option.Option<number>
      readonly schedules: Effect.Effect<ScheduleCache.Counts>
    }
  ) {
    const { model, session } = yield* Engine
    const chosen = yield* Chosen
    const device = yield* Device
    const { context } = session
    const asked = Option.getOrElse(prompt, () => 1)
    if (depth + asked > context) {
      return yield* new ContextFull({ asked: depth + asked, limit: context, modelLimit: model.config.contextLength })
    }
    // real values in the cache, and real tokens to go on from
    const before = Option.isSome(prompt) ? depth : Math.max(1, depth)
    const tokens = Array.from({ length: before + asked }, (_, i) => i % session.vocabulary)
    if (before > 0) yield* session.advance(tokens.slice(0, before))
    if (Option.isSome(prompt)) yield* session.advance(tokens)
    const { length, prepared, vars } = Option.isSome(prompt)
      ? yield* session.promptStep(depth, asked)
      : { prepared: yield* session.decodeStep, vars: { T: 1, startPos: depth }, length: 1 }
    const measured = yield* Profiler.profile(prepared, vars)
    const kernels = KernelTimes.rowsOf(measured, yield* prepared.schedule, { vars, profile: device.profile })
    const sum = kernels.reduce((total, kernel) => total + kernel.usPerToken, 0)
    const report = {
      model: model.config.name,
      device: chosen.name,
      context,
      depth,
      tokens: length,
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
  }
)

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
