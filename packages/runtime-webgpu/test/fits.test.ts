import { assert, describe, it } from "@effect/vitest"
import { h200, webgpuDefault } from "@tg/core-uop/DeviceProfile"
import * as Fits from "../src/internal/measure/fits.ts"

/** Runs a search against a device that runs `resident` workgroups at once, with some noise. */
const searched = (resident: number, { from = 1, most = 65535 } = {}) => {
  let asked = 0
  const sample = (size: number): Fits.Sample => {
    asked++
    // a wave takes its time, and what is between waves a little more
    return { size, micros: 100 * Math.ceil(size / resident) * (1 + 0.1 * ((size * 7919) % 10) / 10) }
  }
  const samples: [Fits.Sample, ...Array<Fits.Sample>] = [sample(from)]
  for (;;) {
    const search = Fits.search(samples, most)
    if (!("next" in search)) return { found: search.found, asked }
    samples.push(sample(search.next))
  }
}

describe("search", () => {
  it("finds the largest number of workgroups that runs at once", () => {
    for (const resident of [1, 2, 3, 7, 8, 60, 132, 1056, 4224]) {
      const { asked, found } = searched(resident)
      assert.strictEqual(found, resident)
      assert.isBelow(asked, 2 * Math.log2(resident) + 5)
    }
    assert.strictEqual(searched(1056, { from: 132 }).found, 1056)
  })

  it("finds none where more never takes longer", () => {
    assert.isUndefined(searched(1e9, { most: 1000 }).found)
  })
})

describe("confirmed", () => {
  /** All orders of these. */
  const orders = (all: ReadonlyArray<number>): ReadonlyArray<ReadonlyArray<number>> =>
    all.length < 2 ? [all] : all.flatMap((one, i) => orders(all.toSpliced(i, 1)).map((others) => [one, ...others]))
  /** What is taken for the time, if a device gives these readings one after the other. */
  const taken = (readings: ReadonlyArray<number>) => {
    for (let count: number = Fits.readings.first; count <= Fits.readings.most; count++) {
      const found = Fits.confirmed(readings.slice(0, count))
      if (found !== undefined) return { found, count }
    }
    return { found: undefined, count: Infinity }
  }

  it("takes the least of readings that agree, and no more than three", () => {
    for (const order of orders([100, 101, 104])) {
      assert.deepStrictEqual(taken([...order, 99, 98]), { found: 100, count: 3 })
    }
  })

  it("is not decided by one reading that is far too short, far too long, or both", () => {
    // a run that was left out, one that a clock of few digits misses, one whose clock wrapped
    for (const short of [1, 0, -1.8e13]) {
      for (const long of [103, 5000, 1.8e13]) {
        for (const order of orders([100, 101, 102, short, long])) assert.include([100, 101], taken(order).found)
      }
    }
  })

  it("takes the second least where none agree, since all but wrong ones are too long", () => {
    for (const order of orders([100, 130, 170, 1, 9000])) assert.strictEqual(taken(order).found, 100)
  })

  it("keeps to what runs take alone, where two of three were disturbed alike", () => {
    assert.deepStrictEqual(taken([160, 100, 161, 158, 101]), { found: 100, count: 5 })
  })

  it("believes a clock that twice sees nothing", () => {
    assert.strictEqual(Fits.confirmed([0, 100, 0]), 0)
  })
})

describe("perUnit", () => {
  it("is a slope, and nothing where noise is larger than it", () => {
    assert.strictEqual(Fits.perUnit({ size: 10, micros: 120 }, { size: 30, micros: 160 }), 2)
    assert.isUndefined(Fits.perUnit({ size: 10, micros: 120 }, { size: 30, micros: 110 }))
  })
})

