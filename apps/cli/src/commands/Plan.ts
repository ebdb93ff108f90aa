/** `tg plan`: what a decode step will launch, read, allocate and take, without a device and without weights. */
import { ModelFile } from "@tg/engine"
import * as Drafter from "@tg/engine/Drafter"
import * as MemoryPlan from "@tg/engine/MemoryPlan"
import type * as PoolPlan from "@tg/engine/PoolPlan"
import * as StepPlan from "@tg/engine/StepPlan"
import * as EqualTimes from "@tg/jit/EqualTimes"
import * as Persistent from "@tg/jit/Persistent"
import { Pipeline } from "@tg/jit/Pipeline"
import { known } from "@tg/models/Models"
import * as Explain from "@tg/rangeify/Explain"
import * as ScheduleCache from "@tg/rangeify/ScheduleCache"
import { Effect, Layer, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import * as Drafts from "../Drafts.ts"
import * as EqualText from "../EqualText.ts"
import * as Flags from "../Flags.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import * as Profiles from "../Profiles.ts"
import { UsageError } from "../Report.ts"
import * as ShortLived from "../ShortLived.ts"
import { table } from "../Table.ts"
import * as TunedFiles from "../TunedFiles.ts"

const flags = {
  model: Flags.requiredModel.pipe(Flag.optional),
  shape: Flag.String("shape").pipe(
    Flag.withMetavar("MODEL:MIX"),
    Flag.withDescription("A known shape instead of a file: glm-4.7-flash:q4_0"),
    Flag.optional
  ),
  ctx: Flag.Int("ctx").pipe(
    Flag.withMetavar("TOKENS"),
    Flag.withDescription("Tokens in the context; without --depth the step is the one that fills it"),
    Flag.withDefault(1024)
  ),
  depth: Flags.depthBefore,
  parallel: Flag.Int("parallel").pipe(
    Flag.withMetavar("N"),
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 256 }))),
    Flag.withDescription(
      "Plan N conversations in the same steps, too: memory, a step, and rounds of drafts of the prediction block"
    ),
    Flag.optional
  ),
  draft: Drafts.flags.draft.pipe(
    Flag.withDescription(
      "Plan for these drafts (default: off; with --parallel those of the prediction block, where there is one)"
    )
  ),
  kv: Flags.kv,
  activations: Flags.activations,
  profile: Profiles.profile,
  limits: Profiles.limits,
  noSubgroups: Profiles.noSubgroups,
  noMatrixUnits: Profiles.noMatrixUnits,
  noTune: TunedFiles.noTune,
  noEgraph: Flags.noEgraph,
  ...Flags.persistence,
  explain: Flag.Boolean("explain").pipe(
    Flag.withDescription(
      "Say of every kernel why it is one: where its value could live, at what cost, and what forbade it"
    ),
    Flag.withDefault(false)
  ),
  json: Flags.json
} as const

/** Plans a step. */
export const command = Command.make(
  "plan",
  flags,
  Effect.fn("cli.plan")(function*(given) {
    yield* ShortLived.withoutLastTier
    const profile = yield* Profiles.resolve(given)
    const model = yield* modelOf(given)
    const drafts = yield* draftsOf(model, Option.getOrUndefined(given.draft))
    const store = yield* TunedFiles.load(given)
    const planned = counting(({ egraph, schedules }) =>
      Effect.gen(function*() {
        const pipeline = yield* Pipeline
        const plan = yield* StepPlan.plan(model, {
          pipeline,
          context: given.ctx,
          behind: Option.getOrUndefined(given.depth),
          cache: given.kv,
          activations: given.activations,
          parallel: Option.getOrUndefined(given.parallel),
          drafts,
          barriers: true
        })
        const counts = { schedules: yield* schedules, egraph: yield* egraph }
        const equal = given.explain
          ? yield* StepPlan.equal(model, {
            pipeline,
            context: plan.context,
            behind: plan.behind,
            cache: given.kv,
            activations: given.activations
          })
          : []
        return { equal, plan, counts }
      })
    )
    const stages = Profiles.pipeline(profile, store).pipe(Layer.provide(Flags.stagesOf(given)))
    const { counts, equal, plan } = yield* Effect.provide(planned, stages).pipe(
      Effect.provideService(Persistent.Persistent, { ...Persistent.off, mode: Flags.persistentOf(given) })
    )
    const { explain, ...steps } = plan
    const numbers = { ...steps, ...counts }
    yield* given.json
      ? Output.printJson(given.explain ? { ...numbers, equal, explain } : numbers)
      : Output.print(
        `${asText(plan, counts)}${given.explain ? EqualText.print(equal) + explained(explain) : ""}`
      )
  })
).pipe(Command.withDescription("Show what a token costs: launches, bytes, memory and time; needs no GPU"))

