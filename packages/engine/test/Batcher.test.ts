import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { DeviceError } from "@tg/runtime/Device"
import { Effect, Exit, Fiber, Result, Scope } from "effect"
import * as Batcher from "../src/Batcher.ts"
import * as Pages from "../src/Pages.ts"
import type * as Fair from "../src/Fair.ts"
import type * as Pool from "../src/Pool.ts"
import * as Sampler from "../src/Sampler.ts"
import * as Random from "../src/Random.ts"
import * as TokenRing from "../src/TokenRing.ts"

const vocabulary = 64
const context = 320

/** What follows a text, from nothing but the text. */
const following = (text: ReadonlyArray<number>): number =>
  text.reduce((hash, id) => (Math.imul(hash, 31) + id + 7) >>> 0, 1) % vocabulary

/**
 * What a conversation of a device without a model gives: it says what follows the text that its pages hold. A step runs when it is submitted,
 * and answers some turns later.
 */
const remembering = (
  pages: number,
  { fails = () => undefined, later = 1 }: {
    readonly fails?: (entry: Pool.Entry) => "lost" | "nan" | undefined
    readonly later?: number
  } = {}
) => {
  const memory = Array.from({ length: pages }, () => new Int32Array(Pages.pageTokens).fill(-1))
  const steps: Array<ReadonlyArray<number>> = []
  const drawn = new Map<number, ReadonlyArray<number>>()
  let submitted = 0
  /** The tokens of an entry, that of another step where it says so. */
  const tokensOf = ({ from, tokens }: Pool.Entry): ReadonlyArray<number> => {
    if (from === undefined) return tokens
    assert.isAtMost(submitted - from.step, TokenRing.mostAhead, "a step whose tokens are no longer there")
    return [Math.min(drawn.get(from.step)![from.row]!, vocabulary - 1)]
  }
  const run = Effect.fnUntraced(
    function*(
      entries: ReadonlyArray<Pool.Entry>,
      kind: Fair.Kind = "few"
    ): Effect.fn.Return<Pool.Flight, DeviceError> {
      // what is no number in a batch makes all of it none
      const spread = kind === "batch" ? entries.map(fails).find((failure) => failure === "nan") : undefined
      steps.push(entries.map(({ tokens }) => tokens.length))
      const written = new Set<number>()
      for (const entry of entries) {
        const { pages, start } = entry
        for (const [i, id] of tokensOf(entry).entries()) {
          const at = start + i
          const page = pages[Math.floor(at / Pages.pageTokens)]!
          const row = page * Pages.pageTokens + at % Pages.pageTokens
          assert.isFalse(written.has(row), "two conversations write one row")
          written.add(row)
          memory[page]![at % Pages.pageTokens] = id
        }
      }
      const rows: Array<number> = []
      const all: Array<number> = []
      const tokens: Array<number> = []
      for (const entry of entries) {
        const { draw, pages, rows: wanted, start, tokens: { length } } = entry
        const failure = spread ?? fails(entry)
        if (failure === "lost") return yield* new DeviceError({ reason: "DeviceLost", message: "lost" })
        const end = start + length
        const text = Array.from(
          { length: end },
          (_, at) => memory[pages[Math.floor(at / Pages.pageTokens)]!]![at % Pages.pageTokens]!
        )
        for (let row = end - wanted; row < end; row++) {
          const id = following(text.slice(0, row + 1))
          if (draw === undefined) {
            rows.push(...Array.from({ length: vocabulary }, (_, i) => failure === "nan" ? NaN : i === id ? 1 : 0))
          } else tokens.push(failure === "nan" ? vocabulary : id)
          all.push(draw === undefined ? 0 : tokens.at(-1)!)
        }
      }
      const step = submitted++
      drawn.set(step, all)
      const found = { logits: Float32Array.from(rows), tokens: Uint32Array.from(tokens) }
      return { step, found: Effect.as(Effect.replicateEffect(Effect.yieldNow, later, { discard: true }), found) }
    }
  )
  const pool: Batcher.Runs = {
    run: (entries) => run(entries),
    batch: (entries) => run(entries, "batch"),
    copy: (copies) => Effect.sync(() => copies.forEach(({ from, to }) => memory[to]!.set(memory[from]!))),
    clear: (cleared) => Effect.sync(() => cleared.forEach((page) => memory[page]!.fill(-1)))
  }
  return { pool, steps, memory }
}

