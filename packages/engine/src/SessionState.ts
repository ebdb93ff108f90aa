/** What a session is: what it stands on, which stays, and what its steps change. */
import { type Jit, type JitError, settled } from "@tg/jit/Jit"
import type { Ring } from "@tg/model-parts/Attention"
import type { Storage } from "@tg/model-parts/Family"
import type { Activations } from "@tg/model-parts/Product"
import type { DeviceBuffer, DeviceError, DeviceShape } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import type { Ahead, Pace, StepsTogether } from "./Ahead.ts"
import type * as CacheCopy from "./CacheCopy.ts"
import * as Draw from "./Draw.ts"
import type * as HostInputs from "./HostInputs.ts"
import type { ModelFile } from "./ModelFile.ts"
import type { Prediction } from "./PredictionPrograms.ts"
import type { PromptShape } from "./Prompts.ts"
import * as Rings from "./Rings.ts"
import type { Rounds as RoundPrograms } from "./RoundPrograms.ts"
import type { Rounds } from "./Rounds.ts"
import * as Sampler from "./Sampler.ts"
import type { SessionPrograms } from "./SessionPrograms.ts"
import * as Tokens from "./Tokens.ts"
import { floatsOf } from "./Words.ts"

/** Why a step failed. */
export type StepError = Tokens.ContextFull | Tokens.InvalidTokens | Sampler.InvalidLogits | DeviceError | JitError

/** What a session has as long as it lives. */
export interface Ground {
  readonly device: DeviceShape
  readonly scope: Scope.Scope
  readonly model: ModelFile
  /** Tokens it can hold. */
  readonly context: number
  readonly activations: Activations
  /** How prompts are cut. */
  readonly prompts: PromptShape
  readonly sampler: Sampler.Drawing
  /** The cache of each block, as the model lays it out, and where it is; behind them the states, where they are kept. */
  readonly storage: ReadonlyArray<Storage>
  readonly caches: ReadonlyArray<DeviceBuffer>
  readonly ring: Ring | undefined
  /** Tokens on their way into a step. */
  readonly tokens: DeviceBuffer
  /** What the host computes for each position. */
  readonly inputs: HostInputs.Tables
  /** The token that decoding feeds, and leaves for the next step. */
  readonly decoded: DeviceBuffer
  readonly programs: SessionPrograms
  /** Steps of a submission while tokens are generated, and what a step takes. */
  readonly together: StepsTogether
  readonly pace: Pace
  /** What guesses tokens, where the model's prediction block is loaded. */
  readonly prediction: Prediction | undefined
  /** What goes through rounds of its guesses, on a device that works on its own. */
  readonly rounds: RoundPrograms | undefined
  /** Says whether what the steps so far have left is void: asked with every read of it. */
  readonly jit: Pick<Jit["Service"], "settle">
}

/** A session between two steps. */
export interface SessionState extends Ground {
  /** The tokens in the cache. */
  held: ReadonlyArray<number>
  /** Positions before this one are gone from the caches of blocks with a window. */
  forgotten: number
  /** Steps that are under way. */
  ahead: Ahead | undefined
  /** Rounds that are under way. */
  running: Rounds | undefined
}

/** Whether the device draws. One that computes while it is called has nothing to run ahead of. */
export const drawsOnDevice = ({ device, model, sampler }: Ground, sampling: Sampler.Settings): boolean =>
  device.profile.kind === "gpu" && sampler.isOnDevice && Draw.fits(sampling, model.config.vocabulary)

/** Bytes that a token takes in a cache. */
export const rowBytes = ({ shape }: Storage): number => 4 * Number(shape[1])

/** Rows of the caches that hold the first `count` tokens. */
export const rowsOf = ({ storage }: Ground, forgotten: number, count: number): CacheCopy.Rows =>
  storage.map((each) => rowBytes(each) * Rings.rowsOf(each, forgotten, count))

/** What is wrong with tokens that the session is to hold, if anything. */
export const invalid = ({ context, model }: Ground, tokens: ReadonlyArray<number>) =>
  Tokens.invalid(tokens, model.config, context)

/** How many of these tokens need not be computed again. The last one does: its logits are not kept. */
export const reusable = ({ forgotten, held, ring }: SessionState, tokens: ReadonlyArray<number>): number =>
  Rings.usable(ring, forgotten, Math.min(Tokens.commonPrefix(held, tokens), tokens.length - 1))

/** Holds no more than the first so many tokens. */
export const keep = (state: SessionState, count: number): void => {
  state.ahead = undefined
  state.running = undefined
  if (count < state.held.length) state.held = state.held.slice(0, count)
}

/** Empties the cache: rows with NaN are multiplied by zero where nobody looks at them, and would make NaN of all that follows. */
export const refuse = Effect.fnUntraced(function*(state: SessionState, invalid: Sampler.InvalidLogits) {
  keep(state, 0)
  const { caches, prediction } = state
  if (prediction !== undefined) prediction.held = []
  yield* Effect.forEach(
    [...caches, ...prediction?.own ?? []],
    (buffer) => state.device.write(buffer, new Uint8Array(buffer.bytes)),
    {
      discard: true
    }
  )
  return yield* invalid
})

/** The logits behind tokens from `start` on, all of which are numbers. */
export const read = Effect.fnUntraced(function*(
  state: SessionState,
  logits: DeviceBuffer,
  { rows, start }: { readonly start: number; readonly rows: number }
) {
  const { vocabulary } = state.model.config
  const [bytes] = yield* settled(state, [{ buffer: logits, offset: 0, bytes: 4 * rows * vocabulary }])
  const values = floatsOf(bytes!)
  const invalid = Sampler.invalidRow(values, vocabulary, start)
  return invalid === undefined ? values : yield* refuse(state, invalid)
})
