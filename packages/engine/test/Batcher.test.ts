import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { DeviceError } from "@tg/runtime/Device"
import { Effect, Exit, Fiber, Scope } from "effect"
import * as Batcher from "../src/Batcher.ts"
import * as Pages from "../src/Pages.ts"
import type * as Fair from "../src/Fair.ts"
import type { Entry } from "../src/Pool.ts"
import * as Sampler from "../src/Sampler.ts"
import * as Random from "../src/Random.ts"

const vocabulary = 64
const context = 320

/** What follows a text, from nothing but the text. */
const following = (text: ReadonlyArray<number>): number =>
  text.reduce((hash, id) => (Math.imul(hash, 31) + id + 7) >>> 0, 1) % vocabulary

/** What a conversation of a device without a model gives: it says what follows the text that its pages hold. */
const remembering = (pages: number, fails: (entry: Entry) => "lost" | "nan" | undefined = () => undefined) => {
  const memory = Array.from({ length: pages }, () => new Int32Array(Pages.pageTokens).fill(-1))
  const steps: Array<ReadonlyArray<number>> = []
  const pool: Batcher.Runs = {
    batch: (entry) => Effect.suspend(() => pool.run([entry])),
    copy: (copies) => Effect.sync(() => copies.forEach(({ from, to }) => memory[to]!.set(memory[from]!))),
    clear: (cleared) => Effect.sync(() => cleared.forEach((page) => memory[page]!.fill(-1))),
    run: Effect.fnUntraced(function*(entries) {
      steps.push(entries.map(({ tokens }) => tokens.length))
      const written = new Set<number>()
      for (const { pages, start, tokens } of entries) {
        for (const [i, id] of tokens.entries()) {
          const at = start + i
          const page = pages[Math.floor(at / Pages.pageTokens)]!
          const row = page * Pages.pageTokens + at % Pages.pageTokens
          assert.isFalse(written.has(row), "two conversations write one row")
          written.add(row)
          memory[page]![at % Pages.pageTokens] = id
        }
      }
      const rows: Array<number> = []
      const drawn: Array<number> = []
      for (const entry of entries) {
        const { draw, pages, rows: wanted, start, tokens } = entry
        const failure = fails(entry)
        if (failure === "lost") return yield* new DeviceError({ reason: "DeviceLost", message: "lost" })
        const end = start + tokens.length
        const text = Array.from(
          { length: end },
          (_, at) => memory[pages[Math.floor(at / Pages.pageTokens)]!]![at % Pages.pageTokens]!
        )
        if (draw !== undefined) drawn.push(failure === "nan" ? vocabulary : following(text))
        for (let row = draw === undefined ? end - wanted : end; row < end; row++) {
          const id = following(text.slice(0, row + 1))
          rows.push(...Array.from({ length: vocabulary }, (_, i) => failure === "nan" ? NaN : i === id ? 1 : 0))
        }
      }
      // a device answers later
      yield* Effect.yieldNow
      return { logits: Float32Array.from(rows), tokens: Uint32Array.from(drawn) }
    })
  }
  return { pool, steps, memory }
}

const batcherOver = (
  pool: Batcher.Runs,
  pages: number,
  room: Fair.Room = { tokens: 32, chunk: 8 }
) => Batcher.make(pool, { pages: Pages.make(pages), room, vocabulary })

const likeliest = (row: Float32Array): number => row.indexOf(1)

/** So many tokens behind a text: every other one drawn by the device. */
const write = Effect.fnUntraced(function*(member: Batcher.Member, prompt: ReadonlyArray<number>, count: number) {
  const text = [...prompt]
  while (text.length < prompt.length + count) {
    const isDrawn = (prompt.length + text.length) % 2 === 1
    text.push(
      isDrawn
        ? yield* member.token([...text], { sampling: Sampler.greedy })
        : likeliest(yield* member.logits([...text]))
    )
  }
  return text
})

const expected = (prompt: ReadonlyArray<number>, count: number): ReadonlyArray<number> => {
  const text = [...prompt]
  while (text.length < prompt.length + count) text.push(following(text))
  return text
}

const promptOf = (seed: number, length: number): ReadonlyArray<number> =>
  Array.from({ length }, (_, i) => Random.words(seed, i)[0] % vocabulary)

