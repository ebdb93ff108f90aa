/** The programs of a session, each compiled when it is first asked for and bound to the session's buffers. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { Jit, type JitError, leadingWithout, type Prepared } from "@tg/jit/Jit"
import type { CacheType } from "@tg/model-parts/Halves"
import * as Order from "@tg/model-parts/Order"
import type { Activations } from "@tg/model-parts/Product"
import * as Shared from "@tg/jit/Shared"
import {
  type Binding as DeviceBinding,
  Device,
  type DeviceBuffer,
  type DeviceError,
  type Replay
} from "@tg/runtime/Device"
import { Context, Effect, Exit, Scope } from "effect"
import * as Draw from "./Draw.ts"
import * as DrawRows from "./DrawRows.ts"
import { mostStep } from "./DraftLength.ts"
import type { ModelFile } from "./ModelFile.ts"
import type * as ProgramMemo from "./ProgramMemo.ts"
import { isBatchFirst, type PromptShape, sizeFor } from "./Prompts.ts"
import * as Spans from "./Spans.ts"
import { decodeProgram, ids, stepProgram, type StepShape } from "./StepProgram.ts"
import * as TokenRing from "./TokenRing.ts"

/** A program of several tokens, and where it leaves their logits. */
export interface Variant {
  readonly prepared: Prepared
  /** What of it fills the caches, for a step whose logits nobody reads: without the last block's end and the output matrix. */
  readonly filling: Effect.Effect<Replay, DeviceError>
  readonly logits: DeviceBuffer
  readonly order: Order.Order
  /** Tokens of every step, if it takes no other number. */
  readonly size: number | undefined
  /** What draws a token from each of the logits. */
  readonly draws: Compiling<Draws>
}

/** What draws from rows of logits, and the buffer where step 0 leaves their tokens. */
export interface Draws {
  readonly draw: Effect.Success<ReturnType<typeof DrawRows.make>>
  readonly tokens: DeviceBuffer
}

/** A step that leaves logits, and what draws from them. */
export interface Drawer {
  readonly prepared: Prepared
  readonly draw: Effect.Success<ReturnType<typeof Draw.make>>
}

/** Compiles a program, unless it has been compiled. */
export type Compiling<A> = Effect.Effect<A, JitError | DeviceError>

/** All programs. */
export interface SessionPrograms {
  /** The range of positions behind `start` tokens that has programs of its own for one token. */
  readonly spanAt: (start: number) => Spans.Span
  /** Logits of every token of so many behind `start` others. */
  readonly all: OfTokens
  /** Logits of every token of up to `DraftLength.mostStep`, to verify drafts. */
  readonly drafts: OfTokens
  /** Logits of the last token, of a prompt that is a batch. */
  readonly batch: Compiling<Variant>
  /** Logits of the last token of so many, of a prompt that is none. */
  readonly few: OfTokens
  /** What a prompt of a few words needs behind `start` others. */
  readonly first: (start: number) => Compiling<Variant>
  /** Greedy decoding behind so many tokens. */
  readonly decoder: (start: number) => Compiling<Prepared>
  /** Decoding with a draw. */
  readonly drawer: (start: number) => Compiling<Drawer>
}

/** A program of so many tokens behind `start` others. */
export type OfTokens = (tokens: number, start: number) => Compiling<Variant>

/** What programs are made for, and what they are bound to. */
export interface Binding {
  readonly model: ModelFile
  readonly shape: {
    readonly context: number
    readonly cache: CacheType
    readonly activations: Activations
    readonly profile: DeviceProfile
    readonly states: boolean
  }
  /** What ranges of positions have programs of their own. */
  readonly within: Spans.Within
  readonly prompts: PromptShape
  readonly memo: ProgramMemo.ProgramMemo
  /** Buffers by their ids. */
  readonly bound: ReadonlyArray<readonly [number, DeviceBinding]>
  /** The token that decoding feeds, and leaves for the next step. */
  readonly decoded: DeviceBuffer
}

/** Keeps what succeeds. */
export const once = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> => {
  let made: A | undefined
  return Effect.suspend(() =>
    made === undefined ? Effect.tap(effect, (value) => Effect.sync(() => made = value)) : Effect.succeed(made)
  )
}

/** Draws from so many rows of logits. */
const drawsOf = (logits: DeviceBuffer, { most, vocabulary }: { readonly most: number; readonly vocabulary: number }) =>
  Effect.gen(function*() {
    const ring = { given: 0, each: most }
    const tokens = yield* (yield* Device).allocate(4 * TokenRing.size(ring), "drawn")
    const made: Draws = { tokens, draw: yield* DrawRows.make({ logits, tokens, ring, vocabulary, most }) }
    return made
  })

/** The launches of a program up to the last one that leaves something beside logits. */
const fillingOf = (prepared: Prepared): Effect.Effect<Replay, DeviceError, Device | Scope.Scope> => {
  const { dispatches, plan } = prepared
  const count = leadingWithout(plan, ids.logits)
  return count === dispatches.length
    ? Effect.succeed(prepared)
    : Effect.flatMap(Device, (device) => (prepared.device ?? device).plan(dispatches.slice(0, count)))
}

