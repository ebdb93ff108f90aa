import { assert, describe, it } from "@effect/vitest"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import type { UOp } from "@tg/core-uop/UOp"
import { orderHazards, writtenParams } from "../src/Hazards.ts"
import { RangeifyError, schedule } from "../src/Rangeify.ts"
import { Build, runSchedule, runTensor, scheduled } from "./support/programs.ts"

const agrees = (effects: ReadonlyArray<Tensor.Tensor>, vars: Readonly<Record<string, number>> = {}): void => {
  const { sink } = Program.make(effects)
  assert.deepStrictEqual(runSchedule(sink, scheduled(sink), vars), runTensor(sink, vars))
}

/** Which program the effects make, in both orders. */
const inBothOrders = (make: (b: Build) => readonly [Tensor.Tensor, Tensor.Tensor]): void => {
  agrees(make(new Build()))
  agrees(make(new Build()).toReversed())
}

describe("Hazards", () => {
  it("writes before it reads the new state", () =>
    inBothOrders((b) => {
      const [state, x] = [b.f32(4), b.f32(4)]
      const write = Program.assign(state, x.mul(2))
      return [write, b.out(Program.after(state, [write]).add(1))]
    }))

  it("reads the old state before it overwrites it", () =>
    inBothOrders((b) => {
      const [state, x] = [b.f32(4), b.f32(4)]
      return [Program.assign(state, x.mul(2)), b.out(state.add(1))]
    }))

  it("reads the old state in a stored value before it overwrites it", () =>
    inBothOrders((b) => {
      const [state, x] = [b.f32(4, 3), b.f32(4, 3)]
      const sum = state.sum({ axis: 1, keepDims: true })
      return [Program.assign(state, x), b.out(x.mul(sum))]
    }))

  it("swaps two buffers, through a copy of one of them", () => {
    const swap = (b: Build, copy: (x: Tensor.Tensor) => Tensor.Tensor): ReadonlyArray<Tensor.Tensor> => {
      const [x, y] = [b.f32(4), b.f32(4)]
      return [Program.assign(x, y), Program.assign(y, copy(x))]
    }
    agrees(swap(new Build(), (x) => x.contiguous()))
    const result = schedule(Program.make(swap(new Build(), (x) => x)).sink, { maxStorageBuffers: 8 })
    assert.instanceOf(result, RangeifyError)
  })

  it("overwrites in the order that `after` gives", () => {
    const b = new Build()
    const [state, x] = [b.f32(8), b.f32(8)]
    const first = Program.assign(state, x.mul(2))
    const once = Program.after(state, [first])
    const second = Program.assign(once.slice(0, 2, 3), once.slice(0, 2, 3).add(100))
    agrees([second, first, b.out(Program.after(once, [second]).neg())])
  })

  it("lets a store read the old state of its own target", () => {
    const b = new Build()
    const state = b.f32(8)
    const write = Program.assign(state, state.mul(2).add(1))
    agrees([write])
  })

  it("orders writes inside of calls too", () => {
    const b = new Build()
    const at = Tensor.variable(b.arena, "at", 0, 7)
    const [cache, x] = [b.f32(8, 2), b.f32(1, 2)]
    const push = (state: Tensor.Tensor, row: Tensor.Tensor) =>
      Program.call("push", [state, row, at], (c, r, i) => {
        const effect = Program.assign(c!.slice(0, i!, 1), r!.mul(2))
        return [Program.after(c!, [effect]).sum(0), effect]
      })
    const [sum, effect] = push(cache, x)
    agrees([b.out(cache.sum(0)), effect!, b.out(sum!.add(Program.after(cache, [effect!]).sum(0)))], { at: 3 })
  })

  it("writes rows by their numbers, and orders reads of the numbers and of the rows around it", () =>
    inBothOrders((b) => {
      const [cache, x, rows] = [b.f32(6, 2), b.f32(3, 2), Tensor.iota(b.arena, 3)]
      const order = b.u32(3)
      // an order of their own for each row: 5, 3, 1 and what the numbers add
      const numbers = rows.mul(-2).add(5).cast(order.dtype)
      const write = Program.assign(cache.gather(numbers), x.mul(2))
      const renumbered = Program.assign(order, numbers.add(order))
      return [
        write,
        b.out(Program.after(cache, [write]).sum(0).add(Program.after(order, [renumbered]).sum().cast(x.dtype)))
      ]
    }))

  it("reads the numbers of rows before they are overwritten", () => {
    const b = new Build()
    const [cache, x] = [b.f32(4096, 2), b.f32(2, 2)]
    const rows = b.u32(2)
    const write = Program.assign(cache.gather(rows), x)
    agrees([Program.assign(rows, rows.add(1)), write, b.out(Program.after(cache, [write]).sum(0))])
  })

  it("says so when one kernel needs both states", () => {
    const b = new Build()
    const [state, x] = [b.f32(4), b.f32(4)]
    const write = Program.assign(state, x)
    const both = (old: Tensor.Tensor): UOp => Program.make([b.out(old.add(Program.after(state, [write])))]).sink
    const error = schedule(both(state), { maxStorageBuffers: 8 })
    assert.instanceOf(error, RangeifyError)
    assert.strictEqual((error as RangeifyError).reason, "OrderCycle")
    assert.include((error as RangeifyError).message, "contiguous()")
    const copied = both(state.contiguous())
    assert.deepStrictEqual(runSchedule(copied), runTensor(copied))
  })

  it("keeps the order of steps that share nothing", () => {
    const b = new Build()
    const steps = [b.out(b.f32(4)), b.out(b.f32(4)), b.out(b.f32(4))].map((e) => e.node)
    assert.deepStrictEqual(orderHazards(steps), [0, 1, 2])
  })

  it("knows which parameters a body writes, through nested calls", () => {
    const b = new Build()
    const [result] = Program.call("outer", [b.f32(4), b.f32(4), b.f32(4)], (x, y, z) => {
      const [, inner] = Program.call("inner", [y!, z!], (p, q) => [p!.add(1), Program.assign(q!, p!)])
      return [x!.add(1), inner!]
    })
    assert.deepStrictEqual([...writtenParams(result!.node.src[0]!.src[0]!)], [2])
  })
})
