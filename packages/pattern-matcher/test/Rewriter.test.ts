import { assert, describe, it } from "@effect/vitest"
import * as Expr from "@tg/core-uop/Expr"
import { Arena } from "@tg/core-uop/UOp"
import { Effect } from "effect"
import { counting, graphRewrite } from "../src/GraphRewrite.ts"
import { make, rule, rules } from "../src/PatternMatcher.ts"
import { Rewriter } from "../src/Rewriter.ts"
import * as Symbolic from "../src/Symbolic.ts"
import * as P from "../src/UPat.ts"

const arena = new Arena()
const v = Expr.variable(arena, "v", 0, 9)

describe("Rewriter", () => {
  it.effect("rewrites and simplifies", () =>
    Effect.gen(function*() {
      const rewriter = yield* Rewriter
      const double = make(rules("t", [rule("double", P.add(P.any("x"), P.any("x")), ({ x }) => Expr.mul(x, 2))]))
      assert.strictEqual(yield* rewriter.rewrite(Expr.add(v, v), double), Expr.mul(v, 2))
      assert.strictEqual(yield* rewriter.simplify(Expr.add(v, 0)), v)
    }).pipe(Effect.provide(Rewriter.layer)))

  it.effect("reports rules that do not come to rest", () =>
    Effect.gen(function*() {
      const rewriter = yield* Rewriter
      const wrap = make(rules("t", [rule("wrap", P.node("VAR"), (_, node) => Expr.add(node, 1))]))
      const error = yield* Effect.flip(rewriter.rewrite(v, wrap, { limit: 100 }))
      assert.strictEqual(error._tag, "RewriteLimit")
      assert.deepStrictEqual(error.rules, ["t/wrap"])
    }).pipe(Effect.provide(Rewriter.layer)))

  it.effect("can leave graphs as they are", () =>
    Effect.gen(function*() {
      const sum = Expr.add(v, 0)
      assert.strictEqual(yield* (yield* Rewriter).simplify(sum), sum)
    }).pipe(Effect.provide(Rewriter.layerNoSimplify)))

  it.effect("applies the rules of tables that a layer adds", () => {
    const mine = rules("mine", [
      rule("v", P.withArg(P.node("VAR"), { name: "v", min: 0, max: 9 }), (_, node) => Expr.int(node.arena, 4))
    ])
    return Effect.gen(function*() {
      const rewriter = yield* Rewriter
      const own = new Arena()
      const sum = Expr.add(Expr.variable(own, "v", 0, 9), 1)
      assert.strictEqual(yield* rewriter.simplify(sum), Expr.int(own, 5))
      assert.strictEqual(Symbolic.simplify(sum), sum)
      assert.deepStrictEqual(rewriter.rules.tables.slice(0, -1), [...Symbolic.tables])
      // passes simplify by the rules of the arena
      const told = new Arena()
      Symbolic.use(told, rewriter.rules)
      const index = Expr.variable(told, "v", 0, 9)
      assert.strictEqual(Symbolic.difference(index, Expr.int(told, 1)), 3)
    }).pipe(Effect.provide(Rewriter.layerWith(mine)))
  })

  it.effect("runs a pass whose rules do not come to rest, as an error", () =>
    Effect.gen(function*() {
      const rewriter = yield* Rewriter
      const wrap = make(rules("t", [rule("wrap", P.node("VAR"), (_, node) => Expr.add(node, 1))]))
      const error = yield* Effect.flip(rewriter.run(() => graphRewrite(v, wrap, { limit: 100 })))
      assert.deepStrictEqual([error._tag, error.limit], ["RewriteLimit", 100])
    }).pipe(Effect.provide(Rewriter.layer)))

  it("says which rules fire, to who listens to an arena and to who counts", () => {
    const own = new Arena()
    const { counts, trace } = counting()
    own.onRewrite = trace
    Symbolic.simplify(Expr.add(Expr.variable(own, "n", 0, 9), Expr.int(own, 0)))
    assert.isAbove([...counts.values()].reduce((a, b) => a + b, 0), 0)
    for (const name of counts.keys()) assert.match(name, /^[a-z]+\/[a-z-]+$/)
  })
})