/** A program of several tokens. What a failed attempt allocated is returned, and the next one tries again. */
const variant = (
  { bound, memo, model, shape }: Binding,
  own: Pick<StepShape, "chunk" | "isWhole" | "order" | "rows" | "span">
) =>
  Effect.gen(function*() {
    const scope = yield* Scope.fork(yield* Effect.scope)
    const { chunk, isWhole = false, order, rows } = own
    const outputRows = rows === "last" ? 1 : order === "tokens" ? chunk : Order.wholeTiles(chunk)
    const { vocabulary } = model.config
    return yield* Effect.gen(function*() {
      const device = yield* Device
      const jit = yield* Jit
      const logits = yield* device.allocate(4 * outputRows * vocabulary, `logits_${rows}`)
      const { profile, ...size } = shape
      const name = `step ${JSON.stringify({ ...own, ...size })}`
      const program = memo(name, () => stepProgram(model, { ...own, ...size, profile }))
      const prepared = yield* jit.prepare(program.sink, new Map([...bound, [ids.logits, logits]]))
      const draws = once(drawsOf(logits, { vocabulary, most: outputRows })).pipe(
        Effect.provideService(Device, device),
        Effect.provideService(Jit, jit),
        Scope.provide(scope)
      )
      const filling = once(fillingOf(prepared)).pipe(Effect.provideService(Device, device), Scope.provide(scope))
      const made: Variant = { prepared, filling, logits, order, size: isWhole ? chunk : undefined, draws }
      return made
    }).pipe(
      Scope.provide(scope),
      Effect.onExit((exit) => Exit.isSuccess(exit) ? Effect.void : Scope.close(scope, exit))
    )
  }).pipe(Effect.withSpan("Session.prepare"))

const decoder = ({ bound, decoded, memo, model, shape }: Binding, groups: Shared.BindGroups, span: Spans.Span) =>
  Effect.gen(function*() {
    const program = memo(`token ${shape.context} ${span.from}`, () => decodeProgram(model, { ...shape, span }))
    return yield* (yield* Jit).prepare(program.sink, new Map([...bound, [ids.next, decoded]]), { groups })
  })

const drawer = ({ bound, decoded, memo, model, shape }: Binding, groups: Shared.BindGroups, span: Spans.Span) =>
  Effect.gen(function*() {
    const { vocabulary } = model.config
    const logits = yield* (yield* Device).allocate(4 * vocabulary, "logits_next")
    const program = memo(
      `logits ${shape.context} ${span.from}`,
      () => decodeProgram(model, { ...shape, span }, "logits")
    )
    const prepared = yield* (yield* Jit).prepare(
      program.sink,
      new Map([...bound, [ids.next, decoded], [ids.logits, logits]]),
      { groups }
    )
    const draw = yield* Draw.make({ logits, programs: memo, token: decoded, vocabulary })
    const made: Drawer = { prepared, draw }
    return made
  })

/** One of each span of positions that steps of so many tokens have, one if it is not said, made when it is first asked for. */
const ofSpans = <A>({ within }: Pick<Binding, "within">, make: (span: Spans.Span, chunk: number) => A) => {
  const made = new Map<string, A>()
  return (start: number, chunk = 1): A => {
    const span = Spans.at(start, { ...within, chunk })
    const key = `${chunk} ${span.from}`
    const own = made.get(key) ?? make(span, chunk)
    made.set(key, own)
    return own
  }
}

/** Programs in the order of tokens, of spans of positions: of each size one, or one for any number of up to `most`. */
const inTokens = (binding: Binding, { most, rows }: { readonly rows: StepShape["rows"]; readonly most: number }) => {
  const { prompts } = binding
  const shape = { rows, isWhole: prompts.sizes.length > 0, order: "tokens" } as const
  const made = ofSpans(binding, (span, chunk) => once(variant(binding, { ...shape, chunk, span })))
  return (tokens: number, start: number) => made(start, sizeFor(prompts, tokens) ?? most)
}

/** Tokens of a step that verifies drafts at most. */
const draftTokens = ({ shape: { context } }: Binding): number => Math.min(mostStep, context)

/** The programs over these buffers. They belong to the Scope. */
export const make = Effect.fnUntraced(function*(binding: Binding) {
  const services = Context.pick(Device, Jit, Scope.Scope)(yield* Effect.context<Device | Jit | Scope.Scope>())
  const groups = yield* Shared.BindGroups
  const here = Effect.provide(services)
  const { prompts } = binding
  const { batch, batchFrom, chunk, few, sizes } = prompts
  const provided = (own: ReturnType<typeof inTokens>): OfTokens => (tokens, start) => own(tokens, start).pipe(here)
  const last = {
    batch: once(variant(binding, { rows: "last", chunk: batch, order: "features" }).pipe(here)),
    few: provided(inTokens(binding, { rows: "last", most: few }))
  }
  const isInTiles = batchFrom <= chunk
  const tiles = once(variant(binding, { rows: "all", chunk, order: "features" }).pipe(here))
  const all = provided(inTokens(binding, { rows: "all", most: chunk }))
  // drafts take no tiles, which cost as much for a few tokens as for all they have room for
  const isEnough = sizes.length > 0 || !isInTiles && chunk >= draftTokens(binding)
  const made: SessionPrograms = {
    spanAt: (start) => Spans.at(start, binding.within),
    all: isInTiles ? () => tiles : all,
    drafts: isEnough ? all : provided(inTokens(binding, { rows: "all", most: draftTokens(binding) })),
    ...last,
    first: (start) => isBatchFirst(prompts) ? last.batch : last.few(few, start),
    decoder: ofSpans(binding, (span) => once(decoder(binding, groups, span).pipe(here))),
    drawer: ofSpans(binding, (span) => once(drawer(binding, groups, span).pipe(here)))
  }
  return made
})
