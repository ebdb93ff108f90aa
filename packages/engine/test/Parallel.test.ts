import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Jit } from "@tg/jit/Jit"
import * as Models from "@tg/models/Models"
import { Device, DeviceError, type DeviceShape } from "@tg/runtime/Device"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { Context, Effect, Exit, Fiber, Layer, Scope, Stream } from "effect"
import type { Conversations } from "../src/Conversations.ts"
import * as Drafter from "../src/Drafter.ts"
import { fromModel as engineFrom, type Request } from "../src/Engine.ts"
import * as Parallel from "../src/Parallel.ts"
import { mostBytes } from "../src/MemoryPlan.ts"
import type * as Pool from "../src/Pool.ts"
import * as PoolMemory from "../src/PoolMemory.ts"
import * as Sampler from "../src/Sampler.ts"
import { fromModel } from "../src/Together.ts"
import { compilerOver, wasm, wasmWithin } from "./support/devices.ts"
import { asked, tiny, tinyCodec, tinySource } from "./support/models.ts"

const textOf = (tokens: ReadonlyArray<{ readonly text: string }>) => tokens.map((t) => t.text).join("")

/** A pool of one size, which has one program. */
const loaded = (options: Parallel.Options) =>
  fromModel(tinySource, tiny, { context: 192, conversations: 3, ...options })

/** The wasm device, which answers some turns after it has read, as one does that works on its own; it says what is written. */
const answeringLater = (written: (label: string) => void = () => {}) =>
  Layer.merge(
    compilerOver(Layer.effect(
      Device,
      Effect.map(WasmDevice.make(), (device: DeviceShape) =>
        Device.of({
          ...device,
          write: (buffer, ...rest) => Effect.suspend(() => (written(buffer.label), device.write(buffer, ...rest))),
          read: (...args) =>
            Effect.tap(device.read(...args), Effect.replicateEffect(Effect.yieldNow, 12, { discard: true }))
        }))
    )),
    Models.layer
  )

const answer = ({ generate }: Conversations["Service"], request: Request) =>
  Effect.gen(function*() {
    const { cachedTokens, tokens } = yield* generate(request)
    return { cachedTokens, tokens: yield* Stream.runCollect(tokens) }
  }).pipe(Effect.scoped)

const questions = ["What is 17 + 25?", "What is the capital of Peru?", "Spell the word apple.", "What is 3 + 4?"]
const greetings: ReadonlyArray<Request> = questions.map((question) => ({ tokens: asked(question) }))
const story = tinyCodec.encode("Once upon a time there was a dog in a house, and the dog was")
const sampling = { ...Sampler.greedy, temperature: 0.8 }
/** Longer than a batch has room for beside others, with a rest that is no batch. */
const long = Array.from({ length: 150 }, (_, i) => story[(i * i) % story.length]!)

/** Requests of all kinds, with the logarithms of probabilities, which tell a difference that the text does not. */
const kinds: ReadonlyArray<() => Request> = [
  () => ({ tokens: asked(questions[0]!), logprobs: 0 }),
  () => ({ tokens: story, sampling: { ...sampling, seed: 1 }, maxTokens: 12, logprobs: 2 }),
  () => ({ tokens: story, sampling: { ...sampling, seed: 2, topK: 20 }, maxTokens: 14, logprobs: 0 }),
  () => ({ tokens: asked(questions[1]!), stop: ["im"], logprobs: 0 }),
  () => ({ tokens: long, maxTokens: 5, logprobs: 3 }),
  () => ({ tokens: story.slice(0, 9), penalties: { repeat: 1.3 }, maxTokens: 10, logprobs: 0 }),
  () => ({
    tokens: asked(questions[2]!),
    maxTokens: 6,
    logprobs: 0,
    constraint: { mask: () => new Uint32Array(40).fill(0x5555ffff), accept: () => {}, isFinished: () => false }
  })
]

