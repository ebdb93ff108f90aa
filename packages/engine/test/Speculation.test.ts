/** Drafts change no text. TG_FULL=1 tries 300 prompts. */
import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { fromBytes } from "@tg/gguf/ByteSource"
import * as Gguf from "@tg/gguf/Gguf"
import { known } from "@tg/models/Models"
import { Effect, Result, Stream } from "effect"
import * as Conversations from "../src/Conversations.ts"
import * as DraftLength from "../src/DraftLength.ts"
import * as Drafter from "../src/Drafter.ts"
import { type Constraint, fromModel, type Request } from "../src/Engine.ts"
import * as Lookup from "../src/Lookup.ts"
import * as ModelFile from "../src/ModelFile.ts"
import type { Drafts } from "../src/Speculation.ts"
import { onItsOwn, seeingReads, wasm } from "./support/devices.ts"
import { asked, tiny, tinyCodec, tinySource } from "./support/models.ts"

describe("lookup", () => {
  it("proposes what stood behind the longest run of last tokens", () => {
    assertEquals(Lookup.propose([1, 2, 3, 4, 5, 6, 1, 2, 3, 4], 3), [5, 6, 1])
    // two places: the longer run before the later one
    assertEquals(Lookup.propose([9, 1, 2, 3, 4, 7, 3, 4, 8, 9, 1, 2, 3, 4], 1), [7])
    assertEquals(Lookup.propose([1, 2, 7, 1, 2, 8, 1, 2], 2), [8, 1])
  })
  it("goes on repeating what repeats", () => {
    assertEquals(Lookup.propose([5, 1, 2, 1, 2], 5), [1, 2, 1, 2, 1])
    assertEquals(Lookup.propose([3, 3, 3], 3), [3, 3, 3])
  })
  it("goes on behind a token that replaces another", () => {
    assertEquals(Lookup.propose([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 70], 2), [8, 9])
    assertEquals(Lookup.propose([1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 70], 2), [])
  })
  it("proposes nothing where nothing repeats", () => {
    assertEquals(Lookup.propose([1, 2, 3, 4], 5), [])
    assertEquals(Lookup.propose([1, 2, 3, 2], 5), [])
    assertEquals(Lookup.propose([], 5), [])
  })
})

describe("the length of drafts", () => {
  type Became = readonly [right: number, tried: number]
  const after = (...drafts: ReadonlyArray<Became>) => {
    const acceptance = DraftLength.acceptance()
    for (const [right, tried] of drafts) DraftLength.accepted(acceptance, { right, tried })
    return acceptance
  }
  const costs = (...several: ReadonlyArray<readonly [tokens: number, time: number]>) => {
    const made = DraftLength.costs()
    DraftLength.took(made, 1, 10)
    for (const [tokens, time] of several) DraftLength.took(made, tokens, time)
    return made
  }
  const payingLength = (acceptance: DraftLength.Acceptance, known: DraftLength.Costs, most: number) =>
    DraftLength.paying(acceptance, known, { most }).drafts
  it("grows with what was right, and shrinks with what was wrong", () => {
    const lengthOf = (...drafts: ReadonlyArray<Became>) => DraftLength.likelyLength(after(...drafts), 15)
    assert.isAbove(lengthOf([2, 2]), lengthOf())
    assert.strictEqual(lengthOf([15, 15], [15, 15]), 15)
    assert.strictEqual(lengthOf([0, 1], [0, 1], [0, 1]), 1)
  })
  it("costs are measured, in proportion between them, and half of it behind them", () => {
    const known = costs([5, 20], [9, 60])
    assertEquals([1, 3, 5, 7, 9, 13].map((n) => DraftLength.costOf(known, n)), [1, 1.5, 2, 4, 6, 8])
  })
  it("is what pays: long where several tokens cost one, none where each costs as much", () => {
    const good = after([10, 10])
    assert.strictEqual(payingLength(good, costs([16, 11]), 15), 15)
    assert.strictEqual(payingLength(good, costs([2, 20], [16, 160]), 15), 0)
    assert.strictEqual(payingLength(after([0, 1], [0, 1], [0, 1], [0, 1], [0, 1]), costs([2, 15]), 15), 0)
    // the H200 with tiles: few tokens cost as much as many
    assert.isAbove(payingLength(after([15, 15], [15, 15]), costs([2, 40], [16, 42]), 15), 8)
  })
  it("is tried again after many refusals", () => {
    const slow = costs([2, 1000])
    const good = after([10, 10])
    assert.strictEqual(payingLength(good, slow, 15), 0)
    for (let i = 0; i < 1000; i++) DraftLength.fade(slow)
    assert.isAbove(payingLength(good, slow, 15), 0)
  })
})

