/** The worker's side: the engine, and what the page may ask of it. */
import type { DeviceError } from "@tg/runtime/Device"
import { Context, Effect, Fiber, Queue, Scope, Semaphore, Stream } from "effect"
import { choices } from "./Choices.ts"
import * as Devices from "./Devices.ts"
import * as Keeping from "./Keeping.ts"
import { fromTagged, ModelError } from "./ModelError.ts"
import * as Opening from "./Opening.ts"
import type { Part } from "./internal/messages.ts"
import type { OpenOptions, Requests } from "./Protocol.ts"
import * as Replying from "./Replying.ts"

const notOpen = new ModelError({
  reason: "NotOpen",
  message: "the worker has no model; it was restarted, so open the model again"
})

const nothingSeen = new ModelError({
  reason: "InvalidRequest",
  message: "the worker was told of no model; say which one to open"
})

const alreadyOpen = new ModelError({
  reason: "InvalidRequest",
  message: "the worker has a model; start another worker"
})

/** What answers the page's requests. */
export type Handlers = {
  readonly [K in keyof Requests]: (
    payload: Requests[K]["payload"]
  ) => Requests[K]["kind"] extends "many" ? Stream.Stream<Part<Requests[K]["answer"]>, ModelError>
    : Effect.Effect<Requests[K]["answer"], ModelError>
}

/** Each value of a stream goes to the page by itself. */
const apart = <A, E>(stream: Stream.Stream<A, E>): Stream.Stream<Part<A>, E> =>
  Stream.map(stream, (value) => ({ values: [value], isLast: false }))

/** Answers the page's requests. The model goes when the scope closes. */
export const handlers = Effect.gen(function*() {
  const scope = yield* Effect.scope
  let seen: Opening.Header | undefined
  let opened: Opening.Running | undefined
  const devices = new Map<string, Effect.Effect<Context.Context<Devices.Services>, DeviceError>>()
  /** The device of these options, started once: who looks at a model may open it next. */
  const deviceOf = Effect.fnUntraced(function*({ device, threads }: typeof OpenOptions.Type) {
    const key = `${device} ${threads}`
    const known = devices.get(key)
    if (known !== undefined) return yield* known
    const starting = yield* Effect.forkIn(Scope.provide(Opening.device({ device, threads }), scope), scope, {
      startImmediately: true
    })
    devices.set(key, Fiber.join(starting))
    return yield* Fiber.join(starting)
  })
  const early = choices.find((choice) => globalThis.name === `tg ${choice}`)
  if (early !== undefined) yield* Effect.forkIn(deviceOf({ device: early }), scope, { startImmediately: true })
  const turns = yield* Semaphore.make(1)
  /** A model has one conversation in its cache: the next answer waits until this one has ended. */
  const turn = Effect.acquireRelease(turns.take(1), () => turns.release(1), { interruptible: true })
  const running = Effect.suspend(() => opened === undefined ? Effect.fail(notOpen) : Effect.succeed(opened))
  const inTurn = <A, E>(
    answer: (model: Opening.Running) => Effect.Effect<Stream.Stream<A, ModelError>, E>
  ) => Stream.unwrap(Effect.flatMap(running, (model) => Effect.andThen(turn, answer(model))))
  const handlers: Handlers = {
    Look: ({ memory, options, source }) =>
      Effect.gen(function*() {
        const [services, header] = yield* Effect.all([deviceOf(options), Opening.header(source)], { concurrency: 2 })
        seen = header
        const facts = Opening.facts(seen, Context.get(services, Devices.Chosen))
        if (!memory) return facts
        return { ...facts, memory: yield* Effect.provide(Opening.memory(seen, options.context), services) }
      }).pipe(Effect.mapError(fromTagged)),
    Open: ({ options, source }) =>
      apart(Stream.callback<Opening.Event, ModelError>((queue) =>
        Effect.gen(function*() {
          if (opened !== undefined) return yield* alreadyOpen
          const say = (event: Opening.Event) => Queue.offer(queue, event)
          const known = source === undefined ? seen ?? (yield* nothingSeen) : undefined
          const [services, header] = yield* Effect.all([
            deviceOf(options),
            known === undefined ? Opening.header(source!) : Effect.succeed(known)
          ], { concurrency: 2 }).pipe(Effect.mapError(fromTagged))
          opened = yield* Opening.load(header, { options, services, say }).pipe(
            Scope.provide(scope),
            Effect.mapError(fromTagged)
          )
          yield* say(opened.loaded)
          yield* Queue.end(queue)
        })
      )),
    Chat: ({ messages, options }) => inTurn((model) => Replying.chat(model, messages, options)),
    Reply: ({ messages, options }) => inTurn((model) => Replying.reply(model, messages, options)),
    Generate: ({ options, prompt }) => inTurn((model) => Replying.text(model, prompt, options)),
    SelfTest: ({ families, options, vectors }) =>
      apart(Stream.unwrap(
        Effect.map(Effect.promise(() => import("./Testing.ts")), ({ run }) => run(options, vectors, families))
      )),
    Verdict: ({ options }) => Effect.flatMap(Effect.promise(() => import("./Testing.ts")), ({ last }) => last(options)),
    Gauge: () =>
      Effect.gen(function*() {
        const model = yield* running
        yield* turn
        const { gauge } = yield* Effect.promise(() => import("./Gauging.ts"))
        return yield* gauge(model)
      }).pipe(Effect.scoped),
    Keep: ({ name }) => apart(Keeping.keep(name)),
    Kept: () => Keeping.kept,
    Forget: ({ name }) => Keeping.forget(name),
    Cached: () => Effect.flatMap(running, ({ engine }) => Effect.map(engine.cached, (tokens) => tokens.length))
  }
  return handlers
})