describe("latencies", () => {
  const curve = (at: (size: number) => number) => {
    const sizes = Array.from({ length: 14 }, (_, i) => 2 ** (16 + i))
    return sizes.map((size): Fits.Sample => ({ size, micros: at(size) })) as [Fits.Sample, ...Array<Fits.Sample>]
  }

  it("sees a shared cache behind caches of processors, and memory behind it", () => {
    const found = Fits.latencies(curve((size) => size <= 2 ** 17 ? 0.03 : size <= 2 ** 25 ? 0.25 : 0.7))
    // memory, as busy as kernels keep it
    assert.closeTo(found.loadMicros, 1.7 * 0.7, 1e-9)
    assert.strictEqual(found.cachedLoadMicros, 0.25)
    assert.strictEqual(found.cacheBytes, 2 ** 25)
  })

  it("takes a slope from cache to memory in the middle", () => {
    const found = Fits.latencies(curve((size) => Math.max(0.2, 0.15 * Math.log2(size) - 3.55)))
    assert.closeTo(found.loadMicros, 1.7 * 0.8, 1e-9)
    assert.strictEqual(found.cacheBytes, 2 ** 26)
  })

  it("does not invent a cache", () => {
    assert.deepStrictEqual(Fits.latencies(curve(() => 0.5)), {
      loadMicros: 0.5,
      cachedLoadMicros: undefined,
      cacheBytes: undefined
    })
  })
})

describe("saturation", () => {
  it("is the fewest threads with which memory is busy, as Little's law has it", () => {
    // 4.6 TB/s, 0.75 us, 32 bytes for each thread of 132 processors
    const curve = [1, 2, 4, 8].map((each) => {
      const threads = each * 256 * 132
      return { threads, bytesPerMicro: Math.min(4.6e6, threads * 32 / 0.75) }
    })
    assert.strictEqual(Fits.saturation(curve), h200.saturatingThreads)
    assert.isUndefined(Fits.saturation([]))
  })
})

describe("gridBarrier", () => {
  const tried = (workgroups: number, { gaveUp = false, stale = 0 } = {}) => ({ workgroups, values: 1e9, stale, gaveUp })

  it("holds for as many workgroups as it was seen to hold for", () => {
    assert.deepStrictEqual(Fits.gridBarrier([tried(2), tried(528), tried(132)]), {
      gridBarrierHolds: true,
      gridBarrierWorkgroups: 528
    })
    assert.deepStrictEqual(Fits.gridBarrier([tried(2), tried(132), tried(528, { gaveUp: true })]), {
      gridBarrierHolds: true,
      gridBarrierWorkgroups: 132
    })
  })

  it("does not hold where one value was stale, or two workgroups do not meet", () => {
    assert.deepStrictEqual(Fits.gridBarrier([tried(2), tried(132, { stale: 1 })]), { gridBarrierHolds: false })
    assert.deepStrictEqual(Fits.gridBarrier([tried(2, { gaveUp: true })]), { gridBarrierHolds: false })
  })
})

describe("finding", () => {
  it("keeps what a device can have, counts to the last and times to three digits", () => {
    assert.deepStrictEqual(Fits.finding("saturatingThreads", 135168), { quantity: "saturatingThreads", value: 135168 })
    assert.deepStrictEqual(Fits.finding("loadMicros", 0.71234), { quantity: "loadMicros", value: 0.712 })
  })

  it("says why there is none, and leaves the profile as it was", () => {
    const findings = [
      Fits.finding("bytesPerMicro", 1e12),
      Fits.finding("loadMicros", undefined, "no time"),
      Fits.finding("processors", 40)
    ]
    assert.match(findings[0]!.problem!, /1000000000000 was measured, which no device has \(500 to 20000000\)/)
    assert.deepStrictEqual(findings[1], { quantity: "loadMicros", problem: "no time" })
    assert.deepStrictEqual(Fits.withFindings(webgpuDefault, findings, { gridBarrierHolds: false }), {
      ...webgpuDefault,
      processors: 40,
      gridBarrierHolds: false
    })
  })

  it("finds nothing implausible in what an H200 has", () => {
    for (const [quantity, [least, most]] of Object.entries(Fits.plausible)) {
      const value = h200[quantity as Fits.Measurable]
      if (value !== undefined) assert.isTrue(value >= least && value <= most, quantity)
    }
  })
})
