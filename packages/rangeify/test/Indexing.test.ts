import { assert, describe, it } from "@effect/vitest"
import * as Expr from "@tg/core-uop/Expr"
import { evaluateIndex } from "@tg/core-uop/Program"
import { type Dim, maxOf, print, type Shape } from "@tg/core-uop/Shape"
import { Arena, transfer, type UOp, varArg } from "@tg/core-uop/UOp"
import { extent, flatten, reshape } from "../src/Indexing.ts"

/** All shapes of these ranks with this many elements, ones included. */
const shapesOf = (elements: number, rank: number): ReadonlyArray<ReadonlyArray<number>> =>
  rank === 0
    ? elements === 1 ? [[]] : []
    : Array.from({ length: elements }, (_, i) => i + 1)
      .filter((d) => elements % d === 0)
      .flatMap((d) => shapesOf(elements / d, rank - 1).map((rest) => [d, ...rest]))

const indexVariables = (arena: Arena, shape: Shape): ReadonlyArray<UOp> =>
  shape.map((d, i) => Expr.variable(arena, `i${i}`, 0, Math.max(0, maxOf(d) - 1)))

type Vars = Readonly<Record<string, number>>
const sizes = (shape: Shape, vars: Vars): ReadonlyArray<number> => shape.map((d) => evaluateIndex(d, vars))

const unravel = (at: number, shape: ReadonlyArray<number>): ReadonlyArray<number> => {
  const index: Array<number> = []
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index[axis] = at % shape[axis]!
    at = Math.floor(at / shape[axis]!)
  }
  return index
}
const ravel = (index: ReadonlyArray<number>, shape: ReadonlyArray<number>): number =>
  index.reduce((at, i, axis) => at * shape[axis]! + i, 0)

/** Every element keeps its number in row-major order. */
const checkReshape = (arena: Arena, from: Shape, to: Shape, dims: Vars = {}): void => {
  const mapped = reshape(arena, from, to, indexVariables(arena, to))
  assert.strictEqual(mapped.length, from.length)
  const [source, target] = [sizes(from, dims), sizes(to, dims)]
  const count = target.reduce((n, d) => n * d, 1)
  for (let at = 0; at < count; at++) {
    const index = unravel(at, target)
    const vars = { ...dims, ...Object.fromEntries(index.map((i, axis) => [`i${axis}`, i])) }
    const got = mapped.map((x) => evaluateIndex(x, vars))
    if (ravel(got, source) !== at || got.some((i, axis) => i < 0 || i >= source[axis]!)) {
      assert.fail(`${print(from)} from ${print(to)} [${index.join()}]: [${got.join()}]`)
    }
  }
}

describe("Indexing", () => {
  it("reshape keeps every element's number: all pairs of shapes with up to 12 elements", () => {
    const arena = new Arena()
    let pairs = 0
    for (const elements of [1, 2, 3, 4, 6, 8, 12]) {
      const shapes = [0, 1, 2, 3, 4].flatMap((rank) => shapesOf(elements, rank))
      for (const from of shapes) {
        for (const to of shapes) {
          checkReshape(arena, from, to)
          pairs++
        }
      }
    }
    assert.isAbove(pairs, 6000)
  })

  it("reshape keeps the numbers of symbolic shapes, for every value", () => {
    const arena = new Arena()
    const n = Expr.variable(arena, "n", 1, 5)
    const twice: Dim = Expr.mul(n, 2)
    const cases: ReadonlyArray<readonly [Shape, Shape]> = [
      [[n, 4], [n, 2, 2]],
      [[n, 2, 2], [n, 4]],
      [[n, 1, 6], [n, 2, 3]],
      [[n, 6], [1, n, 3, 2]],
      [[4, n], [2, 2, n]],
      [[n, 2], [twice]],
      [[twice], [n, 2]],
      [[n, 3, 2], [twice, 3]]
    ]
    for (const [from, to] of cases) for (let value = 1; value <= 5; value++) checkReshape(arena, from, to, { n: value })
  })

  it("reshape leaves shared axes alone, so that no quotient appears", () => {
    const arena = new Arena()
    const [i, j, k] = indexVariables(arena, [5, 2, 3])
    assert.deepStrictEqual(reshape(arena, [5, 1, 2, 3], [5, 2, 3, 1], [i!, j!, k!, Expr.int(arena, 0)]), [
      i,
      Expr.int(arena, 0),
      j,
      k
    ])
  })

  it("flatten is row-major by the largest size of each dimension", () => {
    const arena = new Arena()
    const n = Expr.variable(arena, "n", 1, 5)
    const index = indexVariables(arena, [3, n, 4])
    const at = flatten(arena, [3, n, 4], index)
    for (let i = 0; i < 3; i++) {
      for (let j = 0; j < 5; j++) {
        for (let k = 0; k < 4; k++) {
          assert.strictEqual(evaluateIndex(at, { i0: i, i1: j, i2: k, n: 1 }), i * 20 + j * 4 + k)
        }
      }
    }
    assert.strictEqual(evaluateIndex(flatten(arena, [], []), {}), 0)
  })

  it("extent brings a symbolic size into the kernel's arena", () => {
    const arena = new Arena()
    const n = Expr.variable(new Arena(), "n", 1, 5)
    assert.strictEqual(extent(arena, n), transfer(n, arena))
    assert.strictEqual(varArg(extent(arena, n)).name, "n")
    assert.strictEqual(extent(arena, 7), Expr.int(arena, 7))
  })
})
