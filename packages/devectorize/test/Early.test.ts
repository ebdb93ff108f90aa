import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { run, runLinear } from "./support/kernels.ts"
import { listing } from "./support/listing.ts"
import { gpu, linear } from "./support/stages.ts"

const size = 8

/** r0, r1, r2 < 8: `y[r0] = 2 x[r0]` in workgroup memory, `out[r1] = sum(y[r2] w[r1, r2]) + x[r1] + t[order[r1]]` */
const staged = (): UOp => {
  const arena = new Arena()
  const param = (slot: number, length: number, dtype: DType.DType = DType.f32): UOp =>
    arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
  const memory = arena.make("LOCAL", DType.f32, [], { id: 0, length: size })
  const x = (at: UOp): UOp => Expr.load(Expr.element(param(1, size), at))
  const end = (element: UOp, value: UOp, loop: UOp): UOp =>
    arena.make("END", DType.none, [Expr.store(element, value), loop])
  const [i, j, k] = [
    Expr.range(arena, size, 0, "LOOP"),
    Expr.range(arena, size, 1, "GLOBAL"),
    Expr.range(arena, size, 2, "REDUCE")
  ]
  const w = Expr.load(Expr.element(param(2, size * size), Expr.add(Expr.mul(j, size), k)))
  const chosen = Expr.load(Expr.element(param(4, size, DType.i32), j))
  const t = Expr.load(Expr.element(param(3, size), Expr.floormod(Expr.cast(chosen, DType.index), size)))
  const sum = Expr.reduce("ADD", Expr.mul(Expr.load(Expr.element(memory, k)), w), [k])
  return arena.make("SINK", DType.none, [
    end(Expr.element(memory, i), Expr.mul(x(i), 2), i),
    end(Expr.element(param(0, size), j), Expr.add(Expr.add(sum, x(j)), t), j)
  ])
}

/** r0 < 8, r1 < 32: `out[r0] = sum(x[r0, r1]) * y[r0]` */
const scaled = (): UOp => {
  const arena = new Arena()
  const param = (slot: number, length: number): UOp =>
    arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
  const [i, k] = [Expr.range(arena, size, 0, "GLOBAL"), Expr.range(arena, 32, 1, "REDUCE")]
  const x = Expr.load(Expr.element(param(1, 32 * size), Expr.add(Expr.mul(i, 32), k)))
  const value = Expr.mul(Expr.reduce("ADD", x, [k]), Expr.load(Expr.element(param(2, size), i)))
  return arena.make("SINK", DType.none, [
    arena.make("END", DType.none, [Expr.store(Expr.element(param(0, size), i), value), i])
  ])
}

describe("loads in front of barriers", () => {
  const opts = [Opt.local(0, size), Opt.local(1, size)]
  /** The loads of each argument in front of the barrier and behind it. */
  const loads = (kernel: UOp): ReadonlyArray<ReadonlyArray<string>> => {
    const text = listing(kernel).join("\n").split("barrier")
    assert.strictEqual(text.length, 2)
    return text.map((part) => [...part.matchAll(/= (p\d)\[/g)].map((found) => found[1]!))
  }

  it("are those at places that are known then", () => {
    const [before, behind] = loads(linear(staged(), [...opts, Opt.unroll(2, size)], gpu))
    // what is staged and what is added are one load; which one is chosen is known, but not what
    assert.sameMembers([...before!], ["p1", ...Array.from({ length: size }, () => "p2"), "p4"])
    assert.deepStrictEqual(behind, ["p3"])
  })

  it("are none of a loop", () => {
    const [before, behind] = loads(linear(staged(), opts, gpu))
    assert.sameMembers([...before!], ["p1", "p4"])
    assert.sameMembers([...behind!], ["p2", "p3"])
  })

  it("are those that follow a sum over the threads of several subgroups, too", () => {
    assert.deepStrictEqual(loads(linear(scaled(), [Opt.group(1, 32)], { ...gpu, subgroupSize: 8 })), [["p2", "p1"], []])
    // threads of one subgroup do not meet
    const text = listing(linear(scaled(), [Opt.group(1, 32)], { ...gpu, subgroupSize: 32 })).join("\n")
    assert.deepStrictEqual([...text.matchAll(/= (p\d)\[/g)].map((found) => found[1]!), ["p1", "p2"])
  })

  it("leave the values as they are", () => {
    const kernel = staged()
    for (const more of [[], [Opt.unroll(2, 4)], [Opt.unroll(2, size)]]) {
      assert.deepStrictEqual(runLinear(linear(kernel, [...opts, ...more], gpu), kernel), run(kernel))
    }
  })
})