/** What drafts of a way take; those that save time are the block's where there is one. */
const draftsOf = (
  model: StepPlan.Model,
  draft: Drafter.Name | undefined
): Effect.Effect<StepPlan.PlanOptions["drafts"], UsageError> => {
  if (draft === undefined || draft === "off") return Effect.succeed(draft)
  const wish = Drafter.named(draft)?.prediction
  if (wish !== undefined && MemoryPlan.hasPrediction(model)) return Effect.succeed("block")
  return wish === "needed"
    ? Effect.fail(
      new UsageError({ message: `--draft ${draft}: ${model.name} has no prediction block; take another draft` })
    )
    : Effect.succeed("others")
}

const modelOf = Effect.fnUntraced(
  function*({ model, shape }: {
    readonly model: Option.Option<string>
    readonly shape: Option.Option<string>
  }) {
    if (Option.isSome(model) === Option.isSome(shape)) {
      return yield* new UsageError({ message: "give either --model FILE or --shape MODEL:MIX" })
    }
    if (Option.isSome(shape)) return yield* Effect.fromResult(StepPlan.fromShape(shape.value, known))
    const header = yield* Models.header(Option.getOrThrow(model))
    const file = yield* ModelFile.ofGguf(header, known)
    return { ...file, name: header.name }
  },
  Effect.scoped
)

/** What the compiler did for a plan. */
interface Counts {
  readonly schedules: ScheduleCache.Counts
  readonly egraph: EqualTimes.Took
}

/** Runs work that can ask for these at any time. */
const counting = <A, E, R>(
  work: (counts: { readonly [N in keyof Counts]: Effect.Effect<Counts[N]> }) => Effect.Effect<A, E, R>
) => EqualTimes.counting((egraph) => ScheduleCache.counting((schedules) => work({ egraph, schedules })))

const asText = (plan: StepPlan.StepPlan, { egraph, schedules }: Counts): string => {
  const { barriersPerToken = 0, behind, context, dispatchesPerLayer, predictedMsPerToken } = plan
  const { deviceMemoryBytes, memoryBytes, pool } = plan
  const tooMuch = deviceMemoryBytes !== undefined && memoryBytes > deviceMemoryBytes
  const millis = predictedMsPerToken.toFixed(3)
  return [
    `${plan.model} on ${plan.deviceProfile}, context ${context}${
      behind === context - 1 ? "" : `, behind ${behind}`
    }, cache ${plan.cache}, ${plan.activations} activations`,
    "",
    `${plan.dispatchesPerToken} launches per token; per layer ${
      runs(dispatchesPerLayer)
    }; ${barriersPerToken} barriers`,
    `${size(plan.bytesPerToken)} of weights read per token, ${size(plan.kvBytesPerToken)} of cache${
      behind === context - 1 ? "" : " at most"
    }; ` +
    `${size(plan.movedBytesPerToken)} moved in all`,
    `${size(memoryBytes)} of memory${tooMuch ? `, MORE THAN the ${size(deviceMemoryBytes)} there are` : ""}: ${
      memoryParts(plan)
    }`,
    ...(plan.predictionBytes === 0 ? [] : [
      `${size(plan.predictionBytes)} of weights of the prediction block besides, which only --draft mtp and auto load`
    ]),
    ...(pool === undefined ? [] : poolLines(pool)),
    ...(plan.tensorsOverBinding === 0 ? [] : [`${plan.tensorsOverBinding} tensors take more than one binding`]),
    `${millis} ms per token predicted: ${(1000 / predictedMsPerToken).toFixed(0)} tokens a second`,
    `schedules of function bodies, prompts' included: ${ScheduleCache.print(schedules)}`,
    ...(egraph.bodies === 0 ? [] : [`other forms of them, by the e-graph: ${EqualTimes.print(egraph)}`]),
    "",
    ...kernelTable(plan.kernels),
    ""
  ].join("\n")
}

