import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import * as Random from "../src/Random.ts"
import * as Sampler from "../src/Sampler.ts"
import * as Tables from "../src/SamplerTables.ts"

const row = (...logits: ReadonlyArray<number>) => Float32Array.from(logits)
const settings = (given: Partial<Sampler.Settings>): Sampler.Settings => ({
  ...Sampler.greedy,
  temperature: 1,
  ...given
})
const ids = (logits: Float32Array, given: Partial<Sampler.Settings>) => Sampler.candidates(logits, settings(given))

/** Numbers in [0, 1) that depend on the seed only. */
const numbers = (seed: number) => {
  let i = 0
  return () => Random.words(seed, i++)[0] / 2 ** 32
}

/** A row of noise with ties, and tokens that never come. */
const noise = (seed: number, length: number): Float32Array => {
  const next = numbers(seed)
  return Float32Array.from({ length }, () => {
    const x = next()
    return x < 0.03 ? -Infinity : Math.round(x * 40) / 4
  })
}

const draw = (logits: Float32Array, given: Partial<Sampler.Settings>, count: number): ReadonlyArray<number> => {
  const all = settings(given)
  return Array.from({ length: count }, (_, i) => Sampler.sample(logits, all, Random.words(all.seed, i))!)
}

describe("Random", () => {
  it("gives the same words for the same seed and place on every machine", () => {
    // pinned: texts made with a seed must not change between releases
    assertEquals(Random.words(1, 0), [648177461, 839993490])
    assertEquals(Random.words(1, 1), [298296179, 2263685898])
    assertEquals(Random.ofToken(Random.words(1, 1), 154879), [4202218227, 1022063121])
  })

  it("is even: mean, correlation and bits over 100000 words", () => {
    for (const word of [0, 1] as const) {
      for (const at of [(i: number) => Random.words(12345, i)[word], (i: number) => Random.ofToken([7, 8], i)[word]]) {
        let sum = 0
        let product = 0
        let previous = 0.5
        const buckets = new Array<number>(16).fill(0)
        for (let i = 0; i < 100_000; i++) {
          const x = at(i) / 2 ** 32
          sum += x
          product += (x - 0.5) * (previous - 0.5)
          previous = x
          buckets[Math.floor(x * 16)]!++
        }
        // five standard deviations: 0.289 / sqrt(n) for the mean, 1/12 / sqrt(n) for the product, sqrt(n / 16) for a bucket
        assert.isBelow(Math.abs(sum / 100_000 - 0.5), 0.0046)
        assert.isBelow(Math.abs(product / 100_000), 0.0014)
        for (const count of buckets) assert.isBelow(Math.abs(count - 6250), 385)
      }
    }
  })

  it("has other words for a seed above 32 bits and for a negative one", () => {
    const first = (seed: number) => Random.words(seed, 0)[0]
    assert.strictEqual(new Set([5, 5 + 2 ** 32, -5, 0, 2 ** 52].map(first)).size, 5)
  })
})

describe("tables", () => {
  const table = Tables.shared()
  it("masses are powers of two, rounded down", () => {
    for (let i = 0; i < 2000; i++) {
      const distance = Math.floor(i ** 2.2)
      const exact = 2 ** (27 - distance / 2 ** 16)
      // two factors, rounded at 2^-16, of a product that is rounded down
      assert.closeTo(Tables.mass(table, distance), exact, 2 ** -14 * exact + 1)
    }
    assert.strictEqual(Tables.mass(table, 0), 2 ** 27)
    assert.strictEqual(Tables.mass(table, Sampler.farthest), 0)
  })
  it("noise is the logarithm of an exponential variate", () => {
    const next = numbers(99)
    const noise = Array.from({ length: 50_000 }, () => Tables.noise(table, next() * 2 ** 32, next() * 2 ** 32))
    assert.isTrue(noise.every((x) => x >= 0))
    const times = noise.map((x) => 2 ** (x / 2 ** 16 - 32)).sort((a, b) => a - b)
    // Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded once in a thousand samples, and this one is always the same
    const largest = Math.max(...times.map((t, i) => Math.abs(1 - Math.exp(-t) - i / times.length)))
    assert.isBelow(largest, 0.0087)
    // far out: words with more leading zeros than the table has rows
    assert.closeTo(Tables.noise(table, 1, 0) / 2 ** 16 - 32, -32, 0.01)
  })
})

describe("greedy", () => {
  it("takes the largest", () => assert.strictEqual(Sampler.argmax(row(1, 3, 2)), 1))
  it("takes the lowest id of equals", () => assert.strictEqual(Sampler.argmax(row(0, 3, 3)), 1))
  it("does not take NaN", () => assert.strictEqual(Sampler.argmax(row(NaN, -5, NaN)), 1))
  it("takes an infinity", () => assert.strictEqual(Sampler.argmax(row(1, Infinity, 2)), 1))
  it("has nothing to take without numbers", () => {
    assert.isUndefined(Sampler.argmax(row(NaN, -Infinity)))
    assert.isUndefined(Sampler.sample(row(NaN), Sampler.greedy, [0, 0]))
    assert.isUndefined(Sampler.sample(row(NaN), settings({}), [0, 0]))
  })
  it("is what topK 1 takes, too", () => assertEquals(draw(row(1, 3, 3), { topK: 1 }, 20), new Array(20).fill(1)))
})

