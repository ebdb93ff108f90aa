/** `tg kernel`: one kernel of a model through every stage of the compiler. */
import * as DType from "@tg/core-uop/DType"
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import * as Print from "@tg/core-uop/Print"
import type { Program } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import * as ActivationPolicy from "@tg/engine/ActivationPolicy"
import * as Prompts from "@tg/engine/Prompts"
import * as Spans from "@tg/engine/Spans"
import * as StepProgram from "@tg/engine/StepProgram"
import * as Session from "@tg/engine/Session"
import * as StepPlan from "@tg/engine/StepPlan"
import { Pipeline } from "@tg/jit/Pipeline"
import * as Stages from "@tg/jit/Stages"
import { members } from "@tg/rangeify/Horizontal"
import { kernels } from "@tg/rangeify/Rangeify"
import type { Store } from "@tg/tuner/Store"
import * as Tuned from "@tg/tuner/Tuned"
import { known } from "@tg/models/Models"
import { Effect, Layer, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import * as Flags from "../Flags.ts"
import * as KernelNames from "@tg/jit/KernelNames"
import * as KernelPasses from "../KernelPasses.ts"
import * as Models from "../Models.ts"
import * as Output from "../Output.ts"
import * as Profiles from "../Profiles.ts"
import { UsageError } from "../Report.ts"
import { table } from "../Table.ts"
import * as Targets from "../Targets.ts"
import * as TunedFiles from "../TunedFiles.ts"

const flags = {
  name: Argument.String("name").pipe(
    Argument.withDescription("The kernel, or how its name begins; without it, the names are listed"),
    Argument.optional
  ),
  model: Flags.modelIfSaid,
  shape: Flag.String("shape").pipe(
    Flag.withMetavar("MODEL:MIX"),
    Flag.withDescription("A known shape instead of a file: glm-4.7-flash:q4_0"),
    Flag.optional
  ),
  step: Flag.Literals("step", ["decode", "prompt", "logits"]).pipe(
    Flag.withDescription("The program it is part of: one token (default), a prompt, or all logits of a prompt"),
    Flag.withDefault("decode" as const)
  ),
  tokens: Flags.stepTokens,
  depth: Flags.depthBefore,
  target: Flag.String("target").pipe(
    Flag.withMetavar("NAME|MODULE"),
    Flag.withDescription(Targets.description),
    Flag.optional
  ),
  kv: Flags.kv,
  activations: Flags.activations,
  context: Flags.context,
  profile: Profiles.profileIfSaid,
  limits: Profiles.limits,
  noSubgroups: Profiles.noSubgroups,
  noMatrixUnits: Profiles.noMatrixUnits,
  noTune: TunedFiles.noTune,
  noEgraph: Flags.noEgraph,
  passes: Flag.Boolean("passes").pipe(
    Flag.withDescription(
      "List the passes that changed the kernel and the rules that fired, in place of the stages; --json has what each left"
    ),
    Flag.withDefault(false)
  ),
  json: Flags.json
} as const

/** Shows a kernel. Needs neither its device nor weights. */
export const command = Command.make(
  "kernel",
  flags,
  Effect.fn("cli.kernel")(function*(given) {
    const asked = Option.isSome(given.target) ? yield* Targets.find(given.target.value) : undefined
    const profile = yield* Profiles.resolve(given, asked?.profile)
    const target = asked ?? Targets.usual(profile)
    if (target.kind !== undefined && target.kind !== profile.kind) {
      const { name } = Targets.usual(profile)
      return yield* new UsageError({
        message: `${profile.name} is a ${profile.kind} and runs ${name}; ` +
          `for --target ${target.name} give --profile ${target.profile.name}, or none`
      })
    }
    const store = yield* TunedFiles.load(given)
    const pipeline = Profiles.pipeline(profile, store, target).pipe(Layer.provide(Flags.stagesOf(given)))
    yield* show(given, { profile, target, store }).pipe(Effect.provide(pipeline))
  })
).pipe(
  Command.withDescription("Show one kernel through every stage of the compiler; needs no GPU"),
  Command.withExamples([{ command: "tg kernel ffn_up_exps --profile wasm" }])
)

/** Where a kernel is compiled for, and the opts that are known. */
interface Place {
  readonly profile: DeviceProfile
  readonly target: Targets.Target
  readonly store: Store
}

/** Lists the kernels, or shows the one that is asked for. */
const show = Effect.fnUntraced(
  function*(
    given: Asked & { readonly name: Option.Option<string>; readonly json: boolean; readonly passes: boolean },
    place: Place
  ) {
    const { ran: scheduling, result: named } = yield* given.passes
      ? KernelPasses.heard(kernelsOf(given))
      : Effect.map(kernelsOf(given), (result) => ({ ran: [], result }))
    if (Option.isNone(given.name)) {
      const names = [...named].map(([name, { calls }]) => ({ name, calls }))
      yield* given.json
        ? Output.printJson({ kernels: names })
        : Output.print(names.map(({ calls, name }) => `${name}${calls === 1 ? "" : `  x ${calls}`}\n`).join(""))
      return
    }
    const name = choose(given.name.value, [...named.keys()])
    if (name instanceof UsageError) return yield* name
    const kernel = named.get(name)!
    const { ast, calls } = kernel
    if (given.passes) {
      const { ran, result: { code } } = yield* KernelPasses.heard(render(name, ast, place))
      const passes = KernelPasses.changes([...KernelPasses.ofKernel(scheduling, kernel), ...ran])
      return yield* given.json
        ? Output.printJson({
          name,
          calls,
          passes: passes.map((pass) => ({ ...pass, after: graphOf(pass.after) })),
          code
        })
        : Output.print(passesAsText(`${name} on ${place.profile.name}`, passes))
    }
    const shown = yield* render(name, ast, place)
    yield* given.json
      ? Output.printJson({ calls, ...shown })
      : Output.print(asText({ calls, ...shown }, place.target.title))
  }
)

/** A step of a model. */
interface Asked {
  readonly model: Option.Option<string>
  readonly shape: Option.Option<string>
  readonly step: "decode" | "prompt" | "logits"
  /** Of a prompt's step; as many as one takes, if it is not said. */
  readonly tokens?: Option.Option<number>
  readonly kv: "f16" | "f32"
  readonly activations: ActivationPolicy.ActivationPolicy
  readonly context: Option.Option<number>
  /** Tokens before the step's; as many as there is room for, if it is not said. */
  readonly depth?: Option.Option<number>
}

/** Tokens of a prompt that the step takes; as many as one takes, if it is not said. */
export const tokensOf = ({ step, tokens = Option.none() }: Pick<Asked, "step" | "tokens">) =>
  Option.isSome(tokens) && step !== "prompt"
    ? Effect.fail(
      new UsageError({ message: `--tokens ${tokens.value} is of a prompt's step; give --step prompt with it` })
    )
    : Effect.succeed(Option.getOrElse(tokens, () => Infinity))

/** The kernels of a step of a model, by name. */
export const kernelsOf = Effect.fnUntraced(
  function*(given: Asked) {
    const pipeline = yield* Pipeline
    const { profile } = pipeline
    if (Option.isSome(given.shape) && Option.isSome(given.model)) {
      return yield* new UsageError({ message: "--model and --shape are both given; keep one of them" })
    }
    const model = Option.isSome(given.shape)
      ? yield* Effect.fromResult(StepPlan.fromShape(given.shape.value, known))
      : (yield* Models.open(yield* Flags.modelOr(given.model))).file
    const context = Session.contextOf(model.config, Option.getOrUndefined(given.context))
    if (typeof context !== "number") return yield* context
    const size = {
      context,
      cache: given.kv,
      profile,
      activations: ActivationPolicy.activationsOn(profile, given.activations)
    }
    const depth = Option.getOrElse(given.depth ?? Option.none(), () => context - 1)
    if (depth >= context) {
      const { contextLength: modelLimit } = model.config
      return yield* new Session.ContextFull({ asked: depth + 1, limit: context, modelLimit })
    }
    const prompts = Prompts.promptShape(model, { asked: undefined, context, profile })
    const tokens = yield* tokensOf(given)
    const isBatch = given.step === "logits"
      ? prompts.batchFrom <= prompts.chunk
      : prompts.batchFrom <= tokens && prompts.batchFrom !== Infinity &&
        !(given.step === "decode" && profile.kind === "cpu")
    const order = isBatch ? "features" : "tokens"
    const isWhole = !isBatch && prompts.sizes.length > 0
    const few = tokens === Infinity ? prompts.few : Prompts.sizeFor(prompts, tokens) ?? prompts.few
    const chunk = given.step === "prompt" && isBatch ? prompts.batch : isWhole ? few : prompts.chunk
    // a device that computes while it is called decodes with the program of a prompt
    const program = given.step === "decode" && profile.kind === "gpu"
      ? StepProgram.decodeProgram(model, { ...size, span: Spans.at(depth, size) })
      : StepProgram.stepProgram(model, {
        ...size,
        chunk,
        isWhole,
        order,
        span: isBatch ? undefined : Spans.at(depth, { ...size, chunk }),
        rows: given.step === "logits" ? "all" : "last"
      })
    return KernelNames.nameApart(kernels(yield* pipeline.schedule(program.sink)))
  },
  Effect.scoped
)

/** The name itself, or the only one that begins so. */
export const choose = (asked: string, names: ReadonlyArray<string>): string | UsageError => {
  if (names.includes(asked)) return asked
  const fitting = names.filter((name) => name.startsWith(asked))
  if (fitting.length === 1) return fitting[0]!
  return new UsageError({
    message: fitting.length === 0
      ? `no kernel is called ${asked}; there are\n  ${names.join("\n  ")}`
      : `${fitting.length} kernels begin with ${asked}; give more of the name\n  ${fitting.join("\n  ")}`
  })
}

/** What is shown of a kernel. The stages are in the notation of `Print.graph`, the linear one in order. */
interface Shown {
  readonly name: string
  readonly target: string
  readonly profile: string
  readonly kernel: string
  readonly opts: ReadonlyArray<string>
  /** Of each member. */
  readonly origins: ReadonlyArray<Tuned.Choice["origin"]>
  readonly opted: string
  readonly expanded: string
  readonly linear: string
  readonly code: string
}

const render = Effect.fnUntraced(function*(name: string, kernel: UOp, { profile, store, target }: Place) {
  const pipeline = yield* Pipeline
  const stages = yield* Stages.ofKernel(pipeline, name, kernel)
  const { code } = yield* pipeline.render(name, stages.linear)
  const shown: Shown = {
    name,
    target: target.name,
    profile: profile.name,
    kernel: Print.graph(kernel),
    opts: Stages.printOpts(stages),
    origins: members(kernel).map(({ ast }) => Tuned.find(ast, profile, store, pipeline.legal).origin),
    opted: Print.graph(stages.opted),
    expanded: Print.graph(stages.expanded),
    linear: listing(stages.linear),
    code: codeText(code)
  }
  return shown
})

const codeText = (code: Program["code"]): string => {
  if (typeof code === "string") return code
  if (code instanceof Uint8Array) return `${code.length} bytes`
  return typeof code === "function" ? code.toString() : Print.graph(code)
}

const graphOf = (kernel: UOp): string => kernel.op === "LINEAR" ? listing(kernel) : Print.graph(kernel)

const passesAsText = (title: string, passes: ReadonlyArray<KernelPasses.Changed>): string =>
  [
    title,
    "",
    ...table([
      ["stage", "of", "pass", "nodes", "us", "rules"],
      ...passes.map(({ homes, micros, nodes, of, pass, rules, stage }) => [
        stage,
        of,
        pass,
        nodes.join(" to "),
        micros.toFixed(0),
        [KernelPasses.printHomes(homes), KernelPasses.printRules(rules)].filter((part) => part !== "").join("; ")
      ])
    ]),
    ""
  ].join("\n")

/** The instructions of a linear kernel, one a line with the numbers of what it uses; loops are indented. */
export const listing = ({ src }: UOp): string => {
  const numbers = new Map(src.map((node, i) => [node, i]))
  const nameOf = (node: UOp): string => numbers.has(node) ? `%${numbers.get(node)}` : Print.expression(node)
  let depth = 0
  return src.map((node, i) => {
    if (node.op === "END") depth--
    const indent = "  ".repeat(Math.max(0, depth))
    if (node.op === "RANGE") depth++
    const arg = node.arg === undefined ? "" : ` ${typeof node.arg === "object" ? JSON.stringify(node.arg) : node.arg}`
    const label = node.arena.labelOf(node)
    return `${`%${i}`.padStart(5)} ${indent}${node.op} ${DType.print(node.dtype)}${arg} (${
      node.src.map(nameOf).join(", ")
    })${label === undefined ? "" : `  # ${label}`}`
  }).join("\n")
}

const origins: Readonly<Record<Tuned.Choice["origin"], string>> = {
  heuristics: "what the heuristics chose",
  tuned: "what was tuned for this device",
  stale: "what the heuristics chose; tuned ones do not fit the kernel any more"
}

/** `1, 3: what was tuned for this device; 2: what the heuristics chose` */
const describeOrigins = (all: Shown["origins"]): string => {
  const numbers = Map.groupBy(all.keys(), (i) => all[i]!)
  return numbers.size === 1
    ? origins[all[0]!]
    : [...numbers].map(([origin, own]) => `${own.map((i) => i + 1).join(", ")}: ${origins[origin]}`).join("; ")
}

const asText = (
  { calls, code, expanded, kernel, linear, name, opted, opts, origins, profile }: Shown & { readonly calls: number },
  language: string
): string =>
  [
    `${name} on ${profile}, launched ${calls === 1 ? "once" : `${calls} times`} in a step`,
    ...[
      ["kernel: what rangeify made", kernel],
      [`opts: ${describeOrigins(origins)}`, opts.length === 0 ? "none" : opts.join("\n")],
      ["opted: its loops by their kinds", opted],
      ["expanded: threads, lanes and copies", expanded],
      ["linear: in the order of execution", linear],
      [`code: ${language}`, code]
    ].flatMap(([title, text]) => ["", `--- ${title}`, text!.trimEnd()]),
    ""
  ].join("\n")
