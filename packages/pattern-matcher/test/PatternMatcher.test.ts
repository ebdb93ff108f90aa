import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { describe, expect, it } from "vitest"
import { concat, make, rule, rules } from "../src/PatternMatcher.ts"
import * as P from "../src/UPat.ts"

const arena = new Arena()
const v = Expr.variable(arena, "v", 0, 9)
const w = Expr.variable(arena, "w", 0, 9)
const marker = Expr.int(arena, 777)

/** Whether a pattern matches a node. */
const matches = (pattern: P.UPat<string>, node: UOp): boolean =>
  make(rules("t", [rule("r", pattern, () => marker)])).rewrite(node, undefined) === marker

/** What a pattern captures. */
const captures = (pattern: P.UPat<string>, node: UOp): Record<string, UOp> | undefined => {
  let seen: Record<string, UOp> | undefined
  make(rules("t", [rule("r", pattern, (c) => {
    seen = { ...c }
    return marker
  })])).rewrite(node, undefined)
  return seen
}

describe("UPat", () => {
  it("matches by operation", () => {
    expect(matches(P.node("ADD"), Expr.add(v, w))).toBe(true)
    expect(matches(P.node("ADD", "SUB"), Expr.sub(v, w))).toBe(true)
    expect(matches(P.node("MUL"), Expr.add(v, w))).toBe(false)
  })
  it("matches by scalar type", () => {
    expect(matches(P.ofType(P.anything, "index"), v)).toBe(true)
    expect(matches(P.ofType(P.anything, "f32", "i32"), v)).toBe(false)
  })
  it("compares args: -0 is not 0, false is not 0, records by value", () => {
    const f = (x: number): UOp => Expr.constant(arena, DType.f32, x)
    expect(matches(P.withArg(P.node("CONST"), 0), f(0))).toBe(true)
    expect(matches(P.withArg(P.node("CONST"), 0), f(-0))).toBe(false)
    expect(matches(P.zero, f(-0))).toBe(false)
    expect(matches(P.zero, Expr.constant(arena, DType.bool, false))).toBe(false)
    expect(matches(P.no, Expr.constant(arena, DType.bool, false))).toBe(true)
    expect(matches(P.withArg(P.node("VAR"), { name: "v", min: 0, max: 9 }), v)).toBe(true)
    expect(matches(P.withArg(P.node("VAR"), { name: "v", min: 0, max: 8 }), v)).toBe(false)
  })
  it("captures constants whose arg is a number, and vectors of equal constants only where asked", () => {
    const float = Expr.constant(arena, DType.f32, 2)
    const x = Expr.cast(v, DType.f32)
    const scalar = Expr.mul(x, float)
    const vector = Expr.mul(Expr.splat(x, 4), Expr.splat(float, 4))
    const doubled = make(rules("t", [
      rule("double", P.mul(P.any("x"), P.constant("a")), ({ a }, node) => Expr.like(node, 2 * Number(a.arg)))
    ]))
    expect(doubled.rewrite(scalar, undefined)).toBe(Expr.constant(arena, DType.f32, 4))
    // the arg of a vector is undefined, and 2 * undefined is NaN
    expect(doubled.rewrite(vector, undefined)).toBe(undefined)
    const both = make(rules("t", [
      rule("double", P.mul(P.any("x"), P.uniform("a")), ({ a }, node) => Expr.like(node, 2 * Number(P.valueOf(a))))
    ]))
    expect(both.rewrite(scalar, undefined)).toBe(Expr.constant(arena, DType.f32, 4))
    expect(both.rewrite(vector, undefined)).toBe(Expr.splat(Expr.constant(arena, DType.f32, 4), 4))
    expect(P.valueOf(Expr.splat(float, 4))).toBe(2)
    expect(P.valueOf(v)).toBe(undefined)
  })
  it("captures by name; the same name is the same node", () => {
    const x = P.any("x")
    expect(captures(P.sub(x, P.any("y")), Expr.sub(v, w))).toEqual({ x: v, y: w })
    expect(matches(P.sub(x, x), Expr.sub(v, v))).toBe(true)
    expect(matches(P.sub(x, x), Expr.sub(v, w))).toBe(false)
    expect(captures(P.named(P.sub(x, P.anything), "all"), Expr.sub(v, w))).toEqual({ x: v, all: Expr.sub(v, w) })
  })
  it("tries both orders of a commutative operation, at every depth", () => {
    const deep = P.add(P.mul(P.any("x"), P.constant("c")), P.any("x"))
    const expected = { x: v, c: Expr.int(arena, 4) }
    for (const product of [Expr.mul(v, 4), Expr.mul(Expr.int(arena, 4), v)]) {
      expect(captures(deep, Expr.add(product, v))).toEqual(expected)
      expect(captures(deep, Expr.add(v, product))).toEqual(expected)
    }
    expect(matches(deep, Expr.add(Expr.mul(w, 4), v))).toBe(false)
  })
  it("keeps the order where asked, and of operations that do not commute", () => {
    expect(matches(P.inOrder("ADD", P.constant("c"), P.any("x")), Expr.add(v, 3))).toBe(false)
    expect(matches(P.sub(P.constant("c"), P.any("x")), Expr.sub(v, 3))).toBe(false)
  })
  it("matches source lists: exact, prefix, every", () => {
    const sink = arena.make("SINK", DType.none, [v, w, v])
    expect(matches(P.op("SINK", P.anything, P.anything), sink)).toBe(false)
    expect(matches(P.op("SINK", P.anything, P.anything, P.anything), sink)).toBe(true)
    expect(captures(P.startsWith("SINK", P.any("first")), sink)).toEqual({ first: v })
    expect(matches(P.every("SINK", P.node("VAR")), sink)).toBe(true)
    expect(matches(P.every("SINK", P.node("CONST")), sink)).toBe(false)
    expect(matches(P.every("SINK", P.node("CONST")), arena.make("SINK", DType.none, []))).toBe(true)
  })
  it("tries alternatives, and goes on when a later part fails", () => {
    const either = P.anyOf(P.add(P.any("x"), P.zero), P.any("x"))
    expect(captures(P.mul(either, P.constant("c")), Expr.mul(Expr.add(v, 0), 3))).toMatchObject({ x: v })
    expect(captures(P.sub(either, P.any("x")), Expr.sub(Expr.add(v, 0), Expr.add(v, 0)))).toEqual({ x: Expr.add(v, 0) })
    expect(matches(P.anyOf(P.node("MUL"), P.node("CONST")), v)).toBe(false)
  })
  it("sees the constant in a vector", () => {
    const splat = Expr.splat(Expr.constant(arena, DType.f32, 1), 4)
    expect(matches(P.one, splat)).toBe(true)
    expect(matches(P.zero, splat)).toBe(false)
  })
  it("takes predicates", () => {
    expect(matches(P.satisfying(P.node("VAR"), (n) => n === v), w)).toBe(false)
  })
})

