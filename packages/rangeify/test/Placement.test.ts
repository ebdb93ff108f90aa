import { assert, describe, it } from "@effect/vitest"
import * as Program from "@tg/tensor/Program"
import { toposort } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import { randomProgram } from "@tg/tensor/Random"
import * as Tensor from "@tg/tensor/Tensor"
import { place } from "../src/Placement.ts"
import { nodesOf, storageOf } from "../src/Values.ts"
import { graphs } from "./support/graphs.ts"
import { Build, joined, runSchedule, runTensor, scheduled } from "./support/programs.ts"

/** Kernels of each graph. A smaller number is progress, a larger one a regression: change them knowingly. */
const kernelCounts: Readonly<Record<string, number>> = {
  "elementwise chain": 1,
  "views only": 1,
  "sum of an expression": 1,
  "mean, then elementwise work at the same place": 1,
  "two reductions of one value": 1,
  "a reduction of a reduction": 2,
  "a reduction of a broadcast reduction": 2,
  softmax: 3,
  rmsNorm: 2,
  linear: 1,
  "linear with a dequantised weight": 1,
  // the norm and the rounding share one
  "a norm, then products with activations of 8 bits": 3,
  "rmsNorm, then linear": 2,
  "mlp with silu": 2,
  "residual around an mlp": 3,
  // so few elements that the probabilities are computed where they are used
  attention: 4,
  "top 2 of 8": 4,
  "gather of rows": 1,
  "gather of computed rows": 1,
  "linear with a gathered weight": 1,
  "a cheap value of two outputs": 2,
  "a sum of two outputs": 3,
  "a sum used twice in one kernel": 1,
  "cat and pad": 1,
  "an explicit copy": 2,
  "a write and a read after it": 2,
  "a sum over a symbolic axis": 1
}

