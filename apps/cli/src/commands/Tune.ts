/** `tg tune`: better opts for the launches of a step, found by trying them on the device. */
import { toposort, type UOp, varArg } from "@tg/core-uop/UOp"
import type * as ActivationPolicy from "@tg/engine/ActivationPolicy"
import { Engine } from "@tg/engine/Engine"
import type { Session } from "@tg/engine/Session"
import * as StepProgram from "@tg/engine/StepProgram"
import * as Estimate from "@tg/jit/Estimate"
import { printOpts } from "@tg/jit/Stages"
import type * as Opt from "@tg/postrange/Opt"
import { kernels } from "@tg/rangeify/Rangeify"
import { Device } from "@tg/runtime/Device"
import * as InStep from "@tg/tuner/InStep"
import * as Inputs from "@tg/tuner/Inputs"
import * as Store from "@tg/tuner/Store"
import { type Job, type Timed, Tuner } from "@tg/tuner/Tuner"
import { Clock, Effect, Layer, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import * as Devices from "../Devices.ts"
import * as Flags from "../Flags.ts"
import * as KernelNames from "@tg/jit/KernelNames"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import * as Profiles from "../Profiles.ts"
import { UsageError } from "../Report.ts"
import { table } from "../Table.ts"
import * as TunedFiles from "../TunedFiles.ts"
import * as Kernel from "./Kernel.ts"

const Seconds = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

const flags = {
  model: Flags.modelIfSaid,
  shape: Flag.String("shape").pipe(
    Flag.withMetavar("MODEL:MIX"),
    Flag.withDescription("A known shape instead of a file: glm-4.7-flash:q4_0"),
    Flag.optional
  ),
  kernel: Flag.String("kernel").pipe(
    Flag.withMetavar("NAME"),
    Flag.withDescription("Only launches of this kernel, or how its name begins"),
    Flag.optional
  ),
  step: Flag.Literals("step", ["decode", "prompt"]).pipe(
    Flag.withDescription(
      "The program that is tuned: one token (default), or as much of a prompt as is processed at once"
    ),
    Flag.withDefault("decode" as const)
  ),
  tokens: Flags.stepTokens,
  budget: Flag.Finite("budget").pipe(
    Flag.withMetavar("SECONDS"),
    Flag.withSchema(Seconds),
    Flag.withDescription("How long to search in all; 0 only times the launches as they are (default: 60)"),
    Flag.withDefault(60)
  ),
  depth: Flag.Int("depth").pipe(
    Flag.withAlias("d"),
    Flag.withSchema(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))),
    Flag.withMetavar("TOKENS"),
    Flag.withDescription("Tokens that are in the cache already (default: 512, and 0 for a prompt)"),
    Flag.optional
  ),
  out: Flag.String("out").pipe(
    Flag.withMetavar("FILE"),
    Flag.withDescription("Where to keep what is found (default: tuned.json in the user's folder for caches)"),
    Flag.optional
  ),
  inStep: Flag.Boolean("in-step").pipe(
    Flag.withDescription(
      "Time each launch where it stands in a step of the model, behind other kernels, instead of among launches of its like"
    ),
    Flag.withDefault(false)
  ),
  seed: Flag.Int("seed").pipe(Flag.withDescription("Orders the search (default: 0)"), Flag.withDefault(0)),
  kv: Flags.kv,
  activations: Flags.activations,
  context: Flags.context,
  device: Flags.device,
  profile: Profiles.given,
  limits: Profiles.limits,
  noSubgroups: Profiles.noSubgroups,
  noMatrixUnits: Profiles.noMatrixUnits,
  noEgraph: Flags.noEgraph,
  json: Flags.json
} as const

