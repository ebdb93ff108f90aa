import { assert, describe, it } from "@effect/vitest"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import * as Opt from "@tg/postrange/Opt"
import { guard } from "../src/Guards.ts"
import * as Kernels from "./support/kernels.ts"
import { cpu, expanded, gpu, linear } from "./support/stages.ts"

const { group, local, unroll } = Opt

const guardsOf = (kernel: UOp): ReadonlyArray<string> =>
  toposort(kernel).flatMap((node) =>
    node.is("RANGE") && node.src[0]!.op === "WHERE" ? [`${node.src[0]!.src[1]!.arg}`] : []
  )

const gatesOf = (kernel: UOp): number =>
  toposort(kernel).filter((node) => node.op === "LOAD" && accessOf(node).gate !== undefined).length

describe("sums of a record's columns", () => {
  for (const opts of [[], [local(0, 5)], [unroll(1, 2)], [local(0, 5), unroll(1, 4)], [group(1, 2)]]) {
    it(`keep their values under ${opts.map(Opt.print).join(", ") || "no opts"}`, () => {
      const kernel = Kernels.columns()
      assert.deepStrictEqual(Kernels.runLinear(linear(kernel, opts, gpu), kernel), Kernels.run(kernel))
    })
  }

  it("have loops that only their own columns enter, whose loads need no gate", () => {
    const before = expanded(Kernels.columns(), [local(0, 5), unroll(1, 2)], gpu)
    assert.isAbove(gatesOf(before), 0)
    const after = guard(before)
    assert.deepStrictEqual(guardsOf(after), ["4", "4"])
    assert.strictEqual(gatesOf(after), 0)
  })

  it("have one loop on a processor, as before", () => {
    const instructions = linear(Kernels.columns(), [], cpu).src
    assert.isFalse(instructions.some((node) => node.is("RANGE") && node.src[0]!.op === "WHERE"))
  })

  it("keep the gate of a load that is hoisted out of the loop", () => {
    const kernel = Kernels.columns({ scale: "ofColumn" })
    const after = guard(expanded(kernel, [local(0, 5)], gpu))
    assert.deepStrictEqual(guardsOf(after), ["8", "8"])
    assert.strictEqual(gatesOf(after), 1)
    assert.deepStrictEqual(Kernels.runLinear(linear(kernel, [local(0, 5)], gpu), kernel), Kernels.run(kernel))
  })
})

describe("what is not left out", () => {
  it("is a sum that is not zero without its loads", () => {
    const before = expanded(Kernels.columns({ scale: "plusOne" }), [local(0, 5)], gpu)
    // the column beside them is still left out by the others
    assert.strictEqual(guardsOf(guard(before)).length, 1)
  })

  it("is a condition that changes with the loop", () => {
    const before = expanded(Kernels.columns({ scale: "untilColumn" }), [local(0, 5)], gpu)
    assert.strictEqual(guardsOf(guard(before)).length, 1)
  })
})

describe("a kernel without conditions", () => {
  it("is itself", () => {
    const before = expanded(Kernels.sums(), [], gpu)
    assert.strictEqual(guard(before), before)
  })
})
