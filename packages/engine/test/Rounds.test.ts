/** Rounds of drafts that a device goes through by itself, on wasm taken for such a device: `mtp01` of the oracle. TG_FULL=1: longer drawn texts. */
import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import type { DeviceError, Vars } from "@tg/runtime/Device"
import { Effect, Stream } from "effect"
import * as Drafter from "../src/Drafter.ts"
import { fromModel, type Options } from "../src/Engine.ts"
import type { Asked } from "../src/Rounds.ts"
import * as Sampler from "../src/Sampler.ts"
import type { Session } from "../src/Session.ts"
import { onItsOwn } from "./support/devices.ts"
import { drafts, model, next, prompt, source } from "./support/mtp01.ts"

const engine = (name: Drafter.Name, options: Options = {}) =>
  fromModel(source, model, {
    context: 96,
    cache: "f32",
    activations: "float",
    batchFrom: Infinity,
    sizes: [1, 4],
    ...options
  }).pipe(
    Effect.provideService(Drafter.Drafter, Drafter.named(name))
  )

/** A run of a plan on the wasm device, for `submit`. */
class Waiting {
  readonly vars: Vars
  readonly run: Effect.Effect<void, DeviceError>
  constructor(vars: Vars, run: Effect.Effect<void, DeviceError>) {
    this.vars = vars
    this.run = run
  }
}

/** What a device has seen of its host. */
const seen = { waits: 0, idle: 0, replays: 0, submissions: 0 }

/**
 * The wasm device, taken for one that works on its own: it answers some turns after it was asked. Every read is a wait of the host; one that
 * begins while nothing else is under way is a wait of the device, too: it had nothing to do.
 */
