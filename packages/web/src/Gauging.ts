/** How fast a model is on this device, and which kernels its time goes to. In the worker; fetched when it is asked for. */
import * as KernelTimes from "@tg/jit/KernelTimes"
import * as Profiler from "@tg/jit/Profiler"
import { Device } from "@tg/runtime/Device"
import { Clock, Effect, Stream } from "effect"
import { fromTagged, type ModelError } from "./ModelError.ts"
import type { Running } from "./Opening.ts"
import type { Gauged } from "./Protocol.ts"

/** Tokens of the text that speed is taken from; those in front of the step whose kernels are timed. */
const mostTokens = 64
const depth = 16

/** Tokens a second of a text, without its prompt: from the first token to the last. */
const speedOf = Effect.fnUntraced(function*(engine: Running["engine"]) {
  const tokens = engine.model.codec.encode("Once upon a time", { addSpecial: true })
  const times: Array<number> = []
  yield* Stream.runForEach(
    engine.generate({ tokens, maxTokens: mostTokens }),
    () => Effect.map(Clock.currentTimeNanos, (now) => void times.push(Number(now)))
  )
  return times.length < 2 ? 0 : 1e9 * (times.length - 1) / (times.at(-1)! - times[0]!)
})

/** Writes a text and times it, then times each kernel of a step behind it. */
export const gauge = (
  { engine, loaded, services }: Running
): Effect.Effect<Gauged, ModelError> =>
  Effect.gen(function*() {
    const { model, session } = engine
    const device = yield* Device
    const prompt = Array.from({ length: depth }, (_, i) => i % session.vocabulary)
    yield* engine.reset
    // programs that are compiled on the way are not counted
    yield* speedOf(engine)
    yield* engine.reset
    const tokensPerSecond = yield* speedOf(engine)
    yield* engine.reset
    yield* session.advance(prompt)
    const prepared = yield* session.decodeStep(depth)
    const vars = { T: 1, startPos: depth }
    const measured = yield* Profiler.profile(prepared, vars)
    const kernels = KernelTimes.rowsOf(measured, yield* prepared.schedule, { vars, profile: device.profile })
    yield* engine.reset
    const gauged: Gauged = {
      model: model.config.name,
      device: loaded.device,
      depth,
      tokensPerSecond,
      launches: prepared.dispatches.length,
      method: measured.method,
      stepMicros: measured.stepMicros,
      kernels
    }
    return gauged
  }).pipe(Effect.provide(services), Effect.mapError(fromTagged))
