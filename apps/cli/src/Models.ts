/** From flags to a running engine. */
import { basename } from "node:path"
import { Checked } from "@tg/core-uop/Spec"
import { ModelFile } from "@tg/engine"
import * as Ahead from "@tg/engine/Ahead"
import * as Conversations from "@tg/engine/Conversations"
import * as Drafter from "@tg/engine/Drafter"
import { Engine, fromModel, type Options, type Program } from "@tg/engine/Engine"
import * as Sampler from "@tg/engine/Sampler"
import * as Parallel from "@tg/engine/Parallel"
import * as Together from "@tg/engine/Together"
import { ContextFull, contextOf, type InvalidTokens } from "@tg/engine/Session"
import type { ActivationPolicy } from "@tg/engine/ActivationPolicy"
import type { ByteSource } from "@tg/gguf/ByteSource"
import * as GgufFile from "@tg/gguf/GgufFile"
import * as RemoteGguf from "@tg/hub/RemoteGguf"
import { Store } from "@tg/hub/Store"
import type { Jit } from "@tg/jit/Jit"
import * as Shared from "@tg/jit/Shared"
import type { Device } from "@tg/runtime/Device"
import { known } from "@tg/models/Models"
import { Context, Effect, FileSystem, Layer, Option, type Scope, Stdio } from "effect"
import * as CompiledFiles from "./CompiledFiles.ts"
import * as Devices from "./Devices.ts"
import * as Drafts from "./Drafts.ts"
import * as Files from "./Files.ts"
import * as Flags from "./Flags.ts"
import * as Names from "./Names.ts"
import * as Output from "./Output.ts"
import * as Profiles from "./Profiles.ts"
import * as Progress from "./Progress.ts"
import { UsageError } from "./Report.ts"
import * as TunedFiles from "./TunedFiles.ts"
import * as Words from "./Words.ts"

/** The flags of everything that runs a model. */
export const runFlags = {
  kv: Flags.kv,
  activations: Flags.activations,
  context: Flags.context,
  device: Flags.device,
  threads: Flags.threads,
  noTune: TunedFiles.noTune,
  noEgraph: Flags.noEgraph,
  ...Flags.persistence,
  bindGroups: Flags.bindGroups,
  stepsTogether: Flags.stepsTogether,
  noCache: CompiledFiles.noCache,
  profile: Profiles.given,
  limits: Profiles.limits,
  noSubgroups: Profiles.noSubgroups,
  noMatrixUnits: Profiles.noMatrixUnits,
  check: Flags.check
} as const

/** The flags that decide how a model runs. */
export interface RunFlags {
  readonly model: string
  readonly device: Devices.Choice
  readonly threads: Option.Option<number>
  readonly kv: "f16" | "f32"
  readonly activations: ActivationPolicy
  readonly context: Option.Option<number>
  readonly check: boolean
  readonly noTune: boolean
  readonly noEgraph: boolean
  readonly persistent: "off" | "auto" | "on"
  readonly noPersistent: boolean
  readonly bindGroups: Shared.BindGroups
  readonly stepsTogether: Ahead.StepsTogether
  readonly noCache: boolean
  readonly profile: Option.Option<string>
  readonly limits: Readonly<Record<string, string>>
  readonly noSubgroups: boolean
  readonly noMatrixUnits: boolean
  /** Tells nothing of loading. */
  readonly json: boolean
  /** What proposes tokens; for commands that generate. */
  readonly draft?: Option.Option<Drafter.Name>
  /** The model that proposes them, if one does. */
  readonly draftModel?: Option.Option<string>
}

/** A model file that is open: its bytes, and what its header says. */
export interface Opened {
  readonly source: GgufFile.GgufFile["source"]
  readonly file: ModelFile.ModelFile
}

