import { assert, describe, it } from "@effect/vitest"
import type { Op } from "@tg/core-uop/Op"
import * as Spec from "@tg/core-uop/Spec"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import { gradients } from "../src/Grad.ts"
import { type Row, type Rule, standard } from "../src/Rules.ts"
import { type Case, type Contents, contentsOf, evaluate, noise, randomCase } from "./random.ts"

/** The inputs moved along a direction. */
const moved = (contents: Contents, inputs: ReadonlyArray<Tensor>, step: number, seed: number): Contents => {
  const next = noise(seed)
  const floats = new Map(
    inputs.map(({ node }) => [node, Float64Array.from(contents.get(node)!, (x) => x + step * next())])
  )
  return new Map([...contents].map(([node, data]) => [node, floats.get(node) ?? data]))
}

/** The sum of `gradient * direction`, and of its terms' magnitudes. */
const along = (
  values: ReadonlyArray<ArrayLike<number>>,
  contents: Contents,
  inputs: ReadonlyArray<Tensor>,
  seed: number
) => {
  const next = noise(seed)
  let sum = 0
  let size = 0
  inputs.forEach(({ node }, i) => {
    // a buffer with symbolic sizes has room for the largest: what is behind the sizes has no gradient
    for (let at = 0; at < contents.get(node)!.length; at++) {
      const term = next() * (values[i]![at] ?? 0)
      sum += term
      size += Math.abs(term)
    }
  })
  return { sum, size }
}

const step = 1e-5

/**
 * The error of a central difference, by its causes: doubles of the loss's size lose 2^-52 of it (some hundred operations deep: 2^-44),
 * over the step; and the third derivative, over a step of 1e-5, is 1e-10 of values whose scale is 1 and whose derivatives grow by at
 * most some hundred with each order.
 */
const tolerance = (loss: number, size: number): number => 2 ** -44 * (1 + Math.abs(loss)) / step + 1e-6 * (1e-3 + size)

/** Differences on both sides, where they agree: where they do not, a maximum changes its mind within the step. */
const difference = (tested: Case, contents: Contents, seed: number) => {
  const at = (by: number): number =>
    Number(evaluate([tested.loss], moved(contents, tested.inputs, by, seed), tested.random.vars)[0]![0])
  const [before, here, after] = [at(-step), at(0), at(step)]
  return { central: (after - before) / (2 * step), bend: (after - 2 * here + before) / step, here }
}

/** The rules, and which of them were used. */
const listening = () => {
  const used = new Set<string>()
  const rules = new Map<Op, Row>()
  for (const [op, row] of standard) {
    const told: Rule = (node, g) => {
      used.add(op)
      return row === "stop" ? [] : row(node, g)
    }
    rules.set(op, row === "stop" ? row : told)
  }
  return { rules, used }
}

describe("gradients of 200 random programs", () => {
  it("are those of central differences in double precision", () => {
    let compared = 0
    let bent = 0
    let flat = 0
    const { rules, used } = listening()
    for (let seed = 1; seed <= 200; seed++) {
      const tested = randomCase(seed, 14)
      const made = gradients(tested.loss, tested.inputs, { rules })
      const outputs = made.map((g, i) => buffer(g.arena, 1000 + i, { shape: g.shape, dtype: g.dtype }))
      if (made.length === 0) continue
      const { sink } = Program.make(made.map((g, i) => Program.assign(outputs[i]!, g)))
      assert.deepStrictEqual(Spec.check("tensor", sink), [], `seed ${seed}`)
      const contents = contentsOf(tested, seed)
      const values = evaluate(made, contents, tested.random.vars)
      for (const direction of [1, 2]) {
        const { bend, central, here } = difference(tested, contents, direction)
        const { size, sum } = along(values, contents, tested.inputs, direction)
        if (Math.abs(bend) > 1e-2 * (1e-3 + size)) {
          bent++
          continue
        }
        compared++
        if (size < 1e-3) flat++
        assert.closeTo(sum, central, tolerance(here, size), `seed ${seed}, direction ${direction}`)
      }
    }
    assert.isAtLeast(compared, 380)
    assert.isAtMost(flat, 20)
    assert.isAtMost(bent, 8)
    const unused = [...standard].filter(([op, row]) => row !== "stop" && !used.has(op)).map(([op]) => op)
    // these have tests of their own
    assert.deepStrictEqual(unused, ["MIN", "MULACC", "BITCAST", "CONTIGUOUS"])
  })
})