const topics = ["apples", "the sea", "a red house", "stones", "two cats", "winter", "bread", "an old map"]
const topic = (i: number): string => topics[i % topics.length]!

/** Questions of several kinds, of which some make the model repeat what it was told. */
const questionOf = (i: number): string =>
  [
    `What is ${17 + i} + ${25 + 3 * i}?`,
    `Tell me about ${topic(i)}.`,
    `Repeat these digits: ${Array.from({ length: 12 }, (_, k) => (i * 7 + k * k) % 10).join(" ")}`,
    `Sort ${200 + i}, ${180 - i}, ${822 + i}.`,
    `Repeat this: ${topic(i)}, ${topic(i + 3)}, ${topic(i)}.`
  ][i % 5]!

/** Every second token of the vocabulary, and the ends. */
const evenTokens = (): Constraint => {
  const mask = Uint32Array.from({ length: Math.ceil(tiny.config.vocabulary / 32) }, () => 0x55555555)
  for (const id of tinyCodec.vocabulary.eog) mask[id >>> 5]! |= 1 << (id & 31)
  return { mask: () => mask, accept: () => {}, isFinished: () => false }
}

/** Draws at temperature 0.8, in every fourth request with a constraint, penalties, or a stop string and likelihoods. */
const requestOf = (i: number): Request => ({
  tokens: asked(questionOf(i)),
  maxTokens: 24,
  sampling: { temperature: 0.8, topK: i % 3 === 0 ? 40 : 0, topP: i % 2 === 0 ? 1 : 0.95, minP: 0, seed: 1000 + i },
  ...[
    {},
    { constraint: evenTokens() },
    { penalties: { repeat: 1.2, frequency: 0.3 } },
    { stop: ["a", "8"], logprobs: 2 }
  ][i % 4]
})

const engine = (drafter: Drafter.Drafting | undefined) =>
  fromModel(tinySource, tiny, { context: 256 }).pipe(Effect.provideService(Drafter.Drafter, drafter))

/** All that a generation says but of its drafts. */
const said = Effect.fnUntraced(function*(
  { generate }: Effect.Success<ReturnType<typeof engine>>,
  request: Request
) {
  const tokens = yield* Stream.runCollect(generate(request))
  return { tokens: tokens.map(({ drafts: _, ...token }) => token), drafts: tokens.at(-1)?.drafts }
})

const sum = (all: ReadonlyArray<Drafts | undefined>, name: keyof Drafts): number =>
  all.reduce((total, drafts) => total + drafts![name], 0)

/** As by a model: of a source whose guesses cost nothing only good ones are verified. */
const proposing = (propose: Drafter.Source["propose"], isComputed = true): Drafter.Drafting =>
  Drafter.only({ name: "test", isComputed, propose })

/** Proposes what the texts will be, with a mistake in every fifth place. */
const nearly = (texts: ReadonlyArray<ReadonlyArray<number>>): Drafter.Drafting =>
  proposing((tokens, most) =>
    Effect.sync(() => {
      const text = texts.find((text) => tokens.every((id, i) => text[i] === id)) ?? []
      return text.slice(tokens.length, tokens.length + most).map((id, i) => (tokens.length + i) % 5 === 0 ? 7 : id)
    })
  )

/** Proposes what is wrong, more than was asked for, and tokens that do not exist. */
const junk = proposing((tokens, most) =>
  Effect.succeed([tokens.length % 700, 5, ...tokens.length % 2 === 0 ? [-1] : [], ...tokens.slice(0, most), NaN, 1e9])
)