/** Opens a file and reads its header. What is no file is refused: a pipe would be waited for. */
export const openGguf = Effect.fn("cli.openGguf")(function*(path: string) {
  yield* Files.checkModelPath(path)
  const files = yield* FileSystem.FileSystem
  // parts of a split model are opened by their names
  const onlyFiles = FileSystem.make({
    ...files,
    open: (name, options) =>
      Files.checkModelPath(name).pipe(
        Effect.mapError((error) => Files.refusal(name, error.message)),
        Effect.andThen(files.open(name, options)),
        Effect.mapError((error) => Files.refusal(name, Words.cause(error))),
        Effect.provideService(FileSystem.FileSystem, files)
      )
  })
  return yield* GgufFile.open(path).pipe(Effect.provideService(FileSystem.FileSystem, onlyFiles))
})

/**
 * A model that is open: its bytes, and what its header says. A split model is opened by any of its parts, one that was
 * pulled by its name.
 */
export const open = Effect.fn("cli.open")(function*(model: string) {
  const { gguf, source } = yield* openGguf(yield* Names.resolve(model))
  const opened: Opened = { source, file: yield* ModelFile.ofGguf(gguf, known) }
  return opened
})

/** The header of a model, wherever it is: of one that is not on this machine, no more than that is fetched. */
export const header = Effect.fn("cli.header")(function*(model: string) {
  const name = yield* Names.nameIn(model)
  if (name === undefined) return (yield* openGguf(model)).gguf
  const found = yield* Effect.flatMap(Store, ({ find }) => find(name)).pipe(Effect.provide(Names.store()))
  if (found?.isComplete === true) return (yield* openGguf(found.path)).gguf
  return (yield* RemoteGguf.open(name).pipe(Effect.provide(Names.http))).gguf
})

/** What a command does with a model. */
export interface Needs {
  /** Compiled while the model loads. */
  readonly prepare: ReadonlyArray<Program>
  /** Whether tokens are processed one after the other, with the kernels of decoding. */
  readonly oneByOne?: boolean
  /** The model, where a command has looked at it before. */
  readonly opened?: Opened | undefined
}

/** Generating from text. */
export const forText = (sampling = Sampler.greedy): Needs => ({ prepare: ["last", sampling] })
/** Generating the likeliest tokens from tokens. */
export const forTokens: Needs = { prepare: ["last", Sampler.greedy] }

/** The engine and the device of these flags. The file is checked before a device is started. */
export const layer = (flags: RunFlags, needs: Needs) =>
  layerOf(
    flags,
    { ...needs, conversations: 1 },
    (source, file, options) => Effect.map(fromModel(source, file, options), (made) => Context.make(Engine, made))
  )

/** How many conversations a model keeps, and how many it answers in the same steps: one after the other, if it is not said. */
export interface Many {
  readonly conversations: number
  readonly parallel: number | undefined
}

/** The same with a model that keeps several conversations. */
export const layerConversations = (flags: RunFlags, needs: Needs, { conversations, parallel }: Many) =>
  layerOf(flags, { ...needs, conversations }, (source, file, options) =>
    Effect.map(
      parallel === undefined
        ? Conversations.fromModel(source, file, { ...options, conversations })
        : Together.fromModel(source, file, { ...options, conversations, parallel }),
      (made) => Context.make(Conversations.Conversations, made)
    ))

/** The steps of conversations that are computed together. */
export class Steps extends Context.Service<Steps, Parallel.Parallel & { readonly file: ModelFile.ModelFile }>()(
  "@tg/cli/Steps"
) {}

/** The same with as many conversations in one step. */
export const layerParallel = (flags: RunFlags, needs: Needs, parallel: number) =>
  layerOf(flags, { ...needs, conversations: parallel }, (source, file, options) =>
    Effect.map(
      Parallel.open(source, file, { ...options, parallel }),
      (made) => Context.make(Steps, { ...made, file })
    ))

