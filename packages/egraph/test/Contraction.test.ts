import * as Contraction from "@tg/egraph/Contraction"
import { describe, expect, it } from "vitest"

const { compose, contractFirst, expand, permute, print, product, reshape, sum } = Contraction

/** `[T, K] [N, K] -> [T, N]`, as the tensor library says it. */
const linear = (t: number, n: number, k: number) => {
  const all = [t, n, k]
  const x = compose(product(all, 2), 0, compose(expand([t, 1, k], all), 0, reshape([t, k], [t, 1, k])!)!)!
  const both = compose(x, 0, compose(expand([1, n, k], all), 0, reshape([n, k], [1, n, k])!)!)!
  return compose(sum(all, [2]), 0, both)!
}

describe("Contraction", () => {
  it("is what a product of matrices is, however it is written", () => {
    expect(print(linear(2, 3, 4))).toBe("a c, b c -> a b")
  })

  it("cuts axes where both sides can, and joins what never parts", () => {
    expect(print(reshape([6, 4], [2, 3, 4])!)).toBe("(ab) c -> a b c")
    expect(print(reshape([6, 4], [3, 8])!)).toBe("(ab) c -> a (bc)")
    expect(reshape([6], [4, 2])).toBeUndefined()
    const back = compose(reshape([2, 3, 4], [6, 4])!, 0, reshape([6, 4], [2, 3, 4])!)!
    expect(Contraction.isIdentity(back)).toBe(true)
  })

  it("undoes permutations", () => {
    const there = permute([2, 3, 4], [2, 0, 1])
    const back = permute([4, 2, 3], [1, 2, 0])
    expect(Contraction.isIdentity(compose(back, 0, there)!)).toBe(true)
  })

  it("splits off what it is told, and composes to the same again", () => {
    const nested = compose(linear(5, 2, 3), 0, linear(5, 3, 4))!
    const { inner, outer } = contractFirst(nested, [0, 1])
    const again = compose(outer, outer.operands.length - 1, inner)!
    expect(Contraction.key(Contraction.reorder(again, [1, 2, 0]))).toBe(Contraction.key(nested))
  })

  it("knows which operands are a sum of their own, and which only scale one", () => {
    // sum over b and c of x[a] y[a, b] z[b, c]
    const c = Contraction.normalise({ sizes: [2, 3, 4], operands: [[[0]], [[0], [1]], [[1], [2]]], output: [[0]] })
    const { isSumOf } = Contraction
    expect([[2], [1, 2]].map((chosen) => isSumOf(c, chosen))).toEqual([true, true])
    expect([[0], [1], [0, 1], [0, 2], [0, 1, 2]].map((chosen) => isSumOf(c, chosen))).toEqual(Array(5).fill(false))
  })

  it("keeps a sum over an index that nothing reads: it multiplies", () => {
    const c = compose(sum([3, 4], [1]), 0, expand([3, 1], [3, 4]))!
    expect(Contraction.summed(c)).toHaveLength(1)
    expect(Contraction.contractFirst(c, [0]).outer.sizes).toEqual([3, 4])
  })
})
