import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Random from "../src/Random.ts"
import * as Sampler from "../src/Sampler.ts"

const row = (...logits: ReadonlyArray<number>) => Float32Array.from(logits)
const settings = (given: Partial<Sampler.Settings>): Sampler.Settings => ({
  ...Sampler.greedy,
  temperature: 1,
  ...given
})
const ids = (logits: Float32Array, given: Partial<Sampler.Settings>) =>
  Sampler.candidates(logits, settings(given)).map((c) => c.id)

/** A row of noise with ties, infinities and no number in places. */
const noise = (seed: number, length: number): Float32Array => {
  let random = Random.make(seed)
  return Float32Array.from({ length }, () => {
    const [x, after] = Random.next(random)
    random = after
    return x < 0.01 ? NaN : x < 0.03 ? -Infinity : Math.round(x * 40) / 4
  })
}

const draw = (logits: Float32Array, given: Partial<Sampler.Settings>, count: number): ReadonlyArray<number> => {
  const all = settings(given)
  let random = Random.make(all.seed)
  return Array.from({ length: count }, () => {
    const [id, after] = Sampler.sample(logits, all, random)!
    random = after
    return id
  })
}

describe("Random", () => {
  it("gives the same numbers for the same seed on every machine", () => {
    const [a, after] = Random.next(Random.make(1))
    const [b] = Random.next(after)
    // pinned: texts made with a seed must not change between releases
    assertEquals([a, b], [0.15091557201427386, 0.06945249085914673])
  })

  it("is even: mean, correlation and bits over 100000 numbers", () => {
    let random = Random.make(12345)
    let sum = 0
    let product = 0
    let previous = 0.5
    const buckets = new Array<number>(16).fill(0)
    for (let i = 0; i < 100_000; i++) {
      const [x, after] = Random.next(random)
      random = after
      sum += x
      product += (x - 0.5) * (previous - 0.5)
      previous = x
      buckets[Math.floor(x * 16)]!++
    }
    // five standard deviations: 0.289 / sqrt(n) for the mean, 1/12 / sqrt(n) for the product, sqrt(n / 16) for a bucket
    assert.isBelow(Math.abs(sum / 100_000 - 0.5), 0.0046)
    assert.isBelow(Math.abs(product / 100_000), 0.0014)
    for (const count of buckets) assert.isBelow(Math.abs(count - 6250), 385)
  })

  it("has another sequence for a seed above 32 bits and for a negative one", () => {
    const first = (seed: number) => Random.next(Random.make(seed))[0]
    assert.strictEqual(new Set([5, 5 + 2 ** 32, -5, 0, 2 ** 52].map(first)).size, 5)
  })
})

describe("greedy", () => {
  it("takes the largest", () => assert.strictEqual(Sampler.argmax(row(1, 3, 2)), 1))
  it("takes the lowest id of equals", () => assert.strictEqual(Sampler.argmax(row(0, 3, 3)), 1))
  it("does not take NaN", () => assert.strictEqual(Sampler.argmax(row(NaN, -5, NaN)), 1))
  it("takes an infinity", () => assert.strictEqual(Sampler.argmax(row(1, Infinity, 2)), 1))
  it("has nothing to take without numbers", () => {
    assert.isUndefined(Sampler.argmax(row(NaN, -Infinity)))
    assert.isUndefined(Sampler.sample(row(NaN), Sampler.greedy, Random.make(0)))
    assert.isUndefined(Sampler.sample(row(NaN), settings({}), Random.make(0)))
  })
  it("leaves the generator alone", () => {
    const random = Random.make(9)
    assertEquals(Sampler.sample(row(1, 2), Sampler.greedy, random), [1, random] as const)
  })
})

