/** `tg tune`: better opts for the kernels of a token, found by trying them on the device. */
import type { UOp } from "@tg/core-uop/UOp"
import type * as Session from "@tg/engine/Session"
import * as Estimate from "@tg/jit/Estimate"
import * as Opt from "@tg/postrange/Opt"
import { limitsOf } from "@tg/rangeify/Rangeify"
import { Device } from "@tg/runtime/Device"
import * as Inputs from "@tg/tuner/Inputs"
import * as Store from "@tg/tuner/Store"
import { type Timed, Tuner } from "@tg/tuner/Tuner"
import { Clock, Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import * as Devices from "../Devices.ts"
import * as Flags from "../Flags.ts"
import * as Output from "../Output.ts"
import * as Profiles from "../Profiles.ts"
import { UsageError } from "../Report.ts"
import { table } from "../Table.ts"
import * as TunedFiles from "../TunedFiles.ts"
import * as Kernel from "./Kernel.ts"

const Positive = Schema.Finite.check(Schema.isGreaterThan(0))

const flags = {
  model: Flags.model,
  shape: Flag.String("shape").pipe(
    Flag.withMetavar("MODEL:MIX"),
    Flag.withDescription("A known shape instead of a file: glm-4.7-flash:q4_0"),
    Flag.optional
  ),
  kernel: Flag.String("kernel").pipe(
    Flag.withMetavar("NAME"),
    Flag.withDescription("Only this kernel, or how its name begins"),
    Flag.optional
  ),
  budget: Flag.Finite("budget").pipe(
    Flag.withMetavar("SECONDS"),
    Flag.withSchema(Positive),
    Flag.withDescription("How long to search in all (default: 60)"),
    Flag.withDefault(60)
  ),
  depth: Flag.Int("depth").pipe(
    Flag.withAlias("d"),
    Flag.withSchema(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))),
    Flag.withMetavar("TOKENS"),
    Flag.withDescription("Tokens that are in the cache already (default: 512)"),
    Flag.withDefault(512)
  ),
  out: Flag.String("out").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription("Where to keep what is found (default: tuned.json in the user's folder for caches)"),
    Flag.optional
  ),
  seed: Flag.Int("seed").pipe(Flag.withDescription("Orders the search (default: 0)"), Flag.withDefault(0)),
  kv: Flags.kv,
  activations: Flags.activations,
  context: Flags.context,
  device: Flags.device,
  limits: Profiles.limits,
  noSubgroups: Profiles.noSubgroups,
  json: Flags.json
} as const

/** Tunes a model's kernels for a device. */
export const command = Command.make(
  "tune",
  flags,
  Effect.fn("cli.tune")(function*(given) {
    const restrictions = Profiles.restrictionsOf(given)
    if (restrictions instanceof UsageError) return yield* restrictions
    yield* run(given).pipe(Effect.provide(Devices.layer(given.device, { restrictions })))
  })
).pipe(
  Command.withDescription("Search for better opts for a token's kernels on this device"),
  Command.withExamples([{ command: "tg tune --shape glm-4.7-flash:q4_0 --budget 120" }])
)

/** Opts and what a launch with them takes. */
interface Row {
  readonly opts: ReadonlyArray<string>
  readonly us: number
  readonly gbPerSecond: number
}

/** What came out for one kernel. */
interface Report {
  readonly name: string
  readonly calls: number
  /** Read and written by one call, each byte once. */
  readonly bytes: number
  readonly heuristic: Row
  readonly tuned: Row
  readonly tried: number
  readonly failed: number
  readonly refused: ReadonlyArray<string>
}

/** Bytes after which caches have forgotten what was read: more than any has. */
const rotateBytes = 2 ** 27
/** Kernels with less of a token's time are left as they are. */
const least = 0.003

