import { Clock, Context, Effect, Layer } from "effect"
import * as Bodies from "./Bodies.ts"
import type { Search } from "./Optimise.ts"
import type { Rule } from "./Rule.ts"
import * as rules from "./rules/index.ts"
import { type Bounds, usualBounds } from "./Saturate.ts"
import type { Situation } from "./TensorCost.ts"
import type { UOp } from "@tg/core-uop/UOp"

/** The stage between a model's forward pass and rangeify: programs in, cheaper equal programs out. */
export class Equality extends Context.Service<Equality, {
  /** Names what it makes, for those who keep it; none where rules were added. */
  readonly id?: string | undefined
  readonly optimise: (
    sink: UOp,
    options: { readonly residency: Search["residency"]; readonly situation: Situation }
  ) => Effect.Effect<Bodies.Optimised>
}>()("@tg/egraph/Equality") {
  /** With these rules, within these bounds. A rule that makes values of different shapes equal is a defect. */
  static readonly layerWith = (given: ReadonlyArray<Rule>, bounds: Bounds = usualBounds) =>
    Layer.effect(
      Equality,
      Effect.map(Clock.Clock, (clock) =>
        Equality.of({
          id: given === rules.usual && bounds === usualBounds ? "@tg/egraph" : undefined,
          optimise: Effect.fn("Equality.optimise")(function*(sink, { residency, situation }) {
            const search = { residency, rules: given, bounds, now: () => clock.currentTimeMillisUnsafe() }
            return yield* Effect.sync(() => Bodies.ofProgram(sink, { search, situation }))
          })
        }))
    )

  /** The usual rules. */
  static readonly layer = this.layerWith(rules.usual)

  /** Programs stay as they are written. */
  static readonly layerNone = Layer.succeed(Equality, {
    id: "none",
    optimise: (sink) => Effect.succeed({ sink, bodies: [] })
  })
}
