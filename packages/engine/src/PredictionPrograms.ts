/** A model's prediction block on a device: its cache, and its programs, each compiled when it is first asked for. */
import { Jit, type Prepared } from "@tg/jit/Jit"
import type { Model } from "@tg/model-parts/Family"
import type * as Order from "@tg/model-parts/Order"
import { type Binding as DeviceBinding, Device, type DeviceBuffer } from "@tg/runtime/Device"
import { Context, Effect, Result, Scope } from "effect"
import type * as Loader from "./Loader.ts"
import {
  draftRoom,
  guessProgram,
  type Predicting,
  predictionIds,
  type PredictionShape,
  readProgram
} from "./PredictionProgram.ts"
import type * as ProgramMemo from "./ProgramMemo.ts"
import { type PromptShape, sizeFor } from "./Prompts.ts"
import { type Compiling, once } from "./SessionPrograms.ts"
import { rowBytes } from "./SessionState.ts"
import { cacheRows, ids } from "./StepProgram.ts"

/** A program that takes tokens of a text. */
export interface Reading {
  readonly prepared: Prepared
  readonly order: Order.Order
  /** Tokens of every step, if it takes no other number. */
  readonly size: number | undefined
}

/** A prediction block, and what it holds. */
export interface Prediction {
  /** Guesses, in the order in which they were made. */
  readonly drafts: DeviceBuffer
  /** Its buffers that depend on tokens before. */
  readonly own: ReadonlyArray<DeviceBuffer>
  /** Takes so many tokens of a text, up to a batch. */
  readonly read: (tokens: number) => Compiling<Reading>
  /** Takes a guess. */
  readonly guess: Compiling<Prepared>
  /** The tokens of texts that are in its cache. */
  held: ReadonlyArray<number>
}

/** What programs are made for, and what they are bound to. */
export interface Setting {
  readonly model: Model
  readonly weights: Loader.Tensors
  readonly shape: Pick<PredictionShape, "activations" | "cache" | "context" | "profile">
  readonly prompts: PromptShape
  readonly memo: ProgramMemo.ProgramMemo
  /** Tokens and what the host computes for them, by their ids. */
  readonly given: ReadonlyArray<readonly [number, DeviceBinding]>
  readonly states: DeviceBuffer
}

/** The programs: of texts by their number of tokens, and of guesses. */
const programsOf = Effect.fnUntraced(function*(
  { memo, prompts, shape }: Setting,
  predicting: Predicting,
  bound: ReadonlyMap<number, DeviceBinding>
) {
  const here = Effect.provide(Context.pick(Jit, Scope.Scope)(yield* Effect.context<Jit | Scope.Scope>()))
  const reading = (own: Pick<PredictionShape, "chunk" | "isWhole" | "order">) =>
    once(
      Effect.gen(function*() {
        const { profile: _, ...told } = shape
        const name = `mtp ${JSON.stringify({ ...own, ...told })}`
        const program = memo(name, () => readProgram(predicting, { ...shape, ...own }))
        const prepared = yield* (yield* Jit).prepare(program.sink, bound)
        return { prepared, order: own.order, size: own.isWhole === true ? own.chunk : undefined } satisfies Reading
      }).pipe(here)
    )
  const batch = reading({ chunk: prompts.batch, order: "features" })
  const few = new Map<number, Compiling<Reading>>()
  return {
    read: (tokens: number) => {
      if (tokens >= prompts.batchFrom) return batch
      const size = sizeFor(prompts, tokens)
      const chunk = size ?? prompts.few
      const own = few.get(chunk) ?? reading({ chunk, isWhole: size !== undefined, order: "tokens" })
      few.set(chunk, own)
      return own
    },
    guess: once(
      Effect.gen(function*() {
        const one = { ...shape, chunk: 1, order: "tokens" } as const
        const program = memo(`mtp guess ${shape.context}`, () => guessProgram(predicting, one))
        return yield* (yield* Jit).prepare(program.sink, bound)
      }).pipe(here)
    )
  }
})

/** The prediction block of a model that has one. Its memory belongs to the Scope. */
export const make = Effect.fnUntraced(function*(setting: Setting) {
  const { given, model, shape: { cache, context }, states, weights } = setting
  const device = yield* Device
  const block = Result.getOrThrow(model.prediction!)
  const layout = block.cache({ type: cache, context: cacheRows(context) })
  const own = yield* device.allocate(rowBytes(layout) * Number(layout.shape[0]), "cache_mtp")
  const row = yield* device.allocate(4 * model.config.embedding, "hidden")
  const drafts = yield* device.allocate(4 * draftRoom, "drafts")
  const bound = new Map<number, DeviceBinding>([
    ...given,
    [ids.states, states],
    [predictionIds.drafts, drafts],
    [predictionIds.row, row],
    [predictionIds.cache, own],
    ...block.weights.map(({ name }, i) => [predictionIds.firstWeight + i, weights.get(name)!] as const)
  ])
  const made: Prediction = {
    drafts,
    own: [own, row],
    ...yield* programsOf(setting, { model, block }, bound),
    held: []
  }
  return made
})