const rounds = process.env["TG_FULL"] === "1"
  ? Array.from({ length: 6 }, (_, i) => ({ first: 50 * i, count: 50 }))
  : [{ first: 0, count: 16 }]

describe("drafts on wasm", () => {
  it.live.each(rounds)(
    "$count texts from $first on are what they are without, whatever is drafted",
    ({ count, first }) =>
      Effect.gen(function*() {
        const indices = Array.from({ length: count }, (_, i) => first + i)
        const plain = yield* engine(undefined)
        const expected = yield* Effect.forEach(indices, (i) => said(plain, requestOf(i)))
        const texts = expected.map(({ tokens }, i) => [...requestOf(first + i).tokens, ...tokens.map(({ id }) => id)])
        const drafters = [Drafter.only(Drafter.lookup), Drafter.only(Drafter.lookup, "paying"), nearly(texts), junk]
        const drafts = yield* Effect.forEach(drafters, (drafter) =>
          Effect.gen(function*() {
            const drafting = yield* engine(drafter)
            const found = yield* Effect.forEach(indices, (i) => said(drafting, requestOf(i)))
            assertEquals(found.map(({ tokens }) => tokens), expected.map(({ tokens }) => tokens))
            return found.map(({ drafts }) => drafts)
          }))
        const [lookup, , oracle, wrong] = drafts
        const tokens = expected.reduce((total, each) => total + each.tokens.length, 0)
        assert.isAbove(sum(lookup!, "accepted"), 0)
        assert.isBelow(sum(oracle!, "steps"), tokens / 2)
        // the text that is not drafted takes its steps, no more
        assert.isAtMost(sum(wrong!, "steps"), tokens)
        assert.isBelow(sum(wrong!, "accepted"), sum(wrong!, "drafted") / 10)
      }).pipe(Effect.scoped, Effect.provide(wasm))
  )

  it.live("a text that was there before takes fewer steps", () =>
    Effect.gen(function*() {
      const digits = Array.from({ length: 24 }, (_, i) => (i * i + 3 * i) % 10).join(" ")
      const question = `Repeat these digits: ${digits}`
      const plain = yield* engine(undefined)
      const first = yield* said(plain, { tokens: asked(question), maxTokens: 60 })
      const answer = tinyCodec.decode(first.tokens.map(({ id }) => id))
      const request = { tokens: asked(question, answer, question), maxTokens: 60 }
      const expected = yield* said(plain, request)
      const drafting = yield* engine(Drafter.only(Drafter.lookup))
      const found = yield* said(drafting, request)
      assertEquals(found.tokens, expected.tokens)
      assert.isAbove(found.tokens.length, 20)
      // how long drafts are depends on what steps take here: nearly each verifies one at least
      assert.isBelow(found.drafts!.steps, 3 * found.tokens.length / 4)
      // nothing that was drafted and is not in the text stays in the cache
      const text = [...request.tokens, ...found.tokens.map(({ id }) => id)]
      assertEquals(yield* drafting.cached, text.slice(0, (yield* drafting.cached).length))
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("ends where the context ends", () =>
    Effect.gen(function*() {
      const tokens = Array.from({ length: 40 }, (_, i) => 100 + i % 4)
      const open = (drafter: Drafter.Drafting | undefined) =>
        fromModel(tinySource, tiny, { context: 64 }).pipe(Effect.provideService(Drafter.Drafter, drafter))
      const bias = new Map([...tinyCodec.vocabulary.eog].map((id) => [id, -Infinity]))
      const expected = yield* said(yield* open(undefined), { tokens, bias })
      const found = yield* said(yield* open(Drafter.only(Drafter.lookup)), { tokens, bias })
      assertEquals(found.tokens, expected.tokens)
      assert.strictEqual(found.tokens.at(-1)!.stop, "context")
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("several conversations draft, each from its own text", () =>
    Effect.gen(function*() {
      const open = (drafter: Drafter.Drafting | undefined) =>
        Conversations.fromModel(tinySource, tiny, { context: 192, conversations: 3 }).pipe(
          Effect.provideService(Drafter.Drafter, drafter)
        )
      const texts = (made: Effect.Success<ReturnType<typeof open>>) =>
        Effect.forEach([2, 7, 12], (i) =>
          Effect.scoped(Effect.gen(function*() {
            const { tokens } = yield* made.generate(requestOf(i))
            return (yield* Stream.runCollect(tokens)).map(({ id }) => id)
          })), { concurrency: 3 })
      const expected = yield* texts(yield* open(undefined))
      assertEquals(yield* texts(yield* open(Drafter.only(Drafter.lookup))), expected)
    }).pipe(Effect.scoped, Effect.provide(wasm)))

  it.live("go on behind sliding windows as if nothing had been drafted", () => {
    const bytes = new Uint8Array(
      readFileSync(new URL("../../../test/vectors/oracle-families/g01.gguf", import.meta.url))
    )
    const gemma = Result.getOrThrow(
      Result.flatMap(Gguf.fromBytes("g01", bytes), (gguf) => ModelFile.fromGguf(gguf, known))
    )
    const options = { context: 400, cache: "f32", activations: "float", batchFrom: Infinity } as const
    const open = fromModel(fromBytes("g01", bytes), gemma, options)
    return Effect.gen(function*() {
      const [{ session }, { session: plain }] = [yield* open, yield* open]
      const text = Array.from({ length: 330 }, (_, i) => 3 + (Math.imul(i + 1, 0x9e3779b1) >>> 8) % 400)
      // a ring of 128 positions: steps of drafts come to its end, and wrong ones stand where the turn before is not seen
      for (let at = 90; at + 8 <= text.length; at += 9) {
        const wrong = Array.from({ length: 6 }, (_, i) => 10 + at % 100 + i)
        const rows = yield* session.verify(text.slice(0, at), [...text.slice(at, at + 8), ...wrong])
        const row = yield* plain.advance(text.slice(0, at + 8))
        assert.deepStrictEqual(rows.subarray(8 * session.vocabulary, 9 * session.vocabulary), row)
      }
      assert.isAbove(session.forgotten(), 128)
    }).pipe(Effect.scoped, Effect.provide(wasm))
  })
})

describe("drafts on a device that draws", () => {
  it.live("are verified there, and change no text", () =>
    Effect.suspend(() => {
      let most = 0
      const requests = Array.from({ length: 4 }, (_, i) => requestOf(i))
      return Effect.gen(function*() {
        const plain = yield* engine(undefined)
        const expected = yield* Effect.forEach(requests, (request) => said(plain, request))
        const texts = expected.map(({ tokens }, i) => [...requests[i]!.tokens, ...tokens.map(({ id }) => id)])
        const drafting = yield* engine(nearly(texts))
        const reads: Array<number> = []
        for (const [i, request] of requests.entries()) {
          most = 0
          const found = yield* said(drafting, request)
          // likelihoods differ in their last digits: steps of several tokens are another program
          assertEquals(found.tokens.map(({ id }) => id), expected[i]!.tokens.map(({ id }) => id))
          assert.isBelow(found.drafts!.steps, Math.max(2, 2 * found.tokens.length / 3))
          reads.push(most)
        }
        // behind the prompt the host draws; logits of drafts are read where a mask, penalties or likelihoods ask for them
        assertEquals(reads.map((bytes) => bytes > 4 * tiny.config.vocabulary), requests.map((_, i) => i % 4 !== 0))
      }).pipe(
        Effect.scoped,
        Effect.provide(onItsOwn(seeingReads((bytes) => most = Math.max(most, bytes))))
      )
    }))
})

describe("a drafter that never answers", () => {
  it.live("holds a text up once, and changes nothing", () =>
    Effect.gen(function*() {
      let asks = 0
      const propose = () => Effect.suspend(() => (asks++, Effect.never))
      const engine = yield* fromModel(tinySource, tiny, { context: 192 }).pipe(
        Effect.provideService(Drafter.Drafter, proposing(propose, false))
      )
      const tokens = yield* Stream.runCollect(engine.generate({ tokens: asked("What is 17 + 25?") }))
      assert.strictEqual(tokens.map(({ text }) => text).join(""), "17 + 25 = 42")
      assert.strictEqual(asks, 1)
    }).pipe(Effect.scoped, Effect.provide(wasm)))
})