describe("conversations in one step, on wasm", () => {
  it.live("have the texts of an engine that answers one after the other", () =>
    Effect.gen(function*() {
      const engine = yield* engineFrom(tinySource, tiny, { context: 192 })
      const expected = yield* Effect.forEach(greetings, (request) =>
        Effect.andThen(engine.reset, Effect.map(Stream.runCollect(engine.generate(request)), textOf)))
      const pool = yield* loaded({ parallel: 3 })
      const many = Array.from({ length: 8 }, (_, i) =>
        i % greetings.length)
      const answers = yield* Effect.forEach(many, (i) => answer(pool, greetings[i]!), { concurrency: "unbounded" })
      assertEquals(answers.map(({ tokens }) => textOf(tokens)), many.map((i) => expected[i]!))
      assertEquals(yield* pool.status, { kept: 0, busy: 0, most: 3 })
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("have the probabilities that they have alone, to the bit, whatever is asked beside them", () =>
    Effect.gen(function*() {
      const alone = yield* Effect.scoped(Effect.gen(function*() {
        const pool = yield* loaded({ parallel: 1 })
        return yield* Effect.forEach(kinds, (kind) => answer(pool, kind()))
      }))
      const pool = yield* loaded({ parallel: 6 })
      const together = yield* Effect.forEach(kinds, (kind) => answer(pool, kind()), { concurrency: "unbounded" })
      assertEquals(together.map(({ tokens }) => tokens), alone.map(({ tokens }) => tokens))
      assert.isTrue(textOf(together[3]!.tokens).startsWith("L"))
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("have the logits that they have alone where their prompts share batches, to the bit", () =>
    Effect.gen(function*() {
      const prompts = [0, 7, 3].map((first, i) => [...long.slice(first, first + 64 + 9 * i), ...story.slice(0, 3 + i)])
      const [alone, shared] = yield* Effect.forEach([1, 3], (inBatch) =>
        Effect.gen(function*() {
          const options = { context: 192, conversations: 3, parallel: 6, inBatch }
          const { counts, join } = yield* Parallel.open(tinySource, tiny, options)
          const logits = Effect.forEach(
            prompts,
            (prompt) => Effect.flatMap(join, ({ advance }) => advance(prompt)),
            { concurrency: "unbounded" }
          )
          return { logits: yield* logits, steps: counts().steps }
        }).pipe(Effect.scoped))
      assertEquals(shared!.logits, alone!.logits)
      assert.isBelow(shared!.steps, alone!.steps)
    }).pipe(Effect.provide(wasm)))

  it.live("have the tokens that they have alone where the device draws, whatever it draws beside them", () =>
    Effect.gen(function*() {
      // without likelihoods, which come of logits on the host
      const requests = kinds.map((kind) => (): Request => ({ ...kind(), logprobs: undefined }))
      const idsOf = (options: Parallel.Options, concurrency: number) =>
        Effect.scoped(Effect.gen(function*() {
          const pool = yield* loaded(options)
          const answers = yield* Effect.forEach(requests, (request) => answer(pool, request()), { concurrency })
          return answers.map(({ tokens }) => tokens.map(({ id }) => id))
        }))
      assertEquals(
        yield* idsOf({ parallel: 6, draws: "device" }, 6),
        yield* idsOf({ parallel: 1, draws: "host" }, 1)
      )
    }).pipe(Effect.scoped, Effect.provide(answeringLater())))

  it.live("take steps ahead where the device draws, for which the host says no more than where tokens stand", () => {
    const written: Array<string> = []
    const texts = [{ tokens: story, settings: Sampler.greedy }, { tokens: story.slice(3), settings: sampling }]
    const writing = Effect.fnUntraced(function*({ join }: Parallel.Parallel, count: number) {
      const write = Effect.fnUntraced(function*({ settings, tokens }: (typeof texts)[number]) {
        const steps = yield* join
        const text = [...tokens]
        for (let i = 0; i < count; i++) text.push(yield* steps.next(text, settings))
        return text
      })
      return yield* Effect.forEach(texts, write, { concurrency: "unbounded" })
    }, Effect.scoped)
    return Effect.gen(function*() {
      const options = { context: 192, conversations: 3 }
      const pool = yield* Parallel.open(tinySource, tiny, { ...options, parallel: 6, draws: "device" })
      yield* writing(pool, 4)
      const before = pool.counts()
      written.length = 0
      // from page to page no further than the second one
      const ids = yield* writing(pool, 30)
      const { ahead, steps } = pool.counts()
      assert.isAtLeast(ahead - before.ahead, 27)
      const each = steps - before.steps
      const most: Readonly<Record<string, number>> = {
        ...{ position: each, row: each, from: each, rule: each },
        ...{ tokens: 4, pieces: 4, wanted: 2 }
      }
      const times = Map.groupBy(written, (label) => label)
      for (const [label, all] of times) assert.isAtMost(all.length, most[label] ?? 0, label)
      const alone = yield* Parallel.open(tinySource, tiny, { ...options, parallel: 1, draws: "host" })
      assertEquals(ids, yield* writing(alone, 30))
    }).pipe(Effect.scoped, Effect.provide(answeringLater((label) => written.push(label))))
  })

  it.live("give way where memory is short, and go on", () =>
    Effect.gen(function*() {
      const long = [0, 1, 2].map((i) => [...story, ...story.slice(0, 40), ...asked(questions[i]!)])
      const answers = yield* Effect.forEach([3, 1], (conversations) =>
        Effect.scoped(Effect.gen(function*() {
          const pool = yield* loaded({ parallel: 3, conversations })
          const all = yield* Effect.forEach(long, (tokens) =>
            answer(pool, {
              tokens,
              maxTokens: 40,
              bias: new Map([[tinyCodec.vocabulary.eog.values().next().value!, -99]])
            }), {
            concurrency: "unbounded"
          })
          return all.map(({ tokens }) => textOf(tokens))
        })))
      assertEquals(answers[1], answers[0])
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("one that is ended leaves the others alone, and its place is free at once", () =>
    Effect.gen(function*() {
      const pool = yield* loaded({ parallel: 2 })
      const own = yield* Scope.make()
      const ended = yield* pool.generate({ tokens: story, maxTokens: 100 }).pipe(Scope.provide(own))
      const reader = yield* Effect.forkChild(Stream.runDrain(ended.tokens))
      const other = yield* Effect.forkChild(answer(pool, greetings[0]!))
      const waiting = yield* Effect.forkChild(answer(pool, greetings[1]!))
      const interrupted = yield* Effect.forkChild(answer(pool, greetings[2]!))
      for (let i = 0; i < 20; i++) yield* Effect.yieldNow
      yield* Fiber.interrupt(interrupted)
      yield* Scope.close(own, Exit.void)
      yield* Fiber.await(reader)
      assert.strictEqual(textOf((yield* Fiber.join(other)).tokens), "17 + 25 = 42")
      assert.strictEqual(textOf((yield* Fiber.join(waiting)).tokens), "Lima")
      assert.strictEqual((yield* pool.status).busy, 0)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("begin with what others have computed", () =>
    Effect.gen(function*() {
      const pool = yield* loaded({ parallel: 2 })
      const first = yield* answer(pool, greetings[0]!)
      assert.strictEqual(first.cachedTokens, 0)
      const second = asked(questions[0]!, textOf(first.tokens), "And 30 + 12?")
      const next = yield* answer(pool, { tokens: second })
      assert.isAtLeast(next.cachedTokens, greetings[0]!.tokens.length)
      const fresh = yield* Effect.scoped(
        Effect.flatMap(loaded({ parallel: 1 }), (other) => answer(other, { tokens: second }))
      )
      assertEquals(next.tokens, fresh.tokens)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("what cannot be answered takes no place", () =>
    Effect.gen(function*() {
      const pool = yield* loaded({ parallel: 1 })
      const tagOf = (request: Request) => Effect.map(Effect.flip(answer(pool, request)), (error) => error._tag)
      assertEquals(
        [
          yield* tagOf({ tokens: [] }),
          yield* tagOf({ tokens: [5000] }),
          yield* tagOf({ tokens: Array.from({ length: 193 }, () => 65) }),
          yield* tagOf({ tokens: [1], stop: [""] })
        ],
        ["InvalidTokens", "InvalidTokens", "ContextFull", "InvalidRequest"]
      )
      assert.strictEqual((yield* pool.status).busy, 0)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("drafts change no text", () =>
    Effect.gen(function*() {
      const requests: ReadonlyArray<Request> = [
        { tokens: [...story, ...story, ...story.slice(0, 8)], maxTokens: 16 },
        { tokens: [...story, ...story.slice(0, 5)], sampling: { ...sampling, seed: 5 }, maxTokens: 12 }
      ]
      const ways = [["off", "host"], ["lookup", "host"], ["lookup", "device"]] as const
      const texts = yield* Effect.forEach(ways, ([name, draws]) =>
        Effect.scoped(Effect.gen(function*() {
          const pool = yield* loaded({ parallel: 6, draws })
          const all = yield* Effect.forEach(requests, (request) => answer(pool, request), { concurrency: "unbounded" })
          return all.map(({ tokens }) => ({ ids: tokens.map(({ id }) => id), drafts: tokens.at(-1)!.drafts }))
        })).pipe(Effect.provide(Drafter.layer(name))))
      const [without, ...drafted] = texts
      for (const text of drafted) {
        assertEquals(text.map(({ ids }) => ids), without!.map(({ ids }) => ids))
        assert.isAbove(text.reduce((n, { drafts }) => n + drafts!.drafted, 0), 0)
      }
    }).pipe(Effect.scoped, Effect.provide(answeringLater())))
})

describe("the memory of a pool", () => {
  const options = { parallel: 4, conversations: 4, context: 192 }
  const asked: Pool.PoolOptions = {
    activations: "int8-all",
    cache: "f16",
    context: 192,
    pages: 12,
    draws: "host",
    batch: { tokens: 128, rows: 1 },
    sizes: [],
    tokens: 64
  }
  const planned = Effect.gen(function*() {
    const { estimate } = yield* Jit
    const { profile } = yield* Device
    return yield* PoolMemory.memoryOf(tiny, { estimate, profile }, asked)
  }).pipe(Effect.provide(wasm), Effect.runSync)

  it.live("is what is planned", () =>
    Effect.gen(function*() {
      const pool = yield* fromModel(tinySource, tiny, { ...options, activations: "int8", prepare: ["last"] })
      yield* answer(pool, { tokens: long, maxTokens: 1 })
      const steady = mostBytes(planned) - planned.stagingBytes
      assert.closeTo((yield* Device).allocatedBytes() / steady, 1, 0.02)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("is what there is room for, and less than one conversation is refused", () =>
    Effect.gen(function*() {
      const page = planned.kvBytes / 12
      const within = (memory: number) =>
        Effect.scoped(Effect.gen(function*() {
          yield* fromModel(tinySource, tiny, { ...options, activations: "int8", prepare: ["last"] })
          return (yield* Device).allocatedBytes()
        })).pipe(Effect.provide(wasmWithin({ limits: { memory }, subgroups: true })))
      const all = mostBytes(planned)
      yield* within(all)
      yield* within(all - 4 * page)
      const error = yield* Effect.flip(within(all - 10 * page))
      assert.strictEqual(error._tag, "DoesNotFit")
    }))
})

const lost = Effect.fail(new DeviceError({ reason: "DeviceLost", message: "the device was lost; make a new one" }))

/** The wasm device, until so many reads were answered. */
const fragile = (reads: number) =>
  compilerOver(Layer.effect(
    Device,
    Effect.map(WasmDevice.make(), (device: DeviceShape) => {
      let left = reads
      return Device.of({
        ...device,
        write: (...args) => Effect.suspend(() => left < 0 ? lost : device.write(...args)),
        read: (...args) => Effect.suspend(() => left-- <= 0 ? lost : device.read(...args))
      })
    })
  ))

describe("a lost device", () => {
  it.live("is replaced once for all conversations, and their texts go on", () =>
    Effect.gen(function*() {
      let made = 0
      const lives = [6, 4]
      const rebuild = Effect.suspend(() => {
        made++
        return Layer.build(fragile(lives.shift() ?? Infinity))
      })
      const first = Context.pick(Device, Jit)(yield* rebuild)
      const pool = yield* loaded({ parallel: 2, rebuild }).pipe(Effect.provide(first))
      const answers = yield* Effect.forEach([0, 1, 0], (i) => answer(pool, greetings[i]!), { concurrency: "unbounded" })
      assertEquals(answers.map(({ tokens }) => textOf(tokens)), ["17 + 25 = 42", "Lima", "17 + 25 = 42"])
      assert.strictEqual(made, 3)
    }).pipe(Effect.scoped))
})
