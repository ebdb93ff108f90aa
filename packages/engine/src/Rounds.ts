/**
 * Rounds of drafts that a device goes through by itself: it verifies what the model's prediction block has guessed, finds how many guesses are
 * right, and lets the block guess on behind them. The next round is submitted before the host knows what came of the one before, so
 * neither waits for the other.
 */
import { ownOf, settled } from "@tg/jit/Jit"
import type { DeviceError, Span, Work } from "@tg/runtime/Device"
import { piece } from "@tg/model-parts/Attention"
import { Effect, Fiber } from "effect"
import { isSame, isSameSampling } from "./Ahead.ts"
import * as Predicting from "./Predicting.ts"
import { mostRound } from "./RoundProgram.ts"
import type { Rounds as Programs } from "./RoundPrograms.ts"
import * as Sampler from "./Sampler.ts"
import { drawsOnDevice, invalid, refuse, reusable, type SessionState, type StepError } from "./SessionState.ts"
import { bytesOf, wordsOf } from "./Words.ts"

/** Rounds under way at a time: one that is computed, and one that the host has encoded behind it. What nobody asks for is lost. */
const mostUnderWay = 2

/** Guesses of a round at most. */
export const mostGuesses = mostRound - 1

/** How a text goes on. */
export interface Asked {
  /** Guesses of rounds that are submitted from now on. */
  readonly guesses: number
  readonly sampling: Sampler.Settings
  /** How many guesses of the next round to submit are taken for right, whatever they are: to measure. What they are, if it is not said. */
  readonly right?: (() => number) | undefined
}

/** What came of a round. */
export interface Round {
  /** What was guessed behind the tokens that were asked for. */
  readonly drafts: ReadonlyArray<number>
  /** What was drawn behind them and behind each guess. */
  readonly ids: ReadonlyArray<number>
  /** How many guesses were taken for right: so many of the drawn tokens, and one more, go on with the text. */
  readonly right: number
}

/** A round that is under way. */
interface UnderWay {
  readonly tokens: number
  readonly report: Fiber.Fiber<Uint32Array, DeviceError>
}

/** Rounds under way behind a text. */
export interface Rounds {
  readonly sampling: Sampler.Settings
  readonly isForced: boolean
  /** The text as far as it is known. */
  tokens: ReadonlyArray<number>
  /** What the session and the block held when that was found: whoever changes it has left the rounds. */
  held: ReadonlyArray<number>
  read: ReadonlyArray<number>
  /** Guesses that are made for the next round to submit. */
  guesses: number
  /** Where its first token stands at most. */
  most: number
  readonly pending: Array<UnderWay>
}

/** Whether a session can go through rounds. */
const canRun = (state: SessionState, sampling: Sampler.Settings): boolean =>
  state.rounds !== undefined && drawsOnDevice(state, sampling)

/** Compiles rounds of so many guesses. */
export const prepare = Effect.fnUntraced(function*(
  state: SessionState,
  guesses: number,
  sampling: Sampler.Settings
) {
  if (!canRun(state, sampling)) return
  const { draws, guess, verifying } = state.rounds!
  const tokens = 1 + Math.min(guesses, mostGuesses)
  yield* verifying(tokens)
  yield* guess
  yield* draws(sampling, tokens)
})

/** Submits a round, and the guesses of the one behind it, so many. */
const submit = Effect.fnUntraced(function*(
  state: SessionState,
  programs: Programs,
  running: Rounds,
  { guesses, right = () => mostRound }: Asked
): Effect.fn.Return<void, StepError> {
  const tokens = 1 + running.guesses
  // of the last token of the round, and of the guesses behind the last one that is right
  const end = running.most + tokens + guesses
  yield* state.inputs.reach(end)
  const { accept, read, verify } = yield* programs.verifying(tokens)
  const guess = yield* programs.guess
  const pieces = Math.ceil(end / piece)
  const report: Span = { buffer: programs.report, offset: 0, bytes: programs.report.bytes }
  const work: ReadonlyArray<Work> = [
    { replay: verify, vars: ownOf(verify, { pieces }) },
    ...yield* programs.draws(running.sampling, tokens),
    { replay: accept, vars: ownOf(accept, { right: right() }) },
    { replay: read, vars: ownOf(read, { pieces }) },
    ...Array.from({ length: guesses - 1 }, (_, i) => ({ replay: guess, vars: ownOf(guess, { pieces, guess: i + 1 }) })),
    report
  ]
  const ran = Effect.map(settled(state, work), ([found]) => wordsOf(found!))
  running.most += tokens
  running.guesses = guesses
  running.pending.push({ tokens, report: yield* Effect.forkIn(ran, state.scope, { startImmediately: true }) })
})

