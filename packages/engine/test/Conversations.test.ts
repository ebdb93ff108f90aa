import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import type { ByteSource } from "@tg/gguf/ByteSource"
import { Jit } from "@tg/jit/Jit"
import { Device, DeviceError, type DeviceShape } from "@tg/runtime/Device"
import * as WasmDevice from "@tg/runtime-wasm/WasmDevice"
import { Context, Deferred, Effect, Exit, Fiber, FileSystem, Layer, Scope, Stream } from "effect"
import { type Conversations, fromModel, type Options } from "../src/Conversations.ts"
import { fromModel as engineFrom, type Request } from "../src/Engine.ts"
import * as PrefixFiles from "../src/PrefixFiles.ts"
import * as Sampler from "../src/Sampler.ts"
import { compilerOver, wasm } from "./support/devices.ts"
import { asked, tiny, tinyCodec, tinySource } from "./support/models.ts"

const textOf = (tokens: ReadonlyArray<{ readonly text: string }>) => tokens.map((t) => t.text).join("")

const loaded = (options: Options = {}) => fromModel(tinySource, tiny, { context: 192, ...options })

/** The whole answer, and how many tokens were there. */
const answer = ({ generate }: Conversations["Service"], request: Request) =>
  Effect.gen(function*() {
    const { cachedTokens, tokens } = yield* generate(request)
    return { cachedTokens, tokens: yield* Stream.runCollect(tokens) }
  }).pipe(Effect.scoped)

const questions = ["What is 17 + 25?", "What is the capital of Peru?", "Spell the word apple.", "What is 3 + 4?"]