describe("cuts", () => {
  // probabilities 0.5, 0.25, 0.125, 0.125
  const logits = Float32Array.from([0.25, 0.5, 0.125, 0.125], Math.log)

  it("keeps all by default", () => assertEquals(ids(logits, {}), [0, 1, 2, 3]))
  it("topK 1 is greedy", () => assertEquals(ids(logits, { topK: 1 }), [1]))
  it("topK takes the lowest id of equals", () => assertEquals(ids(logits, { topK: 3 }), [1, 0, 2]))
  it("topP keeps the fewest that reach it", () => {
    assertEquals(ids(logits, { topP: 0.4 }), [1])
    assertEquals(ids(logits, { topP: 0.74 }), [1, 0])
    assertEquals(ids(logits, { topP: 0.8 }), [1, 0, 2])
  })
  it("topP counts after topK", () => assertEquals(ids(logits, { topK: 2, topP: 0.6 }), [1]))
  it("minP is relative to the likeliest", () => {
    assertEquals(ids(logits, { minP: 0.51 }), [1])
    assertEquals(ids(logits, { minP: 0.49 }), [0, 1])
    assertEquals(ids(logits, { minP: 0.2 }), [0, 1, 2, 3])
  })
  it("the temperature shapes what is left", () => {
    const cold = Sampler.candidates(logits, settings({ topK: 2, temperature: 0.5 }))
    // p^2 normalised: 0.25 and 0.0625 of 0.3125; logits are rounded to float32
    assert.closeTo(cold[0]!.probability, 0.8, 1e-6)
    assert.closeTo(cold[1]!.probability, 0.2, 1e-6)
  })
  it("an infinite logit takes everything", () =>
    assertEquals(draw(row(1, Infinity, 2), { topP: 0.9 }, 5), [1, 1, 1, 1, 1]))

  for (let seed = 0; seed < 30; seed++) {
    it(`cuts are prefixes of the sorted row (${seed})`, () => {
      const logits = noise(seed, 700)
      const sorted = [...logits.keys()].filter((id) => logits[id]! > -Infinity)
        .sort((a, b) => logits[b]! - logits[a]! || a - b)
      for (const topK of [1, 5, 256, 257, 650]) {
        assertEquals(ids(logits, { topK }), sorted.slice(0, topK))
      }
      let before = 0
      for (const topP of [0.1, 0.5, 0.9, 0.999]) {
        const kept = ids(logits, { topP })
        assertEquals(kept, sorted.slice(0, kept.length))
        assert.isAtLeast(kept.length, before)
        before = kept.length
      }
      const kept = Sampler.candidates(logits, settings({ topK: 40, topP: 0.9, minP: 0.1, temperature: 1.7 }))
      assert.isAbove(kept.length, 0)
      // sums of at most 40 float64 numbers of about one
      assert.closeTo(kept.reduce((sum, c) => sum + c.probability, 0), 1, 1e-12)
    })
  }
})

describe("sample", () => {
  const logits = Float32Array.from([0.1, 0.6, 0.3], Math.log)

  it("gives the same tokens for the same seed", () => {
    assertEquals(draw(logits, { seed: 7 }, 50), draw(logits, { seed: 7 }, 50))
    assert.notDeepEqual(draw(logits, { seed: 7 }, 50), draw(logits, { seed: 8 }, 50))
  })

  it("draws as often as the probabilities say", () => {
    const counts = [0, 0, 0]
    for (const id of draw(logits, { seed: 3 }, 20_000)) counts[id]!++
    // five standard deviations of a binomial count: 5 sqrt(n p (1 - p)) is at most 347
    for (const [id, p] of [0.1, 0.6, 0.3].entries()) assert.isBelow(Math.abs(counts[id]! - 20_000 * p), 347)
  })
})

describe("validate", () => {
  const bad: ReadonlyArray<Partial<Sampler.Settings>> = [
    { temperature: -1 },
    { temperature: NaN },
    { temperature: Infinity },
    { topK: -1 },
    { topK: 1.5 },
    { topP: 0 },
    { topP: 1.1 },
    { topP: NaN },
    { minP: -0.1 },
    { minP: 2 },
    { seed: 0.5 }
  ]
  for (const given of bad) {
    it(`refuses ${JSON.stringify(given)}`, () => {
      const error = Sampler.validate(settings(given))
      assert.strictEqual(error?.setting, Object.keys(given)[0])
      assert.include(error?.message, "has to be")
    })
  }
  it("accepts the rest", () =>
    assert.isUndefined(Sampler.validate(settings({ temperature: 0.7, topK: 40, topP: 0.95, minP: 0.05, seed: -3 }))))
})