/** Begins rounds behind these tokens with what the block guesses there; nothing, where it cannot. */
const begin = Effect.fnUntraced(function*(
  state: SessionState,
  programs: Programs,
  tokens: ReadonlyArray<number>,
  { guesses, right, sampling }: Asked
) {
  const last = tokens.length - 1
  if (reusable(state, tokens) !== last) return undefined
  const drafts = yield* Predicting.predict(state, tokens, guesses)
  if (drafts.length < guesses) return undefined
  const position = Int32Array.from({ length: mostRound }, (_, i) => last + i)
  const fed = Uint32Array.from({ length: mostRound }, (_, i) => i === 0 ? tokens[last]! : drafts[i - 1] ?? 0)
  yield* state.device.write(programs.tokens, bytesOf(fed))
  yield* state.device.write(programs.position, bytesOf(position))
  const made: Rounds = {
    sampling,
    isForced: right !== undefined,
    tokens: [...tokens],
    held: state.held,
    read: state.prediction!.held,
    guesses,
    most: last,
    pending: []
  }
  return made
})

/** Whether the rounds under way are those of this text. */
const isTheirs = (state: SessionState, running: Rounds, tokens: ReadonlyArray<number>, { right, sampling }: Asked) =>
  running.held === state.held && running.read === state.prediction?.held && isSame(running.tokens, tokens) &&
  isSameSampling(running.sampling, sampling) && running.isForced === (right !== undefined)

/** Takes what a round has left. */
const landed = (state: SessionState, running: Rounds, report: Uint32Array, tokens: number): Round => {
  const drafts = [...report.subarray(1, tokens)]
  const ids = [...report.subarray(mostRound, mostRound + tokens)]
  const right = report[2 * mostRound]!
  running.tokens = [...running.tokens, ...ids.slice(0, right + 1)]
  running.most = running.tokens.length - 1 + running.pending.reduce((n, each) => n + each.tokens, 0)
  if (!running.isForced) {
    state.held = running.held = running.tokens.slice(0, -1)
    state.prediction!.held = running.read = running.tokens
  }
  return { drafts, ids, right }
}

/**
 * A round behind these tokens: one that is under way already, if they are the text that it goes on with. Nothing, and nothing has been done, where
 * the device does not draw, no block guesses, or the context ends.
 */
export const round: (
  state: SessionState,
  tokens: ReadonlyArray<number>,
  asked: Asked
) => Effect.Effect<Round | undefined, StepError> = Effect.fnUntraced(function*(state, tokens, given) {
  const { rounds: programs } = state
  const asked = { ...given, guesses: Math.max(1, Math.min(given.guesses, mostGuesses)) }
  if (programs === undefined || !canRun(state, asked.sampling)) return undefined
  const error = invalid(state, tokens)
  if (error !== undefined) return yield* error
  const there = state.running
  const running = there !== undefined && isTheirs(state, there, tokens, asked)
    ? there
    : tokens.length + 2 * asked.guesses > state.context
    ? undefined
    : yield* begin(state, programs, tokens, asked)
  state.running = running
  if (running === undefined) return undefined
  const hasRoom = (): boolean => running.most + 1 + running.guesses + asked.guesses <= state.context
  while (running.pending.length < mostUnderWay && hasRoom()) yield* submit(state, programs, running, asked)
  const [first] = running.pending
  if (first === undefined) {
    state.running = undefined
    return undefined
  }
  // who is interrupted here and asks again gets the same round
  const report = yield* Effect.tapError(Fiber.join(first.report), () => Effect.sync(() => state.running = undefined))
  running.pending.shift()
  const found = landed(state, running, report, first.tokens)
  const { vocabulary } = state.model.config
  const bad = found.ids.slice(0, found.right + 1).findIndex((id) => id >= vocabulary)
  if (bad < 0) return found
  state.running = undefined
  return yield* refuse(state, new Sampler.InvalidLogits({ position: tokens.length - 1 + bad, vocab: vocabulary }))
})