const counting = () => {
  let underWay = 0
  const asked = <A, E>(work: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.suspend(() => {
      seen.waits++
      seen.submissions++
      if (underWay++ === 0) seen.idle++
      return work.pipe(
        Effect.tap(Effect.replicateEffect(Effect.yieldNow, 12, { discard: true })),
        Effect.ensuring(Effect.sync(() => underWay--))
      )
    })
  return onItsOwn((device) => ({
    plan: (dispatches) =>
      Effect.map(device.plan(dispatches), (replay) => ({
        run: (vars) => Effect.suspend(() => (seen.submissions++, replay.run(vars))),
        stage: (vars) => new Waiting(vars, replay.run(vars))
      })),
    read: (...args) => asked(device.read(...args)),
    submit: (work) =>
      asked(Effect.gen(function*() {
        const read: Array<Uint8Array> = []
        for (const each of work) {
          if ("buffer" in each) read.push(yield* device.read(each.buffer, each.offset, each.bytes))
          else if (each instanceof Waiting) {
            seen.replays++
            yield* each.run
          } else assert.fail("a run of another device")
        }
        return read
      }))
  }))
}
const device = counting()

/** What goes on behind a text of which the session holds all but the last token, by rounds, and what each guessed. */
const byRounds = Effect.fnUntraced(function*(session: Session, text: ReadonlyArray<number>, all: ReadonlyArray<Asked>) {
  const tokens = [...text]
  const drafts: Array<{ readonly behind: ReadonlyArray<number>; readonly drafts: ReadonlyArray<number> }> = []
  for (const asked of all) {
    const round = yield* session.round(tokens, asked)
    if (round === undefined) assert.fail("no round")
    drafts.push({ behind: [...tokens], drafts: round.drafts })
    tokens.push(...round.ids.slice(0, round.right + 1))
  }
  return { tokens, drafts }
})

/** So many tokens behind a text, one after the other. */
const plainly = Effect.fnUntraced(function*(
  session: Session,
  text: ReadonlyArray<number>,
  count: number,
  sampling = Sampler.greedy
) {
  const tokens = [...text]
  while (tokens.length < text.length + count) tokens.push(yield* session.next(tokens, sampling))
  return tokens
})

const greedily = (guesses: number): Asked => ({ guesses, sampling: Sampler.greedy })
const settings: ReadonlyArray<Sampler.Settings> = [
  Sampler.greedy,
  { temperature: 0.8, topK: 40, topP: 0.95, minP: 0, seed: 2 ** 40 + 3 }
]

describe("rounds of drafts on a device that works on its own", () => {
  it.live("guess what the block guesses otherwise, and go on with what is right", () =>
    Effect.gen(function*() {
      const { session } = yield* engine("mtp")
      assert.strictEqual(yield* session.next(prompt), next)
      const text = [...prompt, next]
      const found = yield* byRounds(session, text, [3, 2, 1, 3, 2, 2, 7, 3].map(greedily))
      assertEquals(found.drafts[0]!.drafts, drafts.slice(0, 3))
      const other = (yield* engine("mtp")).session
      assertEquals(found.tokens, yield* plainly(other, text, found.tokens.length - text.length))
      for (const each of found.drafts) {
        yield* other.advance(each.behind.slice(0, -1))
        assertEquals(each.drafts, yield* other.predict(each.behind, each.drafts.length))
      }
      // some of them were right
      assert.isAbove(found.tokens.length, text.length + found.drafts.length)
    }).pipe(Effect.scoped, Effect.provide(device)))

  it.live.skipIf(process.env["TG_FULL"] !== "1")(
    "draw what is drawn without them, by any settings",
    () =>
      Effect.gen(function*() {
        const { session } = yield* engine("mtp")
        const other = (yield* engine("off")).session
        for (const sampling of settings) {
          const text = [...prompt.slice(0, 9), yield* session.next(prompt.slice(0, 9), sampling)]
          const found = yield* byRounds(session, text, [3, 1, 3, 3, 3].map((guesses) => ({ guesses, sampling })))
          assertEquals(found.tokens, yield* plainly(other, text, found.tokens.length - text.length, sampling))
        }
      }).pipe(Effect.scoped, Effect.provide(device))
  )

  it.live("are left behind where the text goes on otherwise, and begin again", () =>
    Effect.gen(function*() {
      const { session } = yield* engine("mtp")
      const other = (yield* engine("off")).session
      yield* session.next(prompt)
      const first = yield* byRounds(session, [...prompt, next], [3, 3].map(greedily))
      const elsewhere = [...first.tokens.slice(0, -1), 5]
      const one = yield* session.next(elsewhere)
      const second = yield* byRounds(session, [...elsewhere, one], [3, 3, 3].map(greedily))
      assertEquals(second.tokens, yield* plainly(other, elsewhere, second.tokens.length - elsewhere.length))
      // shorter than what was there
      yield* session.keep(12)
      const short = [...prompt.slice(0, 14), 9]
      yield* session.advance(short.slice(0, -1))
      const third = yield* byRounds(session, short, [2, 1, 2].map(greedily))
      assertEquals(third.tokens, yield* plainly(other, short, third.tokens.length - short.length))
    }).pipe(Effect.scoped, Effect.provide(device)))

  it.live("go on to the end of the context, and are no more where there is no room", () =>
    Effect.gen(function*() {
      const { session } = yield* engine("mtp")
      const other = (yield* engine("off")).session
      let text: ReadonlyArray<number> = [...prompt, yield* session.next(prompt)]
      for (let round = yield* session.round(text, greedily(3)); round !== undefined;) {
        text = [...text, ...round.ids.slice(0, round.right + 1)]
        round = yield* session.round(text, greedily(3))
      }
      // a round, the one under way behind it, and the guesses of the next
      assert.isAbove(text.length, session.context - 3 * 4)
      assertEquals(text, yield* plainly(other, prompt, text.length - prompt.length))
    }).pipe(Effect.scoped, Effect.provide(device)))

  it.live("wait for the host once each, while the device goes on", () =>
    Effect.gen(function*() {
      const { session } = yield* engine("mtp")
      const count = 10
      const guesses = 3
      // eight of ten guesses are taken for right, so that the counts are those of a good block
      const right = [3, 3, 0, 3, 2, 3, 3, 1, 3, 3, 3, 3]
      const text = [...prompt, yield* session.next(prompt)]
      const measured = Effect.fnUntraced(function*<E>(work: Effect.Effect<number, E>) {
        const before = { ...seen }
        const made = yield* work
        return {
          made,
          waits: seen.waits - before.waits,
          idle: seen.idle - before.idle,
          submissions: seen.submissions - before.submissions
        }
      })
      // the block has read the prompt
      yield* session.predict(text, guesses)
      // one after the other: guesses, then a step that verifies them
      const apart = yield* measured(Effect.gen(function*() {
        const tokens = [...text]
        for (let i = 0; i < count; i++) {
          const drafts = yield* session.predict(tokens, guesses)
          const ids = (yield* session.verifyDrawn(tokens, drafts, Sampler.greedy))!
          tokens.push(...drafts.slice(0, right[i]), ids[right[i]!]!)
        }
        return tokens.length - text.length
      }))
      assertEquals([apart.waits, apart.idle], [2 * count, 2 * count])
      // the block reads, guesses twice, and is read; the step, and its draws with a read
      assert.strictEqual(apart.submissions, 6 * count)
      yield* session.keep(text.length - 1)
      const asked: Asked = { ...greedily(guesses), right: () => right[submitted++]! }
      let submitted = 0
      yield* session.round(text, asked)
      const here = yield* measured(Effect.gen(function*() {
        let tokens = [...text]
        yield* session.keep(text.length - 1)
        submitted = 0
        for (let i = 0; i < count; i++) {
          const { ids, right: taken } = (yield* session.round(tokens, asked))!
          assert.strictEqual(taken, right[i])
          tokens = [...tokens, ...ids.slice(0, taken + 1)]
        }
        return tokens.length - text.length
      }))
      assert.strictEqual(here.made, apart.made)
      // the first guesses are read, and two rounds are under way from then on
      assertEquals([here.waits, here.idle], [1 + count + 1, 2])
      assert.strictEqual(here.submissions, 4 + count + 1)
      assert.strictEqual(submitted, count + 1)
    }).pipe(Effect.scoped, Effect.provide(device)))

  it.live("are what a generation drafts with, and change no text", () =>
    Effect.gen(function*() {
      const texts = (drafting: Drafter.Name) =>
        Effect.gen(function*() {
          const { generate } = yield* engine(drafting)
          return yield* Effect.forEach(settings, (sampling, i) =>
            Stream.runCollect(generate({
              tokens: prompt.slice(0, 5 + 3 * i),
              maxTokens: 24,
              sampling
            })))
        })
      const expected = yield* texts("off")
      const before = seen.replays
      const found = yield* texts("mtp")
      assertEquals(found.map((text) => text.map(({ id }) => id)), expected.map((text) => text.map(({ id }) => id)))
      assert.isAbove(found.reduce((sum, text) => sum + text.at(-1)!.drafts!.accepted, 0), 0)
      assert.isAbove(seen.replays, before)
    }).pipe(Effect.scoped, Effect.provide(device)))
})
