import { assert, describe, it } from "@effect/vitest"
import * as Expr from "@tg/core-uop/Expr"
import { Arena } from "@tg/core-uop/UOp"
import { Effect } from "effect"
import { make, rule, rules } from "../src/PatternMatcher.ts"
import { Rewriter } from "../src/Rewriter.ts"
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
})