describe("conversations in one step", () => {
  it.live("are computed together, each from its own text", () =>
    Effect.gen(function*() {
      const { pool, steps } = remembering(40)
      const batcher = yield* batcherOver(pool, 40)
      const prompts = [promptOf(1, 3), promptOf(2, 4), promptOf(3, 5)]
      const texts = yield* Effect.forEach(
        prompts,
        (prompt) => Effect.scoped(Effect.flatMap(batcher.join, (member) => write(member, prompt, 10))),
        { concurrency: "unbounded" }
      )
      assertEquals(texts, prompts.map((prompt) => expected(prompt, 10)))
      assertEquals(steps, [[3, 4, 5], ...Array.from({ length: 9 }, () => [1, 1, 1])])
    }).pipe(Effect.scoped))

  it.live("come and go at random moments, through few places and little memory, and nothing is lost", () =>
    Effect.gen(function*() {
      const pages = Pages.pagesFor(context) + 3
      const { pool } = remembering(pages)
      const batch = { from: 24, tokens: 64, beside: 32 }
      const batcher = yield* batcherOver(pool, pages, { tokens: 32, chunk: 8, batch })
      const beginnings = [promptOf(1, 200), promptOf(2, 90), promptOf(3, 64)]
      const begun = yield* Effect.forEach(Array.from({ length: 400 }, (_, i) => i), (i) =>
        Effect.gen(function*() {
          const [a, b] = Random.words(i, 0)
          // they share beginnings of any length
          const prompt = [...beginnings[a % 3]!.slice(0, 1 + b % 200), ...promptOf(i, 1 + (a >>> 8) % 60)]
          const writing = Effect.scoped(
            Effect.flatMap(batcher.join, (member) => write(member, prompt, 1 + (b >>> 8) % 20))
          )
          if (i % 7 !== 0) return assertEquals(yield* writing, expected(prompt, 1 + (b >>> 8) % 20))
          // one in seven is ended at any moment
          const fiber = yield* Effect.forkChild(writing)
          for (let n = 0; n < (a >>> 16) % 40; n++) yield* Effect.yieldNow
          yield* Fiber.interrupt(fiber)
        }), { concurrency: 4 })
      assert.lengthOf(begun, 400)
      assert.isAbove(batcher.counts().evicted, 0)
    }).pipe(Effect.scoped))

  it.live("begin with what others have, and share no page that they write", () =>
    Effect.gen(function*() {
      const { pool, steps } = remembering(40)
      const batcher = yield* batcherOver(pool, 40, { tokens: 256, chunk: 256 })
      const common = promptOf(5, 100)
      yield* Effect.scoped(Effect.flatMap(batcher.join, (member) => write(member, common, 1)))
      const prompts = [[...common, 1, 2], [...common, 3]]
      steps.length = 0
      const texts = yield* Effect.forEach(
        prompts,
        (prompt) =>
          Effect.scoped(Effect.gen(function*() {
            const member = yield* batcher.join
            assert.strictEqual(member.reusable(prompt), 100)
            return yield* write(member, prompt, 3)
          })),
        { concurrency: "unbounded" }
      )
      assertEquals(texts, prompts.map((prompt) => expected(prompt, 3)))
      assertEquals(steps[0], [2, 1])
    }).pipe(Effect.scoped))

  it.live("a long prompt does not hold up those who write", () =>
    Effect.gen(function*() {
      const { pool, steps } = remembering(40)
      const batcher = yield* batcherOver(pool, 40)
      yield* Effect.scoped(Effect.gen(function*() {
        const writer = yield* batcher.join
        const text = yield* Effect.forkChild(write(writer, [1], 40))
        const reader = yield* batcher.join
        assertEquals(yield* write(reader, promptOf(9, 100), 1), expected(promptOf(9, 100), 1))
        assertEquals(yield* Fiber.join(text), expected([1], 40))
      }))
      const both = steps.filter(({ length }) => length === 2)
      assert.isAtLeast(both.length, 12)
      assert.isTrue(both.every(([written, read]) => written === 1 && read! <= 8))
    }).pipe(Effect.scoped))

  it.live("a long prompt takes batches, in turns with those who write, and whole ones where nobody does", () =>
    Effect.gen(function*() {
      const { pool, steps } = remembering(40)
      const kinds: Array<Fair.Kind> = []
      const noting: Batcher.Runs = {
        ...pool,
        run: (entries) => Effect.suspend(() => (kinds.push("few"), pool.run(entries))),
        batch: (entry) => Effect.suspend(() => (kinds.push("batch"), pool.run([entry])))
      }
      const batch = { from: 24, tokens: 64, beside: 32 }
      const batcher = yield* batcherOver(noting, 40, { tokens: 16, chunk: 8, batch })
      yield* Effect.scoped(Effect.gen(function*() {
        const writer = yield* batcher.join
        const text = yield* Effect.forkChild(write(writer, [1], 12))
        const reader = yield* batcher.join
        assertEquals(yield* write(reader, promptOf(9, 100), 1), expected(promptOf(9, 100), 1))
        assertEquals(yield* Fiber.join(text), expected([1], 12))
      }))
      const at = kinds.indexOf("batch")
      assertEquals(kinds.slice(at, at + 7), ["batch", "few", "batch", "few", "batch", "few", "few"])
      assertEquals(steps.filter((_, i) => kinds[i] === "batch"), [[32], [32], [32]])
      kinds.length = 0
      steps.length = 0
      yield* Effect.scoped(Effect.flatMap(batcher.join, (member) => write(member, promptOf(11, 100), 2)))
      assertEquals(steps, [[64], [32], [4], [1]])
      assertEquals(kinds, ["batch", "batch", "few", "few"])
    }).pipe(Effect.scoped))

  it.live("logits that are no numbers end one conversation, and leave nothing behind", () =>
    Effect.gen(function*() {
      const { memory, pool } = remembering(11, ({ tokens }) => tokens.includes(63) ? "nan" : undefined)
      const batcher = yield* batcherOver(pool, 11)
      const [bad, drawn, good] = yield* Effect.all([
        Effect.flip(Effect.scoped(Effect.flatMap(batcher.join, (member) => member.logits([1, 63])))),
        Effect.flip(Effect.scoped(
          Effect.flatMap(batcher.join, (member) => member.token([3, 63], { sampling: Sampler.greedy }))
        )),
        Effect.scoped(Effect.flatMap(batcher.join, (member) => write(member, [1, 2], 1)))
      ], { concurrency: 3 })
      assertEquals([bad._tag, drawn._tag], ["InvalidLogits", "InvalidLogits"])
      assertEquals(good, expected([1, 2], 1))
      for (let i = 0; i < 4; i++) yield* Effect.yieldNow
      assert.isFalse(memory.some((page) => page.includes(63)))
    }).pipe(Effect.scoped))

  it.live("all hear of a lost device, those who wait for a later step too", () =>
    Effect.gen(function*() {
      const { pool } = remembering(40, () => "lost")
      const batcher = yield* batcherOver(pool, 40, { tokens: 2, chunk: 2 })
      const tags = yield* Effect.forEach([1, 2, 3, 4], (id) =>
        Effect.scoped(Effect.flatMap(batcher.join, (member) => Effect.flip(member.logits([id])))), {
        concurrency: "unbounded"
      })
      assertEquals(
        tags.map((error) =>
          error._tag === "DeviceError" && error.reason
        ),
        Array(4).fill("DeviceLost")
      )
    }).pipe(Effect.scoped))

  it.live("whoever waits is told when the steps end", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const batcher = yield* batcherOver({ ...remembering(40).pool, run: () => Effect.never }, 40).pipe(
        Scope.provide(scope)
      )
      const waiting = yield* Effect.forkChild(
        Effect.scoped(Effect.flatMap(batcher.join, (member) => member.logits([1])))
      )
      for (let i = 0; i < 8; i++) yield* Effect.yieldNow
      yield* Scope.close(scope, Exit.void)
      assert.isTrue(Exit.hasInterrupts(yield* Fiber.await(waiting)))
    }).pipe(Effect.scoped))

  it.live("several rows are those of several steps", () =>
    Effect.gen(function*() {
      const { pool } = remembering(40)
      const batcher = yield* batcherOver(pool, 40, { tokens: 3, chunk: 3 })
      const text = promptOf(4, 9)
      const rows = yield* Effect.scoped(Effect.flatMap(batcher.join, (member) => member.logits(text, 5)))
      const found = Array.from({ length: 5 }, (_, i) => likeliest(rows.subarray(i * vocabulary, (i + 1) * vocabulary)))
      assertEquals(found, [5, 6, 7, 8, 9].map((end) => following(text.slice(0, end))))
    }).pipe(Effect.scoped))
})