/** Tunes a model's kernels for a device. */
export const command = Command.make(
  "tune",
  flags,
  Effect.fn("cli.tune")(function*(given) {
    if (given.inStep) return yield* runInStep(given)
    const restrictions = Profiles.restrictionsOf(given)
    if (restrictions instanceof UsageError) return yield* restrictions
    const profiles = yield* Profiles.known(given.profile)
    const devices = Devices.layer(given.device, { profiles, restrictions, store: Store.empty })
    yield* run(given).pipe(Effect.provide(devices.pipe(Layer.provide(Flags.stagesOf(given)))))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Search for better opts for the launches of a step on this device"),
  Command.withExamples([{ command: "tg tune --shape glm-4.7-flash:q4_0 --budget 120" }])
)

/** Opts and what a launch with them takes. Those of several members are behind their numbers, `1: `. */
interface Row {
  readonly opts: ReadonlyArray<string>
  readonly us: number
  readonly gbPerSecond: number
}

/** A launch and what it takes as it is. */
interface Measured {
  /** As in `profile`. */
  readonly name: string
  readonly calls: number
  /** Read and written by one call, each byte once. */
  readonly bytes: number
  readonly heuristic: Row
}

/** What came out for one launch. */
interface Found extends Measured {
  readonly tuned: Row
  readonly tried: number
  readonly failed: number
  readonly refused: ReadonlyArray<string>
}

/** Bytes after which caches have forgotten what was read: more than any has. */
const rotateBytes = 2 ** 27
/** Launches with less of a step's time are left as they are. */
const least = 0.01

/** A launch of a step, by its name. */
interface Launch extends KernelNames.Named {
  readonly name: string
}

/** What is tuned, and how. */
interface Given {
  readonly model: Option.Option<string>
  readonly shape: Option.Option<string>
  readonly kernel: Option.Option<string>
  readonly budget: number
  readonly step: "decode" | "prompt"
  readonly tokens: Option.Option<number>
  readonly depth: Option.Option<number>
  readonly out: Option.Option<string>
  readonly seed: number
  readonly kv: "f16" | "f32"
  readonly activations: ActivationPolicy.ActivationPolicy
  readonly context: Option.Option<number>
  readonly json: boolean
}

/** A step that candidates are timed in. */
interface Whole {
  readonly kernels: ReadonlyMap<string, KernelNames.Named>
  readonly vars: Inputs.Vars
  readonly step: InStep.Step
}

/** The same with a model that is loaded, and a step of it that runs. */
const runInStep = Effect.fnUntraced(function*(
  given: Given & Pick<Models.RunFlags, "device" | "limits" | "noEgraph" | "noMatrixUnits" | "noSubgroups" | "profile">
) {
  if (Option.isSome(given.shape)) {
    return yield* new UsageError({
      message: "--in-step runs the model, and --shape has no weights; give --model (`tg synth --shape` writes one)"
    })
  }
  if (given.budget === 0) {
    return yield* new UsageError({
      message: "--budget 0 times each launch alone; `tg profile` times those of a step in their places"
    })
  }
  const tokens = yield* Kernel.tokensOf(given)
  const flags: Models.RunFlags = {
    ...given,
    model: yield* Flags.modelOr(given.model),
    threads: Option.none(),
    noTune: true,
    persistent: "off",
    noPersistent: true,
    bindGroups: "dispatch",
    stepsTogether: 1,
    noCache: false,
    check: false
  }
  const whole = Effect.gen(function*() {
    const { session } = yield* Engine
    const { prepared, vars } = yield* stepOf(session, given, tokens)
    const made: Whole = {
      kernels: KernelNames.nameApart(kernels(yield* prepared.schedule)),
      vars,
      step: yield* InStep.make(prepared, vars)
    }
    yield* run(given, made)
  })
  yield* Models.withModel(flags, Models.forTokens, whole)
})

/** The step behind so many tokens, or behind as many as there is room for. */
const stepOf = Effect.fnUntraced(function*(session: Session, { depth, step }: Given, tokens: number) {
  const start = Math.min(usualDepth({ depth, step }), session.context - 1)
  return step === "decode"
    ? { prepared: yield* session.decodeStep(start), vars: { T: 1, startPos: start } }
    : yield* session.promptStep(start, Math.min(tokens, session.context - start))
})

const run = Effect.fn("cli.tune.run")(function*(given: Given, whole?: Whole) {
  const device = yield* Device
  const chosen = yield* Devices.Chosen
  const all = whole?.kernels ?? (yield* Kernel.kernelsOf(given))
  const asked = Option.getOrElse(given.kernel, () => "")
  const isAsked = ({ ast, name }: Launch): boolean =>
    name.startsWith(asked) || KernelNames.membersOf(name, ast).some((member) => member.name.startsWith(asked))
  const launches = [...all].map(([name, launch]): Launch => ({ name, ...launch })).filter(isAsked)
  if (launches.length === 0) {
    return yield* new UsageError({
      message: `no kernel's name begins with ${asked}; there are\n  ${[...all.keys()].join("\n  ")}`
    })
  }
  const vars = whole?.vars ?? varsOf([...all.values()].map(({ ast }) => ast), given)
  const started = yield* Clock.currentTimeMillis
  const seconds = Effect.map(Clock.currentTimeMillis, (now) => (now - started) / 1000)
  const jobOfLaunch = ({ ast, name }: Launch): Job => jobOf({ name, kernel: ast, vars, seed: given.seed })
  if (given.budget === 0) {
    const kernels = yield* measure(launches, jobOfLaunch)
    const result = { device: chosen.name, adapter: device.profile.adapter, seconds: round(yield* seconds), kernels }
    return yield* given.json ? Output.printJson(result) : Output.print(asTextOfMeasured(result))
  }
  const { kernels, file } = yield* search(launches, { ...given, jobOf: jobOfLaunch, seconds, step: whole?.step })
  const result = {
    device: chosen.name,
    adapter: device.profile.adapter,
    file,
    seconds: round(yield* seconds),
    kernels,
    ...(whole === undefined ? {} : { step: yield* whole.step.micros })
  }
  yield* given.json ? Output.printJson(result) : Output.print(asText(result))
  if (!kernels.some(isBetter)) return
  if (device.profile.gridBarrierHolds === true) {
    yield* Output.note(
      "phases of persistent launches do not take these opts, which are of launches: --no-persistent has them everywhere"
    )
  }
  const { step } = result
  if (step !== undefined && step.now > worthwhile * step.before) {
    yield* Output.note(`the step as a whole is hardly faster: what is kept in ${file} may be noise, and can be removed`)
  }
})

/** A step that gains less than this may gain nothing. */
const worthwhile = 0.995
const isBetter = ({ heuristic, tuned }: Found): boolean => tuned.us < heuristic.us

/** A launch that does not fit the device is none that can be tuned; the others can. */
const orNote = <A, E extends Error, R>(name: string, work: Effect.Effect<A, E, R>) =>
  work.pipe(
    Effect.asSome,
    Effect.catch((error) => Effect.as(Output.note(`${name} is left out: ${error.message}`), Option.none<A>()))
  )

/** What is there of what was asked for. */
const someOf = <A>(found: ReadonlyArray<Option.Option<A>>) => {
  const some = found.flatMap(Option.toArray)
  return some.length === 0
    ? Effect.fail(new UsageError({ message: "no kernel can be tuned here" }))
    : Effect.succeed(some)
}

const rowOf = ({ micros, opts }: Timed, bytes: number): Row => ({
  opts: printOpts({ opts }),
  us: round(micros),
  gbPerSecond: round(bytes / micros / 1000)
})

const measuredOf = ({ calls, name }: Launch, { bytes }: Job["setup"], usual: Timed): Measured => ({
  name,
  calls,
  bytes: Math.round(bytes),
  heuristic: rowOf(usual, bytes)
})

/** The launches as the heuristics have them, those that take most of a step's time first. */
const measure = Effect.fnUntraced(function*(launches: ReadonlyArray<Launch>, jobOf: (launch: Launch) => Job) {
  const tuner = yield* Tuner
  const found = yield* Effect.forEach(launches, (launch) => {
    const job = jobOf(launch)
    return orNote(launch.name, Effect.map(tuner.time(job), (usual) => measuredOf(launch, job.setup, usual)))
  })
  return (yield* someOf(found)).toSorted((a, b) => b.calls * b.heuristic.us - a.calls * a.heuristic.us)
})

/**
 * Searches for better opts, and keeps what it finds: for each member of a launch, because the compiler asks for them one by one. A
 * member of several launches is tuned in the one that takes the most time, and stays so in the others.
 */
const search = Effect.fnUntraced(function*(launches: ReadonlyArray<Launch>, { budget, jobOf, out, seconds, step }: {
  readonly budget: number
  readonly jobOf: (launch: Launch) => Job
  readonly out: Option.Option<string>
  /** Since the command began. */
  readonly seconds: Effect.Effect<number>
  /** Where launches are timed; each alone if it is not said. */
  readonly step: InStep.Step | undefined
}) {
  const tuner = yield* Tuner
  const { adapter } = (yield* Device).profile
  const file = Option.isSome(out) ? out.value : yield* TunedFiles.userFile
  const looks = yield* Effect.forEach(launches, (launch) =>
    Effect.map(
      orNote(launch.name, tuner.look(jobOf(launch))),
      Option.map(({ micros }) => ({ launch, us: launch.calls * micros }))
    ))
  const survey = yield* someOf(looks)
  const total = survey.reduce((sum, { us }) => sum + us, 0)
  const wanted = survey.filter(({ us }) => us >= least * total).toSorted((a, b) => b.us - a.us)
  yield* Output.note(
    `${survey.length} launches, ${(total / 1000).toFixed(3)} ms a step with the heuristics; ` +
      `looked at in ${(yield* seconds).toFixed(1)} s; ${wanted.length} of them have ${100 * least}% of it or more`
  )
  const kernels: Array<Found> = []
  let left = wanted.reduce((sum, { us }) => sum + Math.sqrt(us), 0)
  const settled = new Map<string, ReadonlyArray<Opt.Opt>>()
  const kept = new Set<string>()
  for (const { launch, us } of wanted) {
    const { ast, name } = launch
    // what one launch does not need is for those after it
    const share = Math.max(0, budget - (yield* seconds)) * Math.sqrt(us) / left
    left -= Math.sqrt(us)
    const job: Job = {
      ...jobOf(launch),
      held: (member) => settled.get(Store.keyOf(member)),
      place: step?.placeOf(ast)
    }
    const tuned = yield* orNote(name, tuner.tune(job, share))
    if (Option.isNone(tuned)) continue
    const { best, failed, refused, start, tried, usual } = tuned.value
    const found: Found = {
      ...measuredOf(launch, job.setup, usual),
      tuned: rowOf(best, job.setup.bytes),
      tried,
      failed,
      refused
    }
    kernels.push(found)
    const own = new Map(
      KernelNames.membersOf(name, ast).map((member, i) => [
        Store.keyOf(member.ast),
        { name: member.name, opts: best.opts[i]!, micros: best.micros, usualMicros: usual.micros }
      ])
    )
    for (const [key, { opts }] of own) settled.set(key, opts)
    if (adapter !== undefined && best !== start) {
      // also members that the heuristics' opts are best for: an older file may have others
      const fresh = [...own].filter(([key]) => !kept.has(key))
      yield* TunedFiles.add(file, new Map([[adapter, new Map(fresh)]]))
      for (const [key] of fresh) kept.add(key)
    }
    yield* Output.note(
      `${name}: ${found.heuristic.us} us to ${found.tuned.us} us, ${tried} tried, ${failed} failed: ` +
        `${found.tuned.opts.join(", ")}${refused.length === 0 ? "" : `; refused ${refused.join("; ")}`}`
    )
  }
  return { file, kernels }
})

/** What the tuner is asked about a launch. */
export const jobOf = ({ kernel, name, seed, vars }: {
  readonly name: string
  readonly kernel: UOp
  readonly vars: Inputs.Vars
  readonly seed: number
}): Job => ({ name, kernel, setup: { vars, bytes: bytesOf(kernel, vars), rotateBytes, seed } })

/** Tokens that are in the cache, if it is not said. */
const usualDepth = ({ depth, step }: Pick<Given, "depth" | "step">): number =>
  Option.getOrElse(depth, () => step === "decode" ? 512 : 0)

/** The variables of a step: as many tokens as it takes, behind those that are in the cache. */
export const varsOf = (kernels: ReadonlyArray<UOp>, { depth, step }: {
  readonly depth: Option.Option<number>
  readonly step: "decode" | "prompt"
}): Inputs.Vars => {
  const all = toposort(...kernels).filter((node) => node.op === "VAR").map(varArg)
  const mostOf = (name: string): number => all.find((variable) => variable.name === name)?.max ?? 1
  const length = step === "decode" ? 1 : mostOf("T")
  const start = usualDepth({ depth, step })
  // all of them fit into the context
  return StepProgram.variablesOf("features", Math.max(0, Math.min(start, mostOf("startPos") + 1 - length)), length)
}

const bytesOf = (kernel: UOp, vars: Inputs.Vars): number =>
  [...Estimate.traffic(kernel, Inputs.varsOf(kernel, vars)).values()].reduce((a, b) => a + b, 0)

const round = (x: number): number => Math.round(x * 100) / 100

/** What all launches of a step take, in milliseconds. */
const sumOf = <K extends Measured>(kernels: ReadonlyArray<K>, usOf: (kernel: K) => number): string =>
  (kernels.reduce((sum, kernel) => sum + kernel.calls * usOf(kernel), 0) / 1000).toFixed(3)

const asText = ({ device, file, kernels, seconds, step }: {
  readonly file: string
  readonly step?: { readonly before: number; readonly now: number }
  readonly device: string
  readonly seconds: number
  readonly kernels: ReadonlyArray<Found>
}): string =>
  [
    `${device}, ${seconds} s; each launch ${step === undefined ? "alone" : "in its place"}`,
    "",
    ...table([
      ["launch", "calls", "heuristic us", "tuned us", "bytes", "GB/s", "opts"],
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
    `sum of these launches in a step: ${sumOf(kernels, (k) => k.heuristic.us)} ms, tuned ${
      sumOf(kernels, (k) => k.tuned.us)
    } ms; kept in ${file}`,
    ...(step === undefined
      ? []
      : [`the step as a whole: ${(step.before / 1000).toFixed(3)} ms, tuned ${(step.now / 1000).toFixed(3)} ms`]),
    ""
  ].join("\n")

const asTextOfMeasured = ({ device, kernels, seconds }: {
  readonly device: string
  readonly seconds: number
  readonly kernels: ReadonlyArray<Measured>
}): string =>
  [
    `${device}, ${seconds} s; each launch alone, with the heuristics' opts`,
    "",
    ...table([
      ["launch", "calls", "us", "us/step", "bytes", "GB/s", "opts"],
      ...kernels.map((k) => [
        k.name,
        String(k.calls),
        k.heuristic.us.toFixed(2),
        (k.calls * k.heuristic.us).toFixed(1),
        String(k.bytes),
        k.heuristic.gbPerSecond.toFixed(1),
        k.heuristic.opts.join(", ")
      ])
    ]),
    "",
    `sum of these launches in a step: ${sumOf(kernels, (k) => k.heuristic.us)} ms`,
    ""
  ].join("\n")
