import { assert, describe, it } from "@effect/vitest"
import * as DType from "../src/DType.ts"
import * as Expr from "../src/Expr.ts"
import { Arena, argOf, rangeArg, rebuild, slotOf, substitute, toposort } from "../src/UOp.ts"
import { accessOf, endsOf, fixedSize, storeOf } from "../src/View.ts"

const arena = new Arena()
const i = Expr.range(arena, 8, 0, "GLOBAL")
const buffer = arena.make("PARAM", DType.f32, [Expr.int(arena, 8)], { slot: 3 })
const gate = Expr.lt(i, 5)
const load = Expr.load(Expr.element(buffer, i, gate))
const store = Expr.store(Expr.element(buffer, i), load)
const end = arena.make("END", DType.none, [store, i])
const kernel = arena.make("SINK", DType.none, [end])

describe("View", () => {
  it("takes a kernel apart by name", () => {
    assert.deepStrictEqual(endsOf(kernel).map((e) => [e.node, e.stores, e.loops]), [[end, [store], [i]]])
    assert.deepStrictEqual(accessOf(load), { element: load.src[0]!, buffer, at: i, gate })
    assert.deepStrictEqual(storeOf(store), { element: store.src[0]!, buffer, at: i, gate: undefined, value: load })
    const both = arena.make("END", DType.none, [arena.make("TUPLE", DType.none, [store, store]), i])
    assert.deepStrictEqual(endsOf(kernel.with([both]))[0]!.stores, [store, store])
    assert.deepStrictEqual([fixedSize(i), fixedSize(Expr.range(arena, i, 1, "LOOP"))], [8, undefined])
  })
})

describe("args", () => {
  it("have the type of their operation", () => {
    const node = Expr.int(arena, 7)
    if (!node.is("CONST")) throw new Error("a constant")
    const value: number | boolean = node.arg
    assert.strictEqual(value, 7)
    assert.isFalse(node.is("RANGE"))
    assert.deepStrictEqual(rangeArg(i), { id: 0, axis: "GLOBAL" })
    assert.strictEqual(slotOf(buffer), 3)
  })
  it("of another operation are a defect that names both", () => {
    assert.throws(() => argOf(load, "PARAM"), "LOAD stands where PARAM is expected")
  })
})

describe("rebuild", () => {
  it("makes equal nodes once, sources first, and shares what does not change", () => {
    const order: Array<string> = []
    const same = rebuild(kernel, (node, src) => {
      order.push(node.op)
      return node.with(src)
    })
    assert.strictEqual(same, kernel)
    assert.deepStrictEqual(order, toposort(kernel).map((node) => node.op))
  })
  it("does not look below what has become something already", () => {
    const seen: Array<string> = []
    const zero = Expr.constant(arena, DType.f32, 0)
    const after = rebuild(store, (node, src, now) => {
      seen.push(node.op)
      assert.strictEqual(now(load), zero)
      return node.with(src)
    }, new Map([[load, zero]]))
    assert.strictEqual(after, Expr.store(Expr.element(buffer, i), zero))
    assert.strictEqual(after, substitute(store, new Map([[load, zero]])))
    assert.notInclude(seen, "CMPLT")
  })
})
