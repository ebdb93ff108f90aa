import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import { describe, expect, it } from "vitest"
import { graphRewrite, RewriteLimit, walkRewrite } from "../src/GraphRewrite.ts"
import { make, rule, rules } from "../src/PatternMatcher.ts"
import * as P from "../src/UPat.ts"

const arena = new Arena()
const v = Expr.variable(arena, "v", 0, 9)
const x = P.any("x")
const int = (value: number): UOp => Expr.int(arena, value)

const addZero = rule("add-zero", P.add(x, P.zero), ({ x }) => x)
const countdown = rule(
  "countdown",
  P.node("CONST"),
  (_, node) => Number(node.arg) > 0 && Number(node.arg) < 100 ? int(Number(node.arg) - 1) : undefined
)

describe("graphRewrite", () => {
  it("rewrites sources first, and results again", () => {
    const m = make(rules("t", [countdown, addZero]))
    const order: Array<string> = []
    const result = graphRewrite(Expr.add(v, 3), m, { trace: (name) => order.push(name) })
    expect(result).toBe(v)
    expect(order).toEqual(["t/countdown", "t/countdown", "t/countdown", "t/add-zero"])
  })
  it("rewrites what a rule returns, new sources included", () => {
    const m = make(rules("t", [
      rule("double", P.add(x, x), ({ x }) => Expr.mul(x, Expr.add(int(2), 0))),
      addZero
    ]))
    expect(graphRewrite(Expr.add(v, v), m)).toBe(Expr.mul(v, 2))
  })
  it("visits a shared node once", () => {
    let fired = 0
    const m = make(rules("t", [rule("count", P.node("VAR"), () => {
      fired++
      return int(5)
    })]))
    let top = Expr.add(v, v)
    for (let i = 0; i < 40; i++) top = Expr.add(top, top)
    graphRewrite(top, m)
    expect(fired).toBe(1)
  })
  it("keeps a graph no rule matches, and ends at a node that is its own result", () => {
    const top = Expr.mul(Expr.add(v, 1), Expr.add(v, 2))
    expect(graphRewrite(top, make(rules("t", [addZero])))).toBe(top)
    expect(graphRewrite(top, undefined)).toBe(top)
  })
  it("tries pre-order rules before the sources are visited", () => {
    // the outer node is replaced as a whole, so its sources are never seen
    const pre = make(rules("pre", [rule("cut", P.add(P.mul(x, P.anything), P.anything), ({ x }) => x)]))
    const post = make(rules("post", [rule("never", P.node("MUL"), () => {
      throw new Error("entered")
    })]))
    expect(graphRewrite(Expr.add(Expr.mul(v, 7), 1), post, { pre })).toBe(v)
  })
  it("tries pre-order rules on rebuilt nodes", () => {
    const pre = make(rules("pre", [rule("zero", P.add(x, P.zero), ({ x }) => x)]))
    const post = make(rules("post", [countdown]))
    expect(graphRewrite(Expr.add(v, 2), post, { pre })).toBe(v)
  })
  it("does not enter nodes it is told not to", () => {
    const m = make(rules("t", [addZero]))
    const inner = Expr.mul(Expr.add(v, 0), 3)
    expect(graphRewrite(Expr.add(inner, 0), m, { enter: (node) => node.op !== "MUL" })).toBe(inner)
  })
  it("passes the context", () => {
    const m = make<{ readonly by: number }>(rules("t", [
      rule("shift", P.node("VAR"), (_, _node, { by }: { readonly by: number }) => int(by))
    ]))
    expect(graphRewrite(Expr.add(v, 1), m, { context: { by: 4 } })).toBe(Expr.add(int(4), 1))
  })
  it("keeps model lines", () => {
    const named = Expr.add(Expr.mul(v, 3), 0)
    arena.label(named, "ffn_gate")
    expect(arena.labelOf(graphRewrite(named, make(rules("t", [addZero]))))).toBe("ffn_gate")
  })
  it("uses a memo across calls", () => {
    const memo = new Map<UOp, UOp>()
    let fired = 0
    const m = make(rules("t", [rule("count", P.node("NEG"), (_, node) => {
      fired++
      return node.src[0]
    })]))
    graphRewrite(Expr.neg(v), m, { memo })
    graphRewrite(Expr.add(Expr.neg(v), 1), m, { memo })
    expect(fired).toBe(1)
  })
  it("names the rules of a set that does not come to rest", () => {
    const m = make(rules("t", [
      addZero,
      rule("grow", P.sub(x, P.any("y")), ({ x, y }) => Expr.add(x, Expr.neg(y))),
      rule("shrink", P.add(x, P.neg(P.any("y"))), ({ x, y }) => Expr.sub(x, Expr.mul(y, 1)))
    ]))
    const run = (): UOp => graphRewrite(Expr.sub(v, 3), m, { limit: 1000 })
    expect(run).toThrow(RewriteLimit)
    try {
      run()
    } catch (error) {
      expect((error as RewriteLimit).rules).toEqual(["t/grow", "t/shrink"])
      expect((error as RewriteLimit).message).toContain("t/grow, t/shrink")
    }
  })
  it("stops at a rule that wraps its own match", () => {
    const m = make(rules("t", [rule("wrap", P.node("VAR"), (_, node) => Expr.add(node, 1))]))
    expect(() => graphRewrite(v, m, { limit: 500 })).toThrow("t/wrap")
    expect(walkRewrite(Expr.mul(v, 2), m)).toBe(Expr.mul(Expr.add(v, 1), 2))
  })
  it("handles graphs 50 000 nodes deep", () => {
    let top: UOp = v
    for (let i = 0; i < 50_000; i++) top = Expr.alu(i % 2 === 0 ? "MUL" : "ADD", top, int(i % 2 === 0 ? 3 : 0))
    let depth = 0
    for (let node = graphRewrite(top, make(rules("t", [addZero]))); node !== v; node = node.src[0]!) depth++
    expect(depth).toBe(25_000)
  })
  it("is deterministic in another arena", () => {
    const other = new Arena()
    const w = Expr.variable(other, "v", 0, 9)
    const rest = make(rules("t", [countdown, addZero]))
    expect(graphRewrite(Expr.add(w, 0), rest).dtype).toBe(DType.index)
    expect(graphRewrite(Expr.add(w, 0), rest)).toBe(w)
  })
})
