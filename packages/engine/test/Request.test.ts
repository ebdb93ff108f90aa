import { assert, describe, it, layer } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import { Effect, Layer, Stream } from "effect"
import * as Constraint from "../src/Constraint.ts"
import { Engine, type Request } from "../src/Engine.ts"
import * as Random from "../src/Random.ts"
import { validate } from "../src/Request.ts"
import * as Sampler from "../src/Sampler.ts"
import * as Shaping from "../src/Shaping.ts"
import * as StopText from "../src/StopText.ts"
import { wasm } from "./support/devices.ts"
import { asked, tinyCodec, tinyLayer } from "./support/models.ts"

const codec = tinyCodec
const prompt = asked("What is 17 + 25?")
const [endToken] = codec.vocabulary.eog

describe("stop strings", () => {
  const told = (stops: ReadonlyArray<string>, pieces: ReadonlyArray<string>) => {
    const watch = StopText.make(stops)
    const shown: Array<string> = []
    for (const piece of pieces) {
      const { isStopped, text } = watch.push(piece)
      shown.push(text)
      if (isStopped) return { shown, isStopped }
    }
    return { shown: [...shown, watch.flush()], isStopped: false }
  }
  it("end the text in front of them, also across pieces", () =>
    assertEquals(told(["\n\n"], ["one\n", "two\n", "\nthree"]), { shown: ["one", "\ntwo", ""], isStopped: true }))
  it("hold back only what may become one", () =>
    assertEquals(told(["abab"], ["ab", "ac", "aba", "x"]), { shown: ["", "abac", "", "abax", ""], isStopped: false }))
  it("find one that begins inside of what was held back", () =>
    assertEquals(told(["aab"], ["aa", "ab", "c"]), { shown: ["", "a"], isStopped: true }))
  it("the first in the text counts, not the first in the list", () =>
    assertEquals(told(["z", "b"], ["abcz"]), { shown: ["a"], isStopped: true }))
  it("show at the end what was held back", () =>
    assertEquals(told(["abc"], ["xab"]), { shown: ["x", "ab"], isStopped: false }))

  // every text of few letters, cut in every way, against the text as a whole
  it("do not depend on how the text is cut", () => {
    for (let seed = 0; seed < 500; seed++) {
      const [a, b] = Random.words(seed, 1)
      const letters = Array.from({ length: 12 }, (_, i) => "ab"[(a >>> i) & 1]!)
      const stops = [["aab", "bba"], ["abab"], ["a", "bb"], ["bab", "abba"]][seed % 4]!
      const pieces: Array<string> = []
      let piece = ""
      for (const [i, letter] of letters.entries()) {
        piece += letter
        if (((b >>> i) & 1) === 1) {
          pieces.push(piece)
          piece = ""
        }
      }
      const text = letters.join("")
      const at = Math.min(...stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0), Infinity)
      const { isStopped, shown } = told(stops, [...pieces, piece])
      assertEquals([shown.join(""), isStopped], [text.slice(0, at), at < Infinity])
    }
  })
})

describe("shaping", () => {
  const logits = Float32Array.of(2, -1, 0.5, -3)
  const place = { prompt: 2, tokens: [0, 1, 2, 2, 3], mask: undefined }
  const row = (
    request: Pick<Request, "bias" | "penalties">,
    mask?: Uint32Array
  ) => [...Shaping.shape(logits, request, { ...place, mask })]

  it("changes nothing that was not asked for", () => assertEquals(row({}), [...logits]))
  it("adds the bias", () => assertEquals(row({ bias: new Map([[1, 4], [3, -Infinity]]) }), [2, 3, 0.5, -Infinity]))
  it("presence and frequency count what was generated", () =>
    assertEquals(row({ penalties: { presence: 1, frequency: 0.25 } }), [2, -1, 0.5 - 1.5, -3 - 1.25]))
  it("repeat looks at the last tokens, of the prompt as well", () => {
    assertEquals(row({ penalties: { repeat: 2 } }), [1, -2, 0.25, -6])
    assertEquals(row({ penalties: { repeat: 2, lastTokens: 3 } }), [2, -1, 0.25, -6])
    assertEquals(row({ penalties: { repeat: 2, lastTokens: 0 } }), [...logits])
  })
  it("masks come last", () =>
    assertEquals(row({ bias: new Map([[0, 100]]) }, Uint32Array.of(0b0110)), [-Infinity, -1, 0.5, -Infinity]))
  it("likelihoods are the logarithms of the softmax", () => {
    const { logprob, top } = Shaping.likelihoods(Float32Array.from([0.5, 0.25, 0.125, 0.125], Math.log), 1, 3)
    assert.closeTo(logprob, Math.log(0.25), 1e-6)
    assertEquals(top.map(({ id }) => id), [0, 1, 2])
    for (const [i, p] of [0.5, 0.25, 0.125].entries()) assert.closeTo(top[i]!.logprob, Math.log(p), 1e-6)
  })
})

