/** The heuristics stage over a store: tuned opts where the store has legal ones, else those of the heuristics. */
import { type DeviceProfile, Profile } from "@tg/core-uop/DeviceProfile"
import { given } from "@tg/core-uop/Given"
import { digest, type UOp } from "@tg/core-uop/UOp"
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

/** The result of a lookup in a store: its entry, if the opts are legal. */
export type Found = { readonly origin: "tuned"; readonly entry: Store.Entry } | {
  readonly origin: "heuristics" | "stale"
}

/** Looks a kernel up. */
export const find = (
  kernel: UOp,
  profile: DeviceProfile,
  store: Store.Store,
  legal: Postrange.Legal = Postrange.legal
): Found => {
  const entry = Store.forAdapter(store, profile.adapter).get(Store.keyOf(kernel))
  if (entry === undefined) return { origin: "heuristics" }
  const isLegal = !(legal(kernel, entry.opts, profile) instanceof Postrange.IllegalOpt)
  return isLegal ? { entry, origin: "tuned" } : { origin: "stale" }
}

/** Legal opts for a kernel (spec `kernel`) on a device. */
export const choose = (
  kernel: UOp,
  profile: DeviceProfile,
  store: Store.Store,
  legal: Postrange.Legal = Postrange.legal
): Choice => {
  const found = find(kernel, profile, store, legal)
  const opts = found.origin === "tuned" ? found.entry.opts : usual(kernel, profile, { legal })
  return { opts, origin: found.origin }
}

/** The store that comes with this package. */
export const shipped: Store.Store = Result.getOrThrow(Store.fromJson(shippedJson, "shipped.json"))

/**
 * Decorates the `Heuristics` of the context with a store. `Postrange` decides what is legal: the context's, or the usual one. A phase of a persistent launch has the heuristics' opts: what was
 * tuned is fastest as a launch, with registers and workgroups that a phase has not (GLM-4.7-Flash on an H200 decodes 450 tok/s with the tuned opts of its down projection as a phase, 458 without).
 */
export const layer = (store: Store.Store): Layer.Layer<Heuristics, never, Heuristics | Profile> =>
  Layer.effect(
    Heuristics,
    Effect.gen(function*() {
      const heuristics = yield* Heuristics
      const profile = yield* Profile
      const { legal } = yield* Postrange.Postrange
      const own = digest(Store.encode(new Map([["", Store.forAdapter(store, profile.adapter)]])))
      return Heuristics.of({
        id: heuristics.id === undefined ? undefined : `${heuristics.id} tuned launches ${own}`,
        choose: Effect.fn("Tuned.choose")(function*(kernel, place) {
          const found = place === "phase" ? undefined : find(kernel, profile, store, legal)
          return found?.origin === "tuned" ? found.entry.opts : yield* heuristics.choose(kernel, place)
        }),
        gain: (kernel) => {
          const found = find(kernel, profile, store, legal)
          return found.origin === "tuned"
            ? found.entry.usualMicros - found.entry.micros
            : heuristics.gain?.(kernel) ?? 0
        }
      })
    })
  ).pipe(Layer.provide(given(Postrange.Postrange, Postrange.Postrange.layer)))