describe("conversations", () => {
  it.live("answers at the same time as one after the other, none mixed up", () =>
    Effect.gen(function*() {
      const alone = yield* Effect.scoped(Effect.gen(function*() {
        const engine = yield* engineFrom(tinySource, tiny, { context: 192 })
        return yield* Effect.forEach(questions, (question) =>
          Effect.andThen(engine.reset, Stream.runCollect(engine.generate({ tokens: asked(question) }))))
      }))
      const pool = yield* loaded({ conversations: 3 })
      const many = Array.from({ length: 12 }, (_, i) =>
        i % questions.length)
      const answers = yield* Effect.forEach(
        many,
        (i) => answer(pool, { tokens: asked(questions[i]!) }),
        { concurrency: "unbounded" }
      )
      assertEquals(answers.map(({ tokens }) => textOf(tokens)), many.map((i) => textOf(alone[i]!)))
      assertEquals(yield* pool.status, { kept: 3, busy: 0, most: 3 })
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live(
    "goes on with the conversation that a request shares most with, and copies what another one needs",
    () =>
      Effect.gen(function*() {
        const pool = yield* loaded({ conversations: 3 })
        const first = yield* answer(pool, { tokens: asked(questions[0]!) })
        assert.strictEqual(first.cachedTokens, 0)
        yield* answer(pool, { tokens: asked(questions[1]!) })
        const second = asked(questions[0]!, textOf(first.tokens), "And 30 + 12?")
        const next = yield* answer(pool, { tokens: second })
        // all of the first turn but what the template puts around the answer
        assert.isAtLeast(next.cachedTokens, asked(questions[0]!).length)
        const fresh = yield* Effect.scoped(Effect.gen(function*() {
          const engine = yield* engineFrom(tinySource, tiny, { context: 192 })
          return yield* Stream.runCollect(engine.generate({ tokens: second }))
        }))
        assert.strictEqual(textOf(next.tokens), textOf(fresh))
        // the long conversation is still there after one that shares its beginning
        const long = Array.from({ length: 120 }, (_, i) => 300 + i % 90)
        yield* answer(pool, { tokens: long, maxTokens: 1 })
        const branch = [...long.slice(0, 40), 77, 78]
        assert.strictEqual((yield* answer(pool, { tokens: branch, maxTokens: 4 })).cachedTokens, 40)
        assert.strictEqual((yield* answer(pool, { tokens: long, maxTokens: 1 })).cachedTokens, 119)
      }).pipe(Effect.scoped, Effect.provide(wasm))
  )

  it.live("a copied prefix gives the tokens of one that was computed", () =>
    Effect.gen(function*() {
      const pool = yield* loaded({ conversations: 2 })
      const sampling = { ...Sampler.greedy, temperature: 0.8, seed: 3 }
      const tokens = tinyCodec.encode("Once upon a time there was a dog in a house, and the dog was")
      const expected = yield* answer(pool, { tokens, maxTokens: 12, sampling })
      yield* Effect.scoped(Effect.gen(function*() {
        // busy, so that the next one has to copy
        const holding = yield* pool.generate({ tokens: [...tokens.slice(0, -1), ...tokens.slice(0, 40)], maxTokens: 1 })
        yield* Stream.runDrain(holding.tokens)
        const copied = yield* answer(pool, { tokens, maxTokens: 12, sampling })
        assert.strictEqual(copied.cachedTokens, tokens.length - 1)
        assertEquals(copied.tokens, expected.tokens)
      }))
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("a closed Scope ends the generation, and its place is free at once", () =>
    Effect.gen(function*() {
      const pool = yield* loaded({ conversations: 1 })
      const own = yield* Scope.make()
      const { tokens } = yield* pool.generate({ tokens: asked(questions[1]!) }).pipe(Scope.provide(own))
      const seen = yield* Deferred.make<void>()
      let count = 0
      const reader = yield* Effect.forkChild(
        Stream.runForEach(tokens, () => Effect.andThen(Deferred.succeed(seen, undefined), Effect.sync(() => count++)))
      )
      yield* Deferred.await(seen)
      yield* Scope.close(own, Exit.void)
      const before = count
      // it waits for the only place, which it gets
      assert.strictEqual(textOf((yield* answer(pool, { tokens: asked(questions[0]!) })).tokens), "17 + 25 = 42")
      assert.isAtMost(count - before, 1)
      yield* Fiber.await(reader)
      assert.strictEqual((yield* pool.status).busy, 0)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("a request that cannot be answered takes no place", () =>
    Effect.gen(function*() {
      const pool = yield* loaded({ conversations: 1 })
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

  it.live("a request that is interrupted while it waits takes no place", () =>
    Effect.gen(function*() {
      const pool = yield* loaded({ conversations: 1 })
      yield* Effect.scoped(Effect.gen(function*() {
        yield* pool.generate({ tokens: asked(questions[1]!) })
        const waiting = yield* Effect.forkChild(answer(pool, { tokens: asked(questions[0]!) }))
        yield* Effect.sleep("20 millis")
        yield* Fiber.interrupt(waiting)
      }))
      assert.strictEqual(textOf((yield* answer(pool, { tokens: asked(questions[0]!) })).tokens), "17 + 25 = 42")
    }).pipe(Effect.scoped, Effect.provide(wasm)))
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
      const lives = [9, 8]
      const rebuild = Effect.suspend(() => {
        made++
        return Layer.build(fragile(lives.shift() ?? Infinity))
      })
      const first = Context.pick(Device, Jit)(yield* rebuild)
      const pool = yield* loaded({ conversations: 2, rebuild }).pipe(Effect.provide(first))
      const answers = yield* Effect.forEach(
        [0, 1, 0],
        (i) => answer(pool, { tokens: asked(questions[i]!) }),
        { concurrency: "unbounded" }
      )
      assertEquals(answers.map(({ tokens }) => textOf(tokens)), ["17 + 25 = 42", "Lima", "17 + 25 = 42"])
      assert.strictEqual(made, 3)
    }).pipe(Effect.scoped))
})

const onDisk = <A, E>(
  directory: string,
  use: (pool: Conversations["Service"]) => Effect.Effect<A, E, Scope.Scope>,
  options: Partial<PrefixFiles.Options> & { readonly source?: ByteSource["Service"] } = {}
) =>
  Effect.gen(function*() {
    return yield* use(yield* fromModel(options.source ?? tinySource, tiny, { context: 192, conversations: 2 }))
  }).pipe(
    Effect.scoped,
    Effect.provide([wasm, PrefixFiles.layer({ directory, version: "1", ...options })])
  )

describe("prefixes on disk", () => {
  it.live("are found after a restart, and give the same tokens", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      const request = { tokens: asked(questions[0]!) }
      const before = yield* onDisk(directory, (pool) => answer(pool, request))
      assert.strictEqual(before.cachedTokens, 0)
      const files = yield* fs.readDirectory(directory)
      assert.strictEqual(files.length, 1)
      const after = yield* onDisk(directory, (pool) => answer(pool, request))
      assert.strictEqual(after.cachedTokens, request.tokens.length - 1)
      assertEquals(after.tokens, before.tokens)
      // nothing of it was new
      assertEquals(yield* fs.readDirectory(directory), files)
      // another version, and another model, do not find it
      assert.strictEqual((yield* onDisk(directory, (pool) => answer(pool, request), { version: "2" })).cachedTokens, 0)
      const other = {
        ...tinySource,
        read: (offset: number, length: number) =>
          Effect.map(tinySource.read(offset, length), (bytes) => offset === 0 ? bytes.map((byte) => byte ^ 1) : bytes)
      }
      assert.strictEqual((yield* onDisk(directory, (pool) => answer(pool, request), { source: other })).cachedTokens, 0)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)))

  it.live("that are damaged are removed and computed again", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const request = { tokens: asked(questions[0]!) }
      for (const where of [3, 90, -1]) {
        const directory = yield* fs.makeTempDirectoryScoped()
        const before = yield* onDisk(directory, (pool) => answer(pool, request))
        const [name] = yield* fs.readDirectory(directory)
        const file = `${directory}/${name}`
        const bytes = yield* fs.readFile(file)
        bytes[where < 0 ? bytes.length - 1 : where]! ^= 4
        yield* fs.writeFile(file, bytes)
        const problems: Array<string> = []
        const after = yield* onDisk(directory, (pool) => answer(pool, request), {
          onProblem: ({ message }) => Effect.sync(() => problems.push(message))
        })
        assertEquals([after.cachedTokens, problems.length], [0, 1])
        assert.include(problems[0], "no whole prefix")
        assertEquals(after.tokens, before.tokens)
        // it was written again
        assert.strictEqual(
          (yield* onDisk(directory, (pool) => answer(pool, request))).cachedTokens,
          request.tokens.length - 1
        )
      }
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)))

  it.live("take no more room than they may, and those unused for longest go first", () =>
    Effect.gen(function*() {
      const fs = yield* FileSystem.FileSystem
      const directory = yield* fs.makeTempDirectoryScoped()
      const all = questions.slice(0, 3).map((question) => ({ tokens: asked(question), maxTokens: 2 }))
      const size = yield* onDisk(directory, (pool) =>
        Effect.gen(function*() {
          yield* answer(pool, all[0]!)
          while ((yield* fs.readDirectory(directory)).every((name) => !name.endsWith(".tgprefix"))) {
            yield* Effect.sleep(5)
          }
          const [name] = yield* fs.readDirectory(directory)
          return Number((yield* fs.stat(`${directory}/${name}`)).size)
        }))
      yield* onDisk(directory, (pool) => Effect.forEach(all, (request) => answer(pool, request)), {
        maxBytes: 2.5 * size
      })
      assert.strictEqual((yield* fs.readDirectory(directory)).length, 2)
      const cached = yield* onDisk(directory, (pool) => Effect.forEach(all.toReversed(), (each) => answer(pool, each)))
      assertEquals(cached.map(({ cachedTokens }) => cachedTokens > 8), [true, true, false])
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)))
})