const run = Effect.fn("cli.tune.run")(function*(given: {
  readonly model: string
  readonly shape: Option.Option<string>
  readonly kernel: Option.Option<string>
  readonly budget: number
  readonly depth: number
  readonly out: Option.Option<string>
  readonly seed: number
  readonly kv: "f16" | "f32"
  readonly activations: Session.ActivationPolicy
  readonly context: Option.Option<number>
  readonly json: boolean
}) {
  const device = yield* Device
  const chosen = yield* Devices.Chosen
  const tuner = yield* Tuner
  const { adapter } = device.profile
  const out = Option.isSome(given.out) ? given.out.value : yield* TunedFiles.userFile
  // a joined kernel's members are compiled as if they were alone, and tuned alone
  const limits = { ...limitsOf(device.profile), joinsKernels: false }
  const all = yield* Kernel.kernelsOf({ ...given, step: "decode" }, device.profile, limits)
  const named = Option.isNone(given.kernel)
    ? [...all]
    : [...all].filter(([name]) => name.startsWith(Option.getOrThrow(given.kernel)))
  if (named.length === 0) {
    return yield* new UsageError({
      message: `no kernel's name begins with ${Option.getOrElse(given.kernel, () => "")}; there are\n  ${
        [...all.keys()].join("\n  ")
      }`
    })
  }
  const vars = { T: 1, startPos: given.depth }
  const started = yield* Clock.currentTimeMillis
  const seconds = Effect.map(Clock.currentTimeMillis, (now) => (now - started) / 1000)
  const jobOf = (name: string, ast: UOp, budget: number) => {
    const bytes = bytesOf(ast, vars)
    return { name, kernel: ast, setup: { vars, bytes, rotateBytes, seed: given.seed }, seconds: budget }
  }
  // a kernel that does not fit the device is none that can be tuned; the others can
  const orNote = <A, E extends Error, R>(name: string, work: Effect.Effect<A, E, R>) =>
    work.pipe(
      Effect.asSome,
      Effect.catch((error) => Effect.as(Output.note(`${name} is left out: ${error.message}`), Option.none<A>()))
    )
  const survey = (yield* Effect.forEach(named, ([name, { ast, calls }]) =>
    Effect.map(
      orNote(name, tuner.look(jobOf(name, ast, 0))),
      Option.map(({ micros }) => ({ name, ast, calls, us: calls * micros }))
    ))).flatMap(Option.toArray)
  if (survey.length === 0) return yield* new UsageError({ message: "no kernel can be tuned here" })
  const total = survey.reduce((sum, { us }) => sum + us, 0)
  yield* Output.note(
    `${chosen.name}: ${survey.length} kernels, ${(total / 1000).toFixed(3)} ms a token with the heuristics; ` +
      `looked at in ${(yield* seconds).toFixed(1)} s`
  )
  const wanted = survey.filter(({ us }) => us >= least * total).toSorted((a, b) => b.us - a.us)
  const reports: Array<Report> = []
  let left = wanted.reduce((sum, { us }) => sum + Math.sqrt(us), 0)
  for (const { ast, calls, name, us } of wanted) {
    // what one kernel does not need is for those after it
    const budget = Math.max(0, given.budget - (yield* seconds)) * Math.sqrt(us) / left
    left -= Math.sqrt(us)
    const job = jobOf(name, ast, budget)
    const { bytes } = job.setup
    const tuned = yield* orNote(name, tuner.tune(job))
    if (Option.isNone(tuned)) continue
    const { best, failed, refused, tried, usual } = tuned.value
    const rowOf = ({ micros, opts }: Timed): Row => ({
      opts: opts.map(Opt.print),
      us: round(micros),
      gbPerSecond: round(bytes / micros / 1000)
    })
    const report = {
      name,
      calls,
      bytes: Math.round(bytes),
      heuristic: rowOf(usual),
      tuned: rowOf(best),
      tried,
      failed,
      refused
    }
    reports.push(report)
    if (adapter !== undefined && best !== usual) {
      const entry = { name, opts: best.opts, micros: best.micros, usualMicros: usual.micros }
      yield* TunedFiles.add(out, Store.of(adapter, ast, entry))
    }
    yield* Output.note(
      `${name}: ${report.heuristic.us} us to ${report.tuned.us} us, ${tried} tried, ${failed} failed: ` +
        `${report.tuned.opts.join(", ")}${refused.length === 0 ? "" : `; refused ${refused.join("; ")}`}`
    )
  }
  const result = { device: chosen.name, adapter, file: out, seconds: round(yield* seconds), kernels: reports }
  yield* given.json ? Output.printJson(result) : Output.print(asText(result))
})

const bytesOf = (kernel: UOp, vars: Inputs.Vars): number =>
  [...Estimate.traffic(kernel, Inputs.varsOf(kernel, vars)).values()].reduce((a, b) => a + b, 0)

const round = (x: number): number => Math.round(x * 100) / 100

const asText = ({ device, file, kernels, seconds }: {
  readonly file: string
  readonly device: string
  readonly seconds: number
  readonly kernels: ReadonlyArray<Report>
}): string => {
  const sum = (row: "heuristic" | "tuned"): string =>
    (kernels.reduce((n, k) => n + k.calls * k[row].us, 0) / 1000).toFixed(3)
  return [
    `${device}, ${seconds} s`,
    "",
    ...table([
      ["kernel", "calls", "heuristic us", "tuned us", "bytes", "GB/s", "opts"],
      ...kernels.map((k) => [
        k.name,
        String(k.calls),
        k.heuristic.us.toFixed(2),
        k.tuned.us.toFixed(2),
        String(k.bytes),
        k.tuned.gbPerSecond.toFixed(1),
        k.tuned.opts.join(", ")
      ])
    ]),
    "",
    `sum of these kernels in a token: ${sum("heuristic")} ms, tuned ${sum("tuned")} ms; kept in ${file}`,
    ""
  ].join("\n")
}
