import type { UOp } from "@tg/core-uop/UOp"
import { Context, Effect, Layer } from "effect"
import { graphRewrite, type Options, RewriteLimit } from "./GraphRewrite.ts"
import type { PatternMatcher } from "./PatternMatcher.ts"
import { simplify } from "./Symbolic.ts"

const guarded = <A>(body: () => A): Effect.Effect<A, RewriteLimit> =>
  Effect.suspend(() => {
    try {
      return Effect.succeed(body())
    } catch (cause) {
      return cause instanceof RewriteLimit ? Effect.fail(cause) : Effect.die(cause)
    }
  })

/** The rewrite engine as a service: a non-terminating rule set is a typed error. */
export class Rewriter extends Context.Service<Rewriter, {
  readonly rewrite: <C>(
    root: UOp,
    matcher: PatternMatcher<C>,
    options?: Options<C>
  ) => Effect.Effect<UOp, RewriteLimit>
  readonly simplify: (root: UOp) => Effect.Effect<UOp, RewriteLimit>
}>()("@tg/pattern-matcher/Rewriter") {
  static readonly layer = Layer.succeed(Rewriter, {
    rewrite: (root, matcher, options) => guarded(() => graphRewrite(root, matcher, options)),
    simplify: (root) => guarded(() => simplify(root))
  })

  /** Rewrites nothing in `simplify`: the reference when bisecting a wrong rule. */
  static readonly layerNoSimplify = Layer.succeed(Rewriter, {
    rewrite: (root, matcher, options) => guarded(() => graphRewrite(root, matcher, options)),
    simplify: (root) => Effect.succeed(root)
  })
}
