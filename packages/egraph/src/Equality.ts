import type { UOp } from "@tg/core-uop/UOp"
import { Clock, Context, Effect, Layer } from "effect"
import * as Bodies from "./Bodies.ts"
import type { Rule } from "./Rule.ts"
import * as rules from "./rules/index.ts"
import { bodyBounds, type Bounds } from "./Saturate.ts"

/** The stage in front of all others: programs in, equal programs out that the compiler makes faster ones of. */
export class Equality extends Context.Service<Equality, {
  /** Names what it makes, for those who keep it; none where rules were added. */
  readonly id?: string | undefined
  readonly optimise: <E>(
    sink: UOp,
    options: Pick<Bodies.Options<E>, "profile" | "weigh" | "unweighed">
  ) => Effect.Effect<Bodies.Optimised, E>
}>()("@tg/egraph/Equality") {
  /** With these rules, within these bounds. A rule that makes values of different shapes equal is a defect. */
  static readonly layerWith = (given: ReadonlyArray<Rule>, bounds: Bounds = bodyBounds) =>
    Layer.effect(
      Equality,
      Effect.map(Clock.Clock, (clock) =>
        Equality.of({
          id: given === rules.ofBodies && bounds === bodyBounds ? "@tg/egraph" : undefined,
          optimise: Effect.fn("Equality.optimise")(function*(sink, options) {
            return yield* Bodies.ofProgram(sink, {
              ...options,
              search: { rules: rules.on(options.profile, given), bounds, now: () => clock.currentTimeMillisUnsafe() }
            })
          })
        }))
    )

  /** The rules for whole bodies. */
  static readonly layer = this.layerWith(rules.ofBodies)

  /** Programs stay as they are written. */
  static readonly layerNone = Layer.succeed(Equality, {
    id: "none",
    optimise: (sink) => Effect.succeed({ sink, bodies: [] })
  })
}
