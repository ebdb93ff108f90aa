import { assert, describe, it } from "@effect/vitest"
import { type Measured, type Options, search, type Space } from "../src/Search.ts"

/** Points of a square; a step changes one coordinate by one. */
const plane = (size: number, asked: Array<string> = []): Space<readonly [number, number]> => ({
  keyOf: ([x, y]) => `${x},${y}`,
  neighbours: ([x, y]) => {
    asked.push(`${x},${y}`)
    return ([[x + 1, y], [x - 1, y], [x, y + 1], [x, y - 1]] as const).map((candidate) => ({ candidate, delay: 1 }))
  },
  accepts: ([x, y]) => x >= 0 && y >= 0 && x < size && y < size
})

const usual: Options = { seed: 0, batch: 3, most: Infinity, patience: 1.5 }

/** Runs a search against known costs; what it measured, in order. */
const explore = <C>(
  space: Space<C>,
  start: C,
  { cost, options = usual }: { readonly cost: (candidate: C) => number; readonly options?: Options }
): { readonly found: ReadonlyArray<Measured<C>>; readonly batches: ReadonlyArray<ReadonlyArray<C>> } => {
  const course = search(space, [start], options)
  const batches: Array<ReadonlyArray<C>> = []
  for (let step = course.next();;) {
    if (step.done === true) return { found: step.value, batches }
    batches.push(step.value)
    step = course.next(step.value.map(cost))
  }
}

/** A valley with its bottom at (17, 5). */
const valley = ([x, y]: readonly [number, number]): number => 10 + (x - 17) ** 2 + (y - 5) ** 2

describe("search", () => {
  it("walks down to the bottom, and does not look at everything", () => {
    const { found } = explore(plane(40), [1, 30], { cost: valley })
    assert.deepStrictEqual(found[0], { candidate: [17, 5], cost: 10 })
    assert.isBelow(found.length, 400)
  })

  it("measures nothing twice, and nothing that is not there", () => {
    const { batches } = explore(plane(8), [0, 0], { cost: valley })
    const all = batches.flat().map(String)
    assert.strictEqual(new Set(all).size, all.length)
    assert.isTrue(batches.flat().every(([x, y]) => x >= 0 && y >= 0 && x < 8 && y < 8))
  })

  it("takes the same course for the same costs and seed, another for another seed", () => {
    const course = (seed: number) =>
      String(explore(plane(40), [1, 30], { cost: valley, options: { ...usual, seed } }).batches)
    assert.strictEqual(course(1), course(1))
    assert.notStrictEqual(course(1), course(2))
  })

  it("goes around what cannot be had", () => {
    const wall = ([x, y]: readonly [number, number]): number => x === 9 && y < 39 ? Infinity : 2000
    const { found } = explore(plane(40), [1, 38], { cost: (p) => p[0] > 9 ? valley(p) : wall(p) })
    assert.deepStrictEqual(found[0]!.candidate, [17, 5])
  })

  it("stops at the number of candidates it is given, in batches of the size it is given", () => {
    const { batches, found } = explore(plane(40), [1, 30], { cost: valley, options: { ...usual, most: 12, batch: 5 } })
    assert.strictEqual(found.length, 12)
    assert.deepStrictEqual(batches.map((b) => b.length), [1, 4, 5, 2])
  })

  it("asks only for the neighbours of what is near the best", () => {
    const asked: Array<string> = []
    explore(plane(40, asked), [17, 6], { cost: valley, options: { ...usual, patience: 1 } })
    assert.deepStrictEqual(asked, ["17,6", "17,5"])
  })

  it("tries what is delayed after what is not", () => {
    const space: Space<number> = {
      keyOf: String,
      neighbours: (n) => n === 0 ? [1, 2, 3, 4].map((candidate) => ({ candidate, delay: candidate % 2 + 1 })) : [],
      accepts: () => true
    }
    const { batches } = explore(space, 0, { cost: () => 1, options: { ...usual, batch: 2, patience: 3 } })
    assert.deepStrictEqual(batches.map((b) => b.toSorted()), [[0], [2, 4], [1, 3]])
  })
})
