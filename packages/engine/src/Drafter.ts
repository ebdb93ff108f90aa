/**
 * Guesses of what a text goes on with. A step that verifies several tokens costs little more than one that computes one, so a
 * guess that is right saves steps; one that is wrong costs time and changes nothing.
 */
import { Context, Effect, Layer } from "effect"
import * as Lookup from "./Lookup.ts"

/** How many of the tokens that are proposed are verified. */
export type Policy =
  /** As many as are likely to be right, by what was right before. */
  | "likely"
  /** As many as save time, by that and by what steps take here; none, where none do. */
  | "paying"

/** What proposes tokens. */
export interface Drafting {
  readonly policy: Policy
  /** Up to `most` tokens that may follow; none, if it has no idea. What is behind a token that does not exist is ignored. */
  readonly propose: (tokens: ReadonlyArray<number>, most: number) => Effect.Effect<ReadonlyArray<number>>
}

/** What proposes tokens to generations: nothing, unless a Layer says otherwise. */
export const Drafter = Context.Reference<Drafting | undefined>("@tg/engine/Drafter", { defaultValue: () => undefined })

/** Proposes what stood behind the same tokens earlier in the conversation. */
export const lookup = (policy: Policy): Drafting => ({
  policy,
  propose: (tokens, most) => Effect.sync(() => Lookup.propose(tokens, most))
})

/** The ways to draft: not at all, by lookup, by what saves time. */
export const names = ["off", "lookup", "auto"] as const
/** A way to draft. */
export type Name = typeof names[number]

/** What drafts in a way. */
export const named = (name: Name): Drafting | undefined =>
  name === "off" ? undefined : lookup(name === "lookup" ? "likely" : "paying")

/** Drafts in a way. */
export const layer = (name: Name): Layer.Layer<never> => Layer.succeed(Drafter, named(name))
