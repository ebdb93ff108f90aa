/** The heuristics stage with what was tuned: opts from a store where it has some that fit, else the heuristics' choice. */
import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { choose as usual, Heuristics } from "@tg/heuristics/Heuristics"
import type * as Opt from "@tg/postrange/Opt"
import * as Postrange from "@tg/postrange/Postrange"
import { Effect, Layer, Result } from "effect"
import shippedJson from "./shipped.json" with { type: "json" }
import * as Store from "./Store.ts"

/** A choice, and where it comes from. */
export interface Choice {
  readonly opts: ReadonlyArray<Opt.Opt>
  /** `stale`: the store has an entry that the kernel or the device does not allow; the opts are the heuristics'. */
  readonly origin: "tuned" | "heuristics" | "stale"
}

/** Legal opts for a kernel (spec `kernel`) on a device. */
export const choose = (kernel: UOp, profile: DeviceProfile, store: Store.Store): Choice => {
  const entry = Store.forAdapter(store, profile.adapter).get(Store.keyOf(kernel))
  if (entry === undefined) return { opts: usual(kernel, profile), origin: "heuristics" }
  const isLegal = !(Postrange.apply(entry.name, kernel, entry.opts, profile) instanceof Postrange.IllegalOpt)
  return isLegal ? { opts: entry.opts, origin: "tuned" } : { opts: usual(kernel, profile), origin: "stale" }
}

/** What comes with this package. */
export const shipped: Store.Store = Result.getOrThrow(Store.fromJson(shippedJson, "shipped.json"))

/** The heuristics of the `Profile` service's device, after a store. */
export const layer = (store: Store.Store): Layer.Layer<Heuristics, never, Profile> =>
  Layer.effect(
    Heuristics,
    Effect.map(Profile, (profile) =>
      Heuristics.of({
        choose: Effect.fn("Tuned.choose")((kernel) => Effect.sync(() => choose(kernel, profile, store).opts))
      }))
  )