describe("Placement", () => {
  it("has an expectation for every graph", () =>
    assert.deepStrictEqual(Object.keys(kernelCounts).toSorted(), Object.keys(graphs).toSorted()))

  for (const [name, count] of Object.entries(kernelCounts)) {
    it(`${name}: ${count} ${count === 1 ? "kernel" : "kernels"}, right values`, () => {
      const { sink } = Program.make(graphs[name]!(new Build()))
      const made = scheduled(sink)
      assert.strictEqual(made.steps.length, count, made.steps.map((s) => s.name).join())
      const vars = { n: 3, at: 2 }
      const want = runTensor(sink, vars)
      const got = runSchedule(sink, made, vars)
      for (const [id, data] of want) {
        // the same operations in another order: sums of at most 64 floats
        data.forEach((x, i) => assert.closeTo(got.get(id)![i]!, x, 1e-5 * Math.abs(x) + 1e-6, `buffer ${id}[${i}]`))
      }
    })
  }

  it("stores the operand of a view, not the view", () => {
    const b = new Build()
    const sum = b.f32(4, 6).sum(1)
    const effect = b.out(sum.reshape([2, 2, 1]).expand([2, 2, 3]).mul(b.f32(2, 2, 3)))
    const { stored } = place([effect.node], [], 7)
    assert.deepStrictEqual([...stored], [sum.node])
  })

  it("inlines a transcendental that few elements repeat, stores one that many do", () => {
    const storedOf = (copies: number): number => {
      const b = new Build()
      const effect = b.out(b.f32(4, 1).sin().expand([4, copies]).mul(b.f32(4, copies)))
      return place([effect.node], [], 7).stored.size
    }
    // 8 repeats are many, but not of 4096 elements in all
    assert.strictEqual(storedOf(4), 0)
    assert.strictEqual(storedOf(1024), 0)
    assert.strictEqual(storedOf(2048), 1)
  })

  describe("products of one value", () => {
    /** What of a product is written as it is, beside a product that is read twice. */
    const written = (other: "of the same" | "of another", then: (value: Tensor.Tensor) => Tensor.Tensor) => {
      const b = new Build()
      const [x, y] = [b.f32(1, 64), b.f32(1, 64)]
      const key = Nn.linear(x, b.f32(32, 64))
      const value = Nn.linear(other === "of the same" ? x : y, b.f32(32, 64)).add(b.f32(32))
      const turned = key.mul(2).add(key.flip(-1).mul(3))
      const effect = Program.assign(b.f32(2, 32), Nn.cat([turned, then(value)], 0))
      return { value, effect, placed: place([effect.node], [], 7) }
    }

    it("are stored together, though a write is all that reads one of them: they move when all else has", () => {
      const { effect, placed, value } = written("of the same", (v) => v)
      assert.isTrue(placed.stored.has(value.node))
      assert.isTrue(placed.movable.has(value.node))
      assert.deepStrictEqual(placed.causeOf(value.node), { _tag: "Sibling" })
      assert.strictEqual(placed.siblings.size, 2)
      // one launch of both, and the write
      const made = joined(Program.make([effect]).sink)
      assert.strictEqual(made.steps.length, 2, made.steps.map((s) => s.name).join())
      assert.deepStrictEqual(runSchedule(Program.make([effect]).sink, made), runTensor(Program.make([effect]).sink))
    })

    it("are not, where they read something else, or more is done with them", () => {
      const other = written("of another", (v) => v)
      assert.isFalse(other.placed.stored.has(other.value.node))
      const summed = written("of the same", (v) => v.sum({ axis: -1, keepDims: true }).expand([1, 32]))
      assert.strictEqual(summed.placed.siblings.size, 0)
    })
  })

  it("computes first what is read in another order than it is overwritten", () => {
    const b = new Build()
    const state = b.f32(6)
    const effect = Program.assign(state, state.flip(0).add(1))
    const { sink } = Program.make([effect])
    assert.strictEqual(scheduled(sink).steps.length, 2)
    assert.deepStrictEqual(runSchedule(sink).get(0), runTensor(sink).get(0))
  })

  it("keeps every kernel within the buffers it may bind", () => {
    for (const limit of [2, 3, 4, 8]) {
      const b = new Build()
      const sum = Array.from({ length: 20 }, () => b.f32(4)).reduce((x, y) => x.add(y))
      const { sink } = Program.make([b.out(sum)])
      if (limit === 2) {
        assert.throws(() => scheduled(sink, limit))
        continue
      }
      const made = scheduled(sink, limit)
      for (const step of made.steps) assert.isAtMost(step.args.length, limit)
      assert.deepStrictEqual(runSchedule(sink, made), runTensor(sink))
    }
  })

  it("does not take what a kernel writes for one of the buffers that it reads", () => {
    const b = new Build()
    const sum = Array.from({ length: 7 }, () => b.f32(4)).reduce((x, y) => x.add(y))
    const made = scheduled(Program.make([b.out(sum)]).sink, 8)
    assert.deepStrictEqual(made.steps.map(({ args }) => args.length), [8])
  })

  it("keeps random programs within 4 buffers a kernel: no operation needs more", () => {
    for (let seed = 0; seed < 150; seed++) {
      for (const step of scheduled(randomProgram(seed, 40).program.sink, 4).steps) assert.isAtMost(step.args.length, 4)
    }
  })

  it("recomputes constants, even those that a call wants in memory", () => {
    const b = new Build()
    const half = Tensor.full(b.arena, [4], 0.5)
    const [y] = Program.call("scale", [b.f32(4), half], (x, by) => [x!.mul(by!)])
    const made = scheduled(Program.make([b.out(y!.mul(half))]).sink)
    assert.strictEqual(made.steps.at(-1)!.args.length, 2)
  })

  it("does not enter the bodies of calls", () => {
    const b = new Build()
    const [y] = Program.call("twice", [b.f32(4)], (x) => [x!.mul(2)])
    const effect = b.out(y!)
    assert.isFalse(nodesOf([effect.node]).some((n) => n.op === "PARAM"))
    assert.isTrue(toposort(effect.node).some((n) => n.op === "PARAM"))
  })

  it("finds the memory under views and orderings", () => {
    const b = new Build()
    const state = b.f32(4, 2)
    const written = Program.after(state, [Program.assign(state, b.f32(4, 2))])
    assert.strictEqual(storageOf(written.transpose().flip(0).slice(0, 1, 1).node), state.node)
    const padded = state.pad([[1, 0], [0, 0]])
    assert.strictEqual(storageOf(padded.node), padded.node)
  })
})