const batcherOver = (
  pool: Batcher.Runs,
  pages: number,
  room: Fair.Room = { tokens: 32, chunk: 8 }
) => Batcher.make(pool, { context, pages: Pages.make(pages), room, vocabulary })

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
      const batch = { from: 24, tokens: 64, beside: 32, most: 1, positions: 256 }
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
        batch: (entries) => Effect.suspend(() => (kinds.push("batch"), pool.run(entries)))
      }
      const batch = { from: 24, tokens: 64, beside: 32, most: 1, positions: 256 }
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
      const { memory, pool } = remembering(11, { fails: ({ tokens }) => tokens.includes(63) ? "nan" : undefined })
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

  it.live("logits that are no numbers end one conversation of those whose prompts share a batch", () =>
    Effect.gen(function*() {
      const { pool, steps } = remembering(40, { fails: ({ tokens }) => tokens.includes(63) ? "nan" : undefined })
      const batch = { from: 24, tokens: 96, beside: 32, most: 3, positions: 256 }
      const batcher = yield* batcherOver(pool, 40, { tokens: 16, chunk: 8, batch })
      const prompts = [1, 2, 3].map((seed) => promptOf(seed, 30).map((id) => id === 63 ? 62 : id))
      const texts = yield* Effect.forEach(
        prompts.map((prompt, i) => i === 1 ? [63, ...prompt.slice(1)] : prompt),
        (prompt) => Effect.result(Effect.scoped(Effect.flatMap(batcher.join, (member) => write(member, prompt, 1)))),
        { concurrency: "unbounded" }
      )
      assertEquals(steps, [[30, 30, 30], [30], [30], [30]])
      assertEquals(
        texts.map((text): unknown => Result.isFailure(text) ? text.failure._tag : text.success),
        [expected(prompts[0]!, 1), "InvalidLogits", expected(prompts[2]!, 1)]
      )
    }).pipe(Effect.scoped))

  it.live("all hear of a lost device, those who wait for a later step too", () =>
    Effect.gen(function*() {
      const { pool } = remembering(40, { fails: () => "lost" })
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

  it.live("several tokens are those of several steps, whatever the others ask for", () =>
    Effect.gen(function*() {
      const { pool } = remembering(40, { later: 5 })
      const batcher = yield* batcherOver(pool, 40, { tokens: 3, chunk: 3 })
      const text = expected(promptOf(4, 9), 4)
      const several = Effect.flatMap(batcher.join, ({ tokens }) => tokens(text, 5, { sampling: Sampler.greedy }))
      const one = Effect.flatMap(batcher.join, (member) => draw(member, text, 6))
      const [ids, others] = yield* Effect.all([Effect.scoped(several), Effect.scoped(one)], { concurrency: 2 })
      assertEquals(ids, expected(text, 1).slice(-5))
      assertEquals(others, expected(text, 6))
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

/** So many tokens behind a text, all drawn by the device. */
const draw = Effect.fnUntraced(function*(member: Batcher.Member, prompt: ReadonlyArray<number>, count: number) {
  const text = [...prompt]
  while (text.length < prompt.length + count) text.push(yield* member.token([...text], { sampling: Sampler.greedy }))
  return text
})

describe("steps that are submitted before the tokens of those in front of them are known", () => {
  it.live("give the texts that they give one after the other, and the device waits for nobody", () =>
    Effect.gen(function*() {
      const { pool, steps } = remembering(40, { later: 9 })
      const batcher = yield* batcherOver(pool, 40)
      const prompts = [promptOf(1, 3), promptOf(2, 20), promptOf(3, 5)]
      const texts = yield* Effect.forEach(
        prompts,
        (prompt) => Effect.scoped(Effect.flatMap(batcher.join, (member) => draw(member, prompt, 30))),
        { concurrency: "unbounded" }
      )
      assertEquals(texts, prompts.map((prompt) => expected(prompt, 30)))
      const counts = batcher.counts()
      // but for the prompts, what follows them, and the ends
      assert.isAtLeast(counts.ahead, 26)
      assert.isAtMost(steps.length, 36)
      assert.isAtMost(counts.tokens - 28 - 3 * 29, 3 * (TokenRing.mostAhead + 2))
    }).pipe(Effect.scoped))

  it.live("more conversations than a step has room for take turns, and no step waits for the host", () =>
    Effect.gen(function*() {
      const { pool, steps } = remembering(40, { later: 9 })
      const batcher = yield* batcherOver(pool, 40, { tokens: 4, chunk: 4 })
      const prompts = Array.from({ length: 8 }, (_, i) => promptOf(i, 1))
      const texts = yield* Effect.forEach(
        prompts,
        (prompt) => Effect.scoped(Effect.flatMap(batcher.join, (member) => draw(member, prompt, 20))),
        { concurrency: "unbounded" }
      )
      assertEquals(texts, prompts.map((prompt) => expected(prompt, 20)))
      assert.isAtLeast(steps.filter(({ length }) => length === 4).length, 38)
      assert.isAtLeast(batcher.counts().ahead, 36)
    }).pipe(Effect.scoped))

  it.live("lose nothing where conversations come, end and give way at random moments, and some look at logits", () =>
    Effect.gen(function*() {
      const pages = Pages.pagesFor(context) + 3
      const { pool } = remembering(pages, { later: 5 })
      const batch = { from: 24, tokens: 64, beside: 32, most: 3, positions: 256 }
      const batcher = yield* batcherOver(pool, pages, { tokens: 16, chunk: 8, batch })
      const beginnings = [promptOf(1, 200), promptOf(2, 90), promptOf(3, 64)]
      yield* Effect.forEach(Array.from({ length: 300 }, (_, i) => i), (i) =>
        Effect.gen(function*() {
          const [a, b] = Random.words(i, 1)
          const prompt = [...beginnings[a % 3]!.slice(0, 1 + b % 200), ...promptOf(i, 1 + (a >>> 8) % 60)]
          const count = 1 + (b >>> 8) % 40
          const writing = Effect.scoped(Effect.gen(function*() {
            const member = yield* batcher.join
            if (i % 5 === 0) return yield* write(member, prompt, count)
            const text = yield* draw(member, prompt, count)
            if (i % 3 > 0) return text
            // goes back, as one does whose drafts were wrong, and on another way
            const other = [...text.slice(0, prompt.length), 7]
            return yield* Effect.as(
              Effect.flatMap(draw(member, other, 9), (found) =>
                Effect.sync(() => assertEquals(found, expected(other, 9)))),
              text
            )
          }))
          if (i % 7 !== 0) {
            return assertEquals(yield* writing, expected(prompt, count))
          }
          const fiber = yield* Effect.forkChild(writing)
          for (let n = 0; n < (a >>> 16) % 90; n++) {
            yield* Effect.yieldNow
          }
          yield* Fiber.interrupt(fiber)
        }), { concurrency: 4 })
      const { ahead, evicted } = batcher.counts()
      assert.isAbove(evicted, 0)
      assert.isAbove(ahead, 0)
    }).pipe(Effect.scoped))

  it.live("a text that goes back before what was drawn is drawn again, not read from the prompt", () =>
    Effect.gen(function*() {
      const batcher = yield* batcherOver(remembering(40, { later: 4 }).pool, 40)
      const prompt = promptOf(1, 6)
      yield* Effect.scoped(Effect.flatMap(batcher.join, (member) =>
        Effect.gen(function*() {
          yield* draw(member, prompt, 4)
          assertEquals(yield* draw(member, prompt.slice(0, 3), 2), expected(prompt.slice(0, 3), 2))
        })))
    }).pipe(Effect.scoped))

  it.live("what a step leaves is not shared once a later one replaces it", () =>
    Effect.gen(function*() {
      const batcher = yield* batcherOver(remembering(40, { later: 90 }).pool, 40, { tokens: 70, chunk: 70 })
      const submitted = Effect.fnUntraced(function*(steps: number) {
        while (batcher.counts().steps < steps) yield* Effect.yieldNow
      })
      const token = (member: Batcher.Member, text: ReadonlyArray<number>) =>
        Effect.forkChild(member.token(text, { sampling: Sampler.greedy }))
      const [a, b, c] = yield* Effect.all([batcher.join, batcher.join, batcher.join])
      const begun = promptOf(1, 100)
      const other = [...begun.slice(0, 3), ...promptOf(2, 62)]
      const dropped = yield* token(a, begun)
      yield* submitted(1)
      yield* Fiber.interrupt(dropped)
      const replaced = yield* token(a, other)
      yield* submitted(2)
      yield* token(c, [5])
      yield* submitted(3)
      // waits for the first step, while the second one is under way
      const text = [...begun.slice(0, 66), 9]
      assert.strictEqual(yield* Fiber.join(yield* token(b, text)), following(text))
      assert.strictEqual(yield* Fiber.join(replaced), following(other))
    }).pipe(Effect.scoped))

  it.live("logits that are no numbers end one conversation, and what stands behind them is nobody's", () =>
    Effect.gen(function*() {
      const bad = promptOf(1, 4)
      const at = bad.length + 5
      const { memory, pool } = remembering(11, {
        later: 6,
        fails: ({ draw, start }) => draw !== undefined && draw.sampling.seed === 1 && start >= at ? "nan" : undefined
      })
      const batcher = yield* batcherOver(pool, 11)
      const failing = Effect.scoped(Effect.gen(function*() {
        const member = yield* batcher.join
        const text = [...bad]
        for (;;) text.push(yield* member.token([...text], { sampling: { ...Sampler.greedy, temperature: 1, seed: 1 } }))
      }))
      const good = Effect.scoped(Effect.flatMap(batcher.join, (member) => draw(member, promptOf(2, 3), 30)))
      const [error, text] = yield* Effect.all([Effect.flip(failing), good], { concurrency: 2 })
      assert.strictEqual(error._tag === "InvalidLogits" && error.position, at)
      assertEquals(text, expected(promptOf(2, 3), 30))
      const own = bad.slice(0, 3)
      assert.isFalse(memory.some((page) => own.every((id, i) => page[i] === id)))
    }).pipe(Effect.scoped))

  it.live("all who wait hear of a lost device, whichever of the steps under way it was", () =>
    Effect.gen(function*() {
      let left = 12
      const { pool } = remembering(40, { later: 6, fails: () => left-- > 0 ? undefined : "lost" })
      const batcher = yield* batcherOver(pool, 40)
      const reasons = yield* Effect.forEach([1, 2, 3], (id) =>
        Effect.scoped(Effect.flatMap(batcher.join, (member) => Effect.flip(draw(member, [id], 99)))), {
        concurrency: "unbounded"
      })
      assertEquals(
        reasons.map((error) =>
          error._tag === "DeviceError" && error.reason
        ),
        Array(3).fill("DeviceLost")
      )
    }).pipe(Effect.scoped))
})
