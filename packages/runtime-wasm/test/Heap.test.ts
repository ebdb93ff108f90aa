import { assert, describe, it } from "@effect/vitest"
import { Heap } from "../src/internal/Heap.ts"

const limit = 2 ** 20

describe("Heap", () => {
  it("aligns to a vector and gives nothing beyond the limit", () => {
    const heap = new Heap()
    assert.deepStrictEqual([heap.allocate(4, limit), heap.allocate(20, limit), heap.allocate(0, limit)], [0, 16, 48])
    assert.strictEqual(heap.allocate(limit - 63, limit), undefined)
    assert.strictEqual(heap.allocate(limit - 64, limit), 64)
  })

  it("merges freed neighbours, in any order", () => {
    for (const order of [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]]) {
      const heap = new Heap()
      const offsets = [0, 1, 2].map(() => heap.allocate(32, limit)!)
      heap.allocate(16, limit)
      for (const i of order) heap.release(offsets[i]!, 32)
      assert.strictEqual(heap.largestFree, 96)
      assert.strictEqual(heap.allocate(96, limit), 0)
    }
  })

  it("takes the smallest block that fits", () => {
    const heap = new Heap()
    const large = heap.allocate(64, limit)!
    heap.allocate(16, limit)
    const small = heap.allocate(32, limit)!
    heap.allocate(16, limit)
    heap.release(large, 64)
    heap.release(small, 32)
    assert.strictEqual(heap.allocate(32, limit), small)
    assert.strictEqual(heap.allocate(32, limit), large)
  })

  it("shrinks to nothing, and blocks never overlap", () => {
    const heap = new Heap()
    const live = new Map<number, number>()
    let seed = 1
    const random = (n: number): number => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
      return Math.floor(seed / 2 ** 32 * n)
    }
    for (let step = 0; step < 3000; step++) {
      if (live.size > 0 && random(40) < live.size) {
        const [offset, bytes] = [...live][random(live.size)]!
        heap.release(offset, bytes)
        live.delete(offset)
        continue
      }
      const bytes = random(200)
      const offset = heap.allocate(bytes, limit)!
      const overlapping = [...live].filter(([o, n]) => o < offset + bytes && offset < o + n)
      assert.deepStrictEqual(overlapping, [])
      live.set(offset, bytes)
    }
    for (const [offset, bytes] of live) heap.release(offset, bytes)
    assert.strictEqual(heap.end, 0)
    assert.strictEqual(heap.largestFree, 0)
  })
})
