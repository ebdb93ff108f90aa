/** Token after token: on the host from the logits of a step, or by the device, which then runs ahead. */
import type { DeviceError, Replay } from "@tg/runtime/Device"
import { Effect, Fiber } from "effect"
import { type Ahead, isSame, isSameSampling, stepsAhead } from "./Ahead.ts"
import * as Draw from "./Draw.ts"
import * as Random from "./Random.ts"
import * as Rings from "./Rings.ts"
import * as Sampler from "./Sampler.ts"
import { invalid, refuse, reusable, type SessionState, settled, settling, type StepError } from "./SessionState.ts"
import { masked } from "./Shaping.ts"
import * as Steps from "./Steps.ts"
import { bytesOf, wordOf } from "./Words.ts"

/** A token to draw behind others. */
export interface Place {
  readonly tokens: ReadonlyArray<number>
  readonly sampling: Sampler.Settings
  /** One bit per token: those that may be drawn. */
  readonly mask?: Uint32Array | undefined
}

/** A device that computes while it is called has nothing to run ahead of, and one that cannot draw has no token to feed. */
const runsAhead = ({ device, model, sampler }: SessionState, sampling: Sampler.Settings): boolean =>
  device.profile.kind === "gpu" && sampler.isOnDevice &&
  (Sampler.isGreedy(sampling) || Draw.fits(sampling, model.config.vocabulary))

/** Compiles what `next` repeats. */
export const prepare = Effect.fnUntraced(function*(state: SessionState, sampling: Sampler.Settings) {
  const { decoder, drawer, few } = state.programs
  if (!runsAhead(state, sampling)) yield* few(1)
  else if (Sampler.isGreedy(sampling)) yield* decoder
  else yield* (yield* drawer).draw(sampling, "all")
})

/** Runs a program that leaves a token, and reads that. */
const runAndRead = ({ decoded, device }: SessionState, { run, runAndRead: both }: Replay, position: number) => {
  const vars = { startPos: position }
  return both === undefined
    ? Effect.andThen(run(vars), device.read(decoded))
    : both(vars, { buffer: decoded, offset: 0, bytes: decoded.bytes })
}

/** Submits the step that feeds the token on the device, and a read of the token it leaves there. */
const submit = Effect.fnUntraced(function*(state: SessionState, running: Ahead) {
  const { position, sampling } = running
  const { decoder, drawer } = state.programs
  state.forgotten = Rings.afterStep(state.ring, state.forgotten, { start: position, tokens: 1 })
  yield* state.inputs.write([position])
  let token: Effect.Effect<Uint8Array, DeviceError>
  if (Sampler.isGreedy(sampling)) token = runAndRead(state, yield* decoder, position)
  else {
    const { draw, prepared } = yield* drawer
    const drawAt = yield* draw(sampling, "all")
    yield* prepared.run({ startPos: position })
    yield* drawAt(position + 1)
    token = state.device.read(state.decoded)
  }
  running.position++
  running.pending.push(
    yield* Effect.forkIn(Effect.map(settling(state, token), wordOf), state.scope, { startImmediately: true })
  )
})

/** The host's draw. */
const drawn = Effect.fnUntraced(function*(state: SessionState, { mask, sampling, tokens }: Place) {
  const logits = yield* Steps.advance(state, tokens)
  const row = mask === undefined ? logits : masked(logits, mask)
  const id = state.sampler.sample(row, sampling, Random.words(sampling.seed, tokens.length))
  return id ?? (yield* new Sampler.InvalidLogits({ position: tokens.length - 1, vocab: row.length, bad: 0 }))
})

/** A token that the device has drawn behind a position. */
const known = (state: SessionState, id: number, position: number): Effect.Effect<number, StepError> => {
  const { vocabulary } = state.model.config
  return id < vocabulary
    ? Effect.succeed(id)
    : refuse(state, new Sampler.InvalidLogits({ position, vocab: vocabulary }))
}

/** A step of decoding and a draw of what the mask allows, where the tokens in front of the last are there. */
const maskedStep = Effect.fnUntraced(function*(
  state: SessionState,
  { mask, sampling, tokens }: Place & { readonly mask: Uint32Array }
) {
  const position = tokens.length - 1
  const { draw, prepared } = yield* state.programs.drawer
  const drawAt = yield* draw(sampling, "masked")
  state.ahead = undefined
  state.held = tokens.slice(0, position)
  state.forgotten = Rings.afterStep(state.ring, state.forgotten, { start: position, tokens: 1 })
  yield* state.device.write(state.decoded, bytesOf(Uint32Array.of(tokens[position]!)))
  yield* state.inputs.write([position])
  yield* prepared.run({ startPos: position })
  state.held = tokens
  yield* drawAt(tokens.length, mask)
  const id = wordOf(yield* settled(state, state.decoded))
  return yield* known(state, id, position)
})

/** The token of a step that was submitted before. */
const arrived = Effect.fnUntraced(function*(state: SessionState, running: Ahead) {
  while (running.pending.length < stepsAhead && running.position < state.context) yield* submit(state, running)
  // who is interrupted here and asks again gets the same token
  const id = yield* Effect.tapError(Fiber.join(running.pending[0]!), () =>
    Effect.sync(() => {
      // of the steps behind it nobody knows whether they ran
      state.ahead = undefined
      state.held = running.tokens.slice(0, -1)
    }))
  running.pending.shift()
  yield* known(state, id, running.tokens.length - 1)
  running.tokens.push(id)
  // every token whose step was submitted is in the cache, as far as it is known
  state.held = running.tokens.slice(0, running.position)
  return id
})

/** The token after these. */
export const next: (state: SessionState, place: Place) => Effect.Effect<number, StepError> = Effect.fnUntraced(
  function*(state, place) {
    const { mask, sampling, tokens } = place
    const error = invalid(state, tokens)
    if (error !== undefined) return yield* error
    if (mask !== undefined) {
      const isDecoding = tokens.length > 1 && reusable(state, tokens) === tokens.length - 1
      return yield* isDecoding && runsAhead(state, sampling)
        ? maskedStep(state, { ...place, mask })
        : drawn(state, place)
    }
    const running = state.ahead
    if (running !== undefined && isSame(running.tokens, tokens) && isSameSampling(running.sampling, sampling)) {
      return yield* arrived(state, running)
    }
    const first = yield* drawn(state, place)
    if (!runsAhead(state, sampling)) return first
    yield* state.device.write(state.decoded, bytesOf(Uint32Array.of(first)))
    state.ahead = { sampling, tokens: [...tokens, first], position: tokens.length, pending: [] }
    return first
  }
)