describe("cuts", () => {
  // probabilities 0.5, 0.25, 0.125, 0.125
  const logits = Float32Array.from([0.25, 0.5, 0.125, 0.125], Math.log)

  it("keeps all by default", () => assertEquals(ids(logits, {}), [0, 1, 2, 3]))
  it("topK 1 is greedy", () => assertEquals(ids(logits, { topK: 1 }), [1]))
  it("topK keeps what is equal to the last one", () => {
    assertEquals(ids(logits, { topK: 2 }), [0, 1])
    assertEquals(ids(logits, { topK: 3 }), [0, 1, 2, 3])
  })
  it("topP keeps the fewest that reach it", () => {
    assertEquals(ids(logits, { topP: 0.4 }), [1])
    assertEquals(ids(logits, { topP: 0.74 }), [0, 1])
    assertEquals(ids(logits, { topP: 0.8 }), [0, 1, 2, 3])
    assertEquals(ids(logits, { topP: 1e-9 }), [1])
  })
  it("topP counts after topK", () => assertEquals(ids(logits, { topK: 2, topP: 0.6 }), [1]))
  it("minP is relative to the likeliest", () => {
    assertEquals(ids(logits, { minP: 0.51 }), [1])
    assertEquals(ids(logits, { minP: 0.49 }), [0, 1])
    assertEquals(ids(logits, { minP: 0.2 }), [0, 1, 2, 3])
  })
  it("a row with NaN or an infinite logit is no distribution, greedily or not", () => {
    for (const bad of [NaN, Infinity, Sampler.largestFloat]) {
      const logits = row(1, bad, 2)
      assertEquals(ids(logits, { topP: 0.9 }), [])
      assert.isUndefined(Sampler.sample(logits, settings({ topP: 0.9 }), [0, 0]))
      assert.isUndefined(Sampler.sample(logits, Sampler.greedy, [0, 0]))
    }
    assertEquals(ids(row(1, -Infinity, 2), {}), [0, 2])
  })

  for (let seed = 0; seed < 30; seed++) {
    it(`cuts keep what is as likely as the last of the sorted row (${seed})`, () => {
      const logits = noise(seed, 700)
      const sorted = [...logits.keys()].filter((id) => logits[id]! > -Infinity)
        .sort((a, b) => logits[b]! - logits[a]! || a - b)
      const downTo = (last: number) => [...logits.keys()].filter((id) => logits[id]! >= logits[sorted[last]!]!)
      for (const topK of [5, 256, 257, 650, 5000]) {
        assertEquals(ids(logits, { topK }), downTo(Math.min(topK, sorted.length) - 1))
      }
      const masses = sorted.map((id) => Math.exp(logits[id]! - logits[sorted[0]!]!))
      const total = masses.reduce((a, b) => a + b, 0)
      for (const topP of [0.1, 0.5, 0.9, 0.99]) {
        let sum = 0
        const last = masses.findIndex((mass) => (sum += mass) >= topP * total)
        assertEquals(ids(logits, { topP }), downTo(last))
      }
      const kept = new Set(ids(logits, { topK: 40, topP: 0.9, minP: 0.1, temperature: 1.7 }))
      assert.isAbove(kept.size, 0)
      for (const cut of [{ topK: 40 }, { topP: 0.9 }, { minP: 0.1 }]) {
        assert.isTrue(kept.isSubsetOf(new Set(ids(logits, cut))))
      }
    })
  }
})

describe("sample", () => {
  const logits = Float32Array.from([0.1, 0.6, 0.3], Math.log)

  it("gives the same tokens for the same seed", () => {
    assertEquals(draw(logits, { seed: 7 }, 50), draw(logits, { seed: 7 }, 50))
    assert.notDeepEqual(draw(logits, { seed: 7 }, 50), draw(logits, { seed: 8 }, 50))
  })

  /** Largest distance of counts from what is expected, in standard deviations of a binomial count. */
  const deviation = (drawn: ReadonlyArray<number>, probabilities: ReadonlyArray<number>): number => {
    const counts = probabilities.map((_, id) => drawn.filter((each) => each === id).length)
    const n = drawn.length
    return Math.max(...probabilities.map((p, id) => Math.abs(counts[id]! - n * p) / Math.sqrt(n * p * (1 - p))))
  }

  it("draws as often as the probabilities say", () => {
    assert.isBelow(deviation(draw(logits, { seed: 3 }, 20_000), [0.1, 0.6, 0.3]), 4)
  })
  it("the temperature shapes what is left of the cuts", () => {
    // p^2 of two: 0.36 and 0.09 of 0.45
    const drawn = draw(logits, { seed: 4, topK: 2, temperature: 0.5 }, 20_000)
    assert.isTrue(drawn.every((id) => id !== 0))
    assert.isBelow(deviation(drawn.map((id) => id - 1), [0.8, 0.2]), 4)
  })
  it("many equal tokens are drawn alike", () => {
    assert.isBelow(deviation(draw(new Float32Array(50), { seed: 5 }, 20_000), new Array(50).fill(0.02)), 4)
  })
  it("rare tokens are drawn as seldom as they are rare", () => {
    // 4096 tokens that together are as likely as the first
    const rare = Float32Array.from({ length: 4097 }, (_, id) => id === 0 ? 0 : -Math.log(4096))
    const drawn = draw(rare, { seed: 6 }, 1000)
    assert.isBelow(deviation(drawn.map((id) => Math.min(id, 1)), [0.5, 0.5]), 4)
    // and among each other: mean of the ids in standard deviations, 4096 / sqrt(12 n) each
    const others = drawn.filter((id) => id > 0)
    const mean = others.reduce((a, b) => a + b, 0) / others.length
    assert.isBelow(Math.abs(mean - 2048.5), 4 * 4096 / Math.sqrt(12 * others.length))
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