/** Loads the model of these flags as something. */
const layerOf = <S, E>(
  flags: RunFlags,
  { conversations, oneByOne = false, opened, prepare }: Needs & { readonly conversations: number },
  load: (
    source: ByteSource["Service"],
    file: ModelFile.ModelFile,
    options: Options
  ) => Effect.Effect<Context.Context<S>, E, Device | Jit | Scope.Scope>
) =>
  Layer.unwrap(Effect.gen(function*() {
    const restrictions = Profiles.restrictionsOf(flags)
    if (restrictions instanceof UsageError) return yield* restrictions
    const profiles = yield* Profiles.known(flags.profile)
    const refusal = Drafts.refusal(flags)
    if (refusal !== undefined) return yield* refusal
    const { file, source } = opened ?? (yield* open(flags.model))
    const { draftModel = Option.none() } = flags
    const second = Option.isSome(draftModel) ? yield* open(draftModel.value) : undefined
    if (second !== undefined) yield* Drafts.checkVocabulary(file, second.file)
    const store = yield* TunedFiles.load({ noTune: flags.noTune })
    const loading = Effect.gen(function*() {
      const told = flags.json ? Progress.silent : yield* Progress.start(basename(flags.model), weightBytes(file))
      const { onProgress } = told
      const { activations, kv: cache } = flags
      const context = Option.getOrUndefined(flags.context)
      const stdio = yield* Stdio.Stdio
      const rebuild = Output.note("the device was lost; everything is built again on a new one").pipe(
        Effect.andThen(Layer.build(Layer.fresh(devices))),
        Effect.provideService(Stdio.Stdio, stdio)
      )
      const options = { cache, activations, context, prepare, onProgress, rebuild }
      const steps = oneByOne ? { chunk: 1, batchFrom: Infinity } : {}
      const own = { cache, activations, rebuild, conversations, prepare: ["last", Sampler.greedy] } as const
      const drafter = yield* Drafts.drafterOf(flags, second && [second.source, second.file, own])
      return yield* load(source, file, { ...options, ...steps }).pipe(
        Effect.map(Context.add(Drafter.Drafter, drafter)),
        Effect.provideService(Drafter.Drafter, drafter),
        Effect.provideService(Shared.BindGroups, flags.bindGroups),
        Effect.provideService(Ahead.StepsTogether, flags.stepsTogether),
        Effect.onExit((exit) => told.end(exit))
      )
    })
    const threads = Option.getOrUndefined(flags.threads)
    // programs that are to be checked are compiled
    const keeping = flags.noCache || flags.check ? undefined : yield* CompiledFiles.open
    const persistent = Flags.persistentOf(flags)
    const devices = Devices.layer(flags.device, { keeping, persistent, profiles, restrictions, store, threads }).pipe(
      Layer.provide(Flags.stagesOf(flags))
    )
    return Layer.effectContext(loading).pipe(Layer.provideMerge(devices))
  }))

const weightBytes = ({ gguf, weights }: ModelFile.ModelFile): number =>
  weights.all.reduce((sum, { name }) => sum + gguf.tensorsByName.get(name)!.bytes, 0)

/** Runs with a loaded model. The compiler's validators are on only where `--check` asks for them: they cost time. */
export const withModel = <A, E, R>(flags: RunFlags, needs: Needs, use: Effect.Effect<A, E, R>) =>
  use.pipe(
    Effect.provide(layer(flags, needs)),
    Effect.provideService(Checked, flags.check)
  )

/** The same with the steps of several conversations. */
export const withSteps = <A, E, R>(
  flags: RunFlags,
  { parallel, ...needs }: Needs & { readonly parallel: number },
  use: Effect.Effect<A, E, R>
) =>
  use.pipe(
    Effect.provide(layerParallel(flags, needs, parallel)),
    Effect.provideService(Checked, flags.check)
  )

/** Refuses now what a session would refuse once the weights are there: more tokens than the context holds. */
export const checkLength = (
  { config }: ModelFile.ModelFile,
  { asked, context }: { readonly asked: number; readonly context: Option.Option<number> }
): ContextFull | InvalidTokens | undefined => {
  const modelLimit = config.contextLength
  // without --context it grows
  const limit = Option.isNone(context) ? modelLimit : contextOf(config, context.value)
  if (typeof limit !== "number") return limit
  return asked > limit ? new ContextFull({ asked, limit, modelLimit }) : undefined
}
