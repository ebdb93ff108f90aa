import type { UOp } from "@tg/core-uop/UOp"
import { Context, Effect, Layer } from "effect"
import { attempt, graphRewrite, type Options, type RewriteLimit } from "./GraphRewrite.ts"
import type { PatternMatcher, RuleTable } from "./PatternMatcher.ts"
import type { Simplifier } from "./rules/conditions.ts"
import * as Symbolic from "./Symbolic.ts"

/** What the rewrite engine offers to stages. */
export interface Rewriting {
  /** For cache keys: equal for rules that rewrite alike. Without it nothing is cached. */
  readonly id?: string | undefined
  /** The rules of the simplifier, as data. A stage that makes an arena says `Symbolic.use(arena, rules)`. */
  readonly rules: Symbolic.Rules
  /** Rewrites to the fixpoint of other rules. */
  readonly rewrite: <C>(
    root: UOp,
    matcher: PatternMatcher<C>,
    options?: Options<C>
  ) => Effect.Effect<UOp, RewriteLimit>
  /** Simplifies by `rules`. */
  readonly simplify: (root: UOp) => Effect.Effect<UOp, RewriteLimit>
  /** Runs a pure pass: rules in it that do not terminate are a typed error. */
  readonly run: <A>(pass: () => A) => Effect.Effect<A, RewriteLimit>
}

const run: Rewriting["run"] = (pass) => Effect.suspend(() => Effect.fromResult(attempt(pass)))

const make = (rules: Symbolic.Rules, id?: string): Rewriting => ({
  id,
  rules,
  run,
  rewrite: (root, matcher, options) => run(() => graphRewrite(root, matcher, options)),
  simplify: (root) => run(() => Symbolic.simplify(root, { rules }))
})

/** The rewrite engine as a service: the rules of the simplifier, and non-termination as a typed error. */
export class Rewriter extends Context.Service<Rewriter, Rewriting>()("@tg/pattern-matcher/Rewriter") {
  static readonly layer = Layer.succeed(Rewriter, make(Symbolic.usual, "@tg/pattern-matcher"))

  /**
   * The rules of the simplifier, and behind them those of other tables. Rules must preserve values. They have no `id`, so what is
   * compiled with them is not cached.
   */
  static readonly layerWith = (...tables: ReadonlyArray<RuleTable<Simplifier>>) =>
    Layer.succeed(Rewriter, make(Symbolic.rulesOf([...Symbolic.tables, ...tables])))

  /** No rules: the reference when bisecting a wrong one. */
  static readonly layerNoSimplify = Layer.succeed(Rewriter, make(Symbolic.rulesOf([]), "no rules"))
}