/** The pool: its memory, a step, and what rounds of guesses take. */
const poolLines = (pool: PoolPlan.PoolPlan): ReadonlyArray<string> => {
  const { conversations, rounds, step } = pool
  const taken = ({ launches, movedBytes, predictedMs }: PoolPlan.Taken, tokens: number): string =>
    `${launches} launches, ${size(movedBytes)} moved, ${predictedMs.toFixed(3)} ms predicted, ` +
    `${(1000 * tokens / predictedMs).toFixed(0)} tokens a second`
  return [
    `${conversations} conversations in the same steps: ${size(MemoryPlan.mostBytes(pool))} of memory: ${
      memoryParts(pool)
    }`,
    `  a step of ${step.tokens}: ${taken(step, step.tokens)}`,
    ...rounds.flatMap((round) => {
      const { guesses, guessMs, readMs, steps, verifyMs } = round
      return [
        `  a round of ${guesses} of the prediction block's guesses for each, all right: ${
          taken(round, conversations * (guesses + 1))
        }`,
        `    ${steps} steps; verifying ${verifyMs.toFixed(3)} ms, reading ${readMs.toFixed(3)}, guessing ${
          guessMs.toFixed(3)
        }`
      ]
    })
  ]
}

const memoryParts = (
  { fewBytes, ioBytes, kvBytes, scratchBytes, stagingBytes, weightBytes }: MemoryPlan.Memory
): string =>
  `weights ${size(weightBytes)}, cache ${size(kvBytes)}, scratch ${size(scratchBytes)}, ` +
  `steps of a few tokens ${size(fewBytes)}, tokens and logits ${size(ioBytes)}; while loading, staging ${
    size(stagingBytes)
  }`

const units = ["B", "kB", "MB", "GB"] as const

/** Three or four digits and a unit. */
const size = (bytes: number): string => {
  const power = bytes < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(bytes) / 3))
  return `${(bytes / 1000 ** power).toFixed(power === 0 ? 0 : 2)} ${units[power]}`
}

/** `18, 46 x 27`: equal neighbours once. */
const runs = (counts: ReadonlyArray<number>): string => {
  const parts: Array<{ readonly count: number; times: number }> = []
  for (const count of counts) {
    const last = parts.at(-1)
    if (last?.count === count) last.times++
    else parts.push({ count, times: 1 })
  }
  return parts.map(({ count, times }) => times === 1 ? `${count}` : `${times} x ${count}`).join(", ")
}

/** The kernels, the most expensive ones first. */
const kernelTable = (kernels: ReadonlyArray<StepPlan.KernelSummary>): ReadonlyArray<string> => {
  const rows = kernels.toSorted((a, b) => b.calls * b.micros - a.calls * a.micros).map((k) => [
    k.name,
    String(k.calls),
    size(k.bytes),
    k.micros.toFixed(2),
    (k.calls * k.micros).toFixed(0),
    `${k.workgroups} x ${k.threads}`
  ])
  return table([["kernel", "calls", "bytes", "us", "us/token", "workgroups x threads"], ...rows])
}

/** Every launch of every body once, and why each of its kernels is there. */
const explained = (bodies: ReadonlyArray<Explain.ExplainedBody>): string =>
  bodies.flatMap((body) => [
    "",
    `${EqualText.printSites(body)}: ${body.launches.length} launches`,
    ...body.launches.flatMap(({ boundaries, name }) => [
      `  ${name}`,
      ...boundaries.flatMap((boundary) => [
        ...boundaries.length === 1 ? [] : [`    ${boundary.kernel}`],
        ...Explain.print(boundary).map((line) => `      ${line}`)
      ])
    ])
  ]).concat("").join("\n")