describe("masks", () => {
  it("are bits", () => {
    const mask = Uint32Array.of(1, 0, 2 ** 31)
    assertEquals([0, 1, 64, 95, 96, 1000].map((id) => Constraint.isAllowed(mask, id)), [
      true,
      false,
      false,
      true,
      false,
      false
    ])
  })
  it("allow nothing where only ids beyond the vocabulary are", () => {
    assert.isTrue(Constraint.isNone(Uint32Array.of(0, 0b1000), 35))
    assert.isFalse(Constraint.isNone(Uint32Array.of(0, 0b100), 35))
    assert.isFalse(Constraint.isNone(Uint32Array.of(8), 64))
    assert.isTrue(Constraint.isNone(Uint32Array.of(0, 0, 1), 64))
  })
})

describe("what is refused", () => {
  const bad: ReadonlyArray<readonly [string, Partial<Request>]> = [
    ["stop", { stop: ["a", ""] }],
    ["presence", { penalties: { presence: NaN } }],
    ["frequency", { penalties: { frequency: Infinity } }],
    ["repeat", { penalties: { repeat: 0 } }],
    ["lastTokens", { penalties: { lastTokens: 1.5 } }],
    ["logprobs", { logprobs: -1 }],
    ["bias", { bias: new Map([[1280, 1]]) }],
    ["bias", { bias: new Map([[1, NaN]]) }]
  ]
  for (const [field, request] of bad) {
    it(`${field} ${JSON.stringify(request)}`, () => {
      const error = validate({ tokens: [1], ...request }, 1280)
      assert.strictEqual(error?._tag === "InvalidRequest" && error.field, field)
      assert.include(error?.message, "has to be")
    })
  }
  it("nothing else", () =>
    assert.isUndefined(
      validate({
        tokens: [1],
        stop: ["x"],
        penalties: { presence: -1, frequency: 2, repeat: 1.1, lastTokens: Infinity },
        logprobs: 0,
        bias: new Map([[0, -Infinity]])
      }, 1280)
    ))
})

/** Spells one of the texts, by the tokens of the codec. */
const oneOf = (texts: ReadonlyArray<string>): Constraint.Constraint => {
  const ways = texts.map((text) => codec.encode(text))
  const spelled: Array<number> = []
  const left = () => ways.filter((way) => spelled.every((id, i) => way[i] === id))
  return {
    mask: () => {
      const mask = new Uint32Array(40)
      for (const way of left()) {
        const id = way[spelled.length] ?? endToken!
        mask[id >>> 5]! |= 1 << (id & 31)
      }
      return mask
    },
    accept: (id) => {
      spelled.push(id)
    },
    isFinished: () => left().every((way) => way.length === spelled.length)
  }
}

const collect = (request: Request) =>
  Effect.gen(function*() {
    return yield* Stream.runCollect((yield* Engine).generate(request))
  })
const textOf = (tokens: ReadonlyArray<{ readonly text: string }>) => tokens.map((t) => t.text).join("")