describe("PatternMatcher", () => {
  const x = P.any("x")
  it("tries rules in order; no change goes on to the next", () => {
    const m = make(rules("t", [
      rule("nothing", P.add(x, P.zero), () => undefined),
      rule("itself", P.add(x, P.zero), (_, node) => node),
      rule("first", P.add(x, P.zero), ({ x }) => x),
      rule("second", P.add(x, P.zero), () => marker)
    ]))
    expect(m.rewrite(Expr.add(v, 0), undefined)).toBe(v)
    expect(m.lastRule).toBe("t/first")
    expect(m.rewrite(Expr.add(v, 1), undefined)).toBeUndefined()
  })
  it("asks the side condition before anything else", () => {
    const m = make(rules("t", [rule("r", P.add(x, P.zero), ({ x }) => x, { when: (n) => n.dtype === DType.f32 })]))
    expect(m.rewrite(Expr.add(v, 0), undefined)).toBeUndefined()
  })
  it("tries another order when the rewrite declines", () => {
    const m = make(rules("t", [rule("r", P.add(x, P.any("y")), ({ x }) => x === w ? marker : undefined)]))
    expect(m.rewrite(Expr.add(v, w), undefined)).toBe(marker)
  })
  it("joins tables and matchers in order", () => {
    const a = rules("a", [rule("r", P.node("VAR"), () => marker)])
    const b = rules("b", [rule("r", P.node("VAR"), () => v)])
    expect(make(a, b).rewrite(w, undefined)).toBe(marker)
    expect(concat(make(b), make(a)).rewrite(w, undefined)).toBe(v)
  })
  it("rejects by the operations of the sources before the rule runs", () => {
    let tried = 0
    const m = make(rules("t", [rule("r", P.mul(P.satisfying(P.node("CONST"), () => ++tried > 0), x), () => marker)]))
    m.rewrite(Expr.mul(v, w), undefined)
    expect(tried).toBe(0)
    m.rewrite(Expr.mul(v, 3), undefined)
    expect(tried).toBe(1)
  })
  it("may be used by its own rules", () => {
    const m = make(rules("t", [
      rule("add", P.add(x, P.any("y")), ({ x, y }, _, self: { rewrite: (n: UOp) => UOp | undefined }) => {
        const inner = self.rewrite(x)
        return inner === undefined ? undefined : Expr.add(inner, y)
      }),
      rule("leaf", P.node("VAR"), (_, node) => node === v ? marker : undefined)
    ]))
    const context = { rewrite: (n: UOp): UOp | undefined => m.rewrite(n, context) }
    expect(m.rewrite(Expr.add(Expr.add(v, 1), w), context)).toBe(Expr.add(Expr.add(marker, 1), w))
  })
})
