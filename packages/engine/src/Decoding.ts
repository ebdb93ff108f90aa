/** Token after token: on the host from the logits of a step, or by the device, which then runs ahead. */
import { settled } from "@tg/jit/Jit"
import type { DeviceBuffer, Span, Work } from "@tg/runtime/Device"
import { Clock, Effect, Fiber } from "effect"
import { type Ahead, begin, isSame, isSameSampling, stepsNow, togetherOf } from "./Ahead.ts"
import * as Random from "./Random.ts"
import * as Rings from "./Rings.ts"
import * as Sampler from "./Sampler.ts"
import { drawsOnDevice, invalid, refuse, reusable, type SessionState, type StepError } from "./SessionState.ts"
import { masked } from "./Shaping.ts"
import * as Steps from "./Steps.ts"
import { bytesOf, wordOf } from "./Words.ts"

const wordBytes = 4
const nanosPerMilli = 1e6

/** A token to draw behind others. */
export interface Place {
  readonly tokens: ReadonlyArray<number>
  readonly sampling: Sampler.Settings
  /** One bit per token: those that may be drawn. */
  readonly mask?: Uint32Array | undefined
}

/** Compiles what `next` repeats. */
export const prepare = Effect.fnUntraced(function*(state: SessionState, sampling: Sampler.Settings) {
  const { decoder, drawer, few } = state.programs
  const start = state.held.length
  if (!drawsOnDevice(state, sampling)) yield* few(1, start)
  else if (Sampler.isGreedy(sampling)) yield* decoder(start)
  else yield* (yield* drawer(start)).draw(sampling, "all")
})

/** What the device does for a step that feeds the token which is there: it leaves the next one. */
type Step = (position: number, number: number) => ReadonlyArray<Work>

/** Makes the steps from a position on, so many, which one program computes. */
const stepOf = Effect.fnUntraced(function*(
  state: SessionState,
  { position, sampling }: Ahead,
  count: number
): Effect.fn.Return<Step, StepError> {
  const { decoder, drawer } = state.programs
  if (Sampler.isGreedy(sampling)) {
    const replay = yield* decoder(position)
    return (startPos) => [{ replay, vars: { startPos } }]
  }
  const { draw, prepared } = yield* drawer(position)
  const { begin, work } = yield* draw(sampling, "all")
  yield* begin(Array.from({ length: count }, (_, i) => position + i + 1))
  return (startPos, number) => [{ replay: prepared, vars: { startPos } }, work(number)]
})

/** Submits so many steps, each of which feeds the token on the device, and a read of each token that they leave there. */
const submit = Effect.fnUntraced(function*(state: SessionState, running: Ahead, count: number) {
  const { position } = running
  yield* state.inputs.reach(position + count)
  const step = yield* stepOf(state, running, count)
  const work: Array<Work> = []
  for (let i = 0; i < count; i++) {
    state.forgotten = Rings.afterStep(state.ring, state.forgotten, { start: position + i, tokens: 1 })
    work.push(...step(position + i, i), wordIn(state.decoded))
  }
  // the device computes one submission behind the other without a break, so the time between them is that of the steps
  const isBehind = running.pending.length > 0
  const reading = settled(state, work)
  const read = state.together === "auto"
    ? Effect.tap(reading, () => arrival(state, running, isBehind ? count : undefined))
    : reading
  running.position += count
  running.steps = count
  running.pending.push({ steps: count, read: yield* Effect.forkIn(read, state.scope, { startImmediately: true }) })
})

/** A word of a buffer, to be read. */
const wordIn = (buffer: DeviceBuffer): Span => ({ buffer, offset: 0, bytes: wordBytes })

/** Tokens have come back: of so many steps, if it is known when they began. How many steps are worth a submission depends on it. */
const arrival = ({ pace }: SessionState, running: Ahead, steps: number | undefined) =>
  Effect.map(Clock.currentTimeNanos, (nanos) => {
    const now = Number(nanos) / nanosPerMilli
    if (steps !== undefined && running.arrived !== undefined) pace.add(now - running.arrived, steps)
    running.arrived = now
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
  const { draw, prepared } = yield* state.programs.drawer(position)
  const { begin, work } = yield* draw(sampling, "masked")
  state.ahead = undefined
  state.held = tokens.slice(0, position)
  state.forgotten = Rings.afterStep(state.ring, state.forgotten, { start: position, tokens: 1 })
  yield* state.device.write(state.decoded, bytesOf(Uint32Array.of(tokens[position]!)))
  yield* state.inputs.reach(position + 1)
  yield* begin([tokens.length], mask)
  const step = [{ replay: prepared, vars: { startPos: position } }, work(0), wordIn(state.decoded)]
  const [bytes] = yield* settled(state, step)
  state.held = tokens
  return yield* known(state, wordOf(bytes!), position)
})

/** Steps that are worth a submission: single ones, where each would be one of its own. */
const stepsTogether = ({ device, pace, together: asked }: SessionState): number =>
  device.submit === undefined ? 1 : togetherOf(asked, pace.stepMillis)

/** The token of a step that was submitted before. */
const arrived = Effect.fnUntraced(function*(state: SessionState, running: Ahead) {
  const worth = stepsTogether(state)
  for (;;) {
    // behind a span another program goes on
    const { to } = state.programs.spanAt(running.position)
    const count = stepsNow(running, { room: to - running.position, together: worth })
    if (count === 0) break
    yield* submit(state, running, count)
  }
  if (running.ready.length === 0) {
    // who is interrupted here and asks again gets the same token
    const { read, steps } = running.pending[0]!
    const words = yield* Effect.tapError(Fiber.join(read), () =>
      Effect.sync(() => {
        // of the steps behind it nobody knows whether they ran
        state.ahead = undefined
        state.held = running.tokens.slice(0, -1)
      }))
    running.pending.shift()
    running.ready.push(...words.slice(0, steps).map(wordOf))
  }
  const id = running.ready[0]!
  yield* known(state, id, running.tokens.length - 1)
  running.ready.shift()
  running.tokens.push(id)
  // every token whose step was submitted is in the cache, as far as it is known
  state.held = running.tokens.slice(0, running.position)
  return id
})

/** The token after these. */
export const next: (state: SessionState, place: Place) => Effect.Effect<number, StepError> = Effect.fnUntraced(
  function*(state, place) {
    const { mask, sampling, tokens } = place
    const running = state.ahead
    // the usual case, in which nothing needs to be looked at again
    if (
      mask === undefined && running !== undefined && isSame(running.tokens, tokens) &&
      isSameSampling(running.sampling, sampling) && tokens.length <= state.context
    ) return yield* arrived(state, running)
    const error = invalid(state, tokens)
    if (error !== undefined) return yield* error
    if (mask !== undefined) {
      const isDecoding = tokens.length > 1 && reusable(state, tokens) === tokens.length - 1
      return yield* isDecoding && drawsOnDevice(state, sampling)
        ? maskedStep(state, { ...place, mask })
        : drawn(state, place)
    }
    const first = yield* drawn(state, place)
    if (!drawsOnDevice(state, sampling)) return first
    yield* state.device.write(state.decoded, bytesOf(Uint32Array.of(first)))
    state.ahead = begin(sampling, [...tokens, first])
    return first
  }
)