layer(Engine.layer({ context: 96 }).pipe(Layer.provide([wasm, tinyLayer])), {
  excludeTestServices: true
})("generate", (it) => {
  it.effect("ends in front of a stop string that spans tokens", () =>
    Effect.gen(function*() {
      const whole = yield* collect({ tokens: prompt })
      assert.strictEqual(textOf(whole), "17 + 25 = 42")
      const tokens = yield* collect({ tokens: prompt, stop: ["5 = 4", "nothing"] })
      assert.strictEqual(textOf(tokens), "17 + 2")
      assert.strictEqual(tokens.at(-1)?.stop, "text")
      // held back, not stopped
      assert.strictEqual(textOf(yield* collect({ tokens: prompt, stop: ["42!"] })), "17 + 25 = 42")
      assert.strictEqual(
        textOf(yield* collect({ tokens: prompt, stop: ["42!"], maxTokens: 10 })),
        textOf(whole.slice(0, 10))
      )
    }))

  it.effect("logprobs are those of the logits, and change no token", () =>
    Effect.gen(function*() {
      const engine = yield* Engine
      const whole = yield* collect({ tokens: prompt })
      const tokens = yield* collect({ tokens: prompt, logprobs: 3 })
      assertEquals(tokens.map((token) => token.id), whole.map((token) => token.id))
      const rows = yield* Stream.runCollect(engine.logits([...prompt, ...tokens.map((token) => token.id)]))
      const row = rows.flatMap((part) => [...part]).slice((prompt.length - 1) * 1280, prompt.length * 1280)
      const sum = row.reduce((sum, logit) => sum + Math.exp(logit), 0)
      const [first] = tokens
      // sums of float32 in another order
      assert.closeTo(first!.logprob!, row[first!.id]! - Math.log(sum), 3e-2)
      assert.strictEqual(first!.top?.length, 3)
      assertEquals(first!.top?.[0], { id: first!.id, logprob: first!.logprob! })
      const [alone] = yield* collect({ tokens: prompt, logprobs: 0, maxTokens: 1 })
      assert.isUndefined(alone!.top)
      assert.strictEqual(alone!.logprob, first!.logprob)
    }))

  it.effect("a bias forbids a token, and penalties end a repetition", () =>
    Effect.gen(function*() {
      const [first] = yield* collect({ tokens: prompt, maxTokens: 1 })
      const other = yield* collect({ tokens: prompt, maxTokens: 8, bias: new Map([[first!.id, -Infinity]]) })
      assert.isFalse(other.some((token) => token.id === first!.id))
      const distinct = yield* collect({ tokens: prompt, maxTokens: 12, penalties: { presence: 1000 } })
      assert.strictEqual(new Set(distinct.map((token) => token.id)).size, distinct.length)
    }))

  for (const sampling of [Sampler.greedy, { ...Sampler.greedy, temperature: 1.5, seed: 4 }]) {
    it.effect(`a constraint is kept, and ends the text where it is finished (temperature ${sampling.temperature})`, () =>
      Effect.gen(function*() {
        const texts = ["no idea", "no", "yes of course"]
        const tokens = yield* collect({ tokens: prompt, constraint: oneOf(texts), sampling })
        assert.include(texts, textOf(tokens))
        assert.strictEqual(tokens.at(-1)?.stop, "end")
        const only = yield* collect({ tokens: prompt, constraint: oneOf(["maybe so"]), sampling, logprobs: 0 })
        assert.strictEqual(textOf(only), "maybe so")
        assertEquals(only.map((token) => token.id), [...codec.encode("maybe so")])
        assert.isBelow(only[0]!.logprob!, -1)
      }))
  }

  it.effect("a constraint that allows nothing is an error that says where", () =>
    Effect.gen(function*() {
      const never = { mask: () => new Uint32Array(40), accept: () => {}, isFinished: () => false }
      const error = yield* Effect.flip(collect({ tokens: prompt, constraint: never }))
      assert.strictEqual(error._tag === "NothingAllowed" && error.position, prompt.length)
    }))

  it.effect("a request that makes no sense is refused", () =>
    Effect.gen(function*() {
      assert.strictEqual((yield* Effect.flip(collect({ tokens: prompt, stop: [""] })))._tag, "InvalidRequest")
    }))
})
