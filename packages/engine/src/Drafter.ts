/**
 * Guesses of what a text goes on with. A step that verifies several tokens costs little more than one that computes one, so a
 * guess that is right saves steps; one that is wrong costs time and changes nothing.
 */
import { Context, Effect, Layer } from "effect"
import * as Lookup from "./Lookup.ts"
import type * as Sampler from "./Sampler.ts"
import type { Session } from "./Session.ts"

/** How many of the tokens that are proposed are verified. */
export type Policy =
  /** As many as are likely to be right, by what was right before. */
  | "likely"
  /** As many as save time, by that and by what steps and guesses take here; none, where none do. */
  | "paying"

/** What is known of a text apart from its tokens. */
export interface Asking extends Pick<Session, "predict"> {
  /** What its tokens are drawn by, unless a constraint or a penalty comes in between. */
  readonly sampling: Sampler.Settings
}

/** What proposes tokens. */
export interface Source {
  /** What it is called where its times are kept: no two of a drafting have the same. */
  readonly name: string
  /** Whether a model computes its proposals: it is asked for no more than will be verified. */
  readonly isComputed: boolean
  /** Whether it is the model's prediction block, whose guesses a device can verify by itself (`Session.round`). It is not, if it is not said. */
  readonly isOwn?: boolean | undefined
  /**
   * Up to `most` tokens that may follow; none, if it has no idea. What is behind a token that does not exist is ignored. After a
   * failure the text goes on without it.
   */
  readonly propose: (
    tokens: ReadonlyArray<number>,
    most: number,
    asking: Asking
  ) => Effect.Effect<ReadonlyArray<number>, Error>
}

/** How drafts are made. */
export interface Drafting {
  readonly policy: Policy
  /** The first one that has an idea is taken: in this order, or, if drafts have to pay, the one from which most is expected. */
  readonly sources: ReadonlyArray<Source>
  /** Whether the model's prediction block is loaded: not at all, where there is one, or else there is no model. */
  readonly prediction?: "welcome" | "needed" | undefined
}

/** What proposes tokens to generations: nothing, unless a Layer says otherwise. */
export const Drafter = Context.Reference<Drafting | undefined>("@tg/engine/Drafter", { defaultValue: () => undefined })

/** Proposes what stood behind the same tokens earlier in the conversation. */
export const lookup: Source = {
  name: "lookup",
  isComputed: false,
  propose: (tokens, most) => Effect.succeed(Lookup.propose(tokens, most))
}

/** Proposes what the model's own prediction block guesses. */
export const mtp: Source = {
  name: "mtp",
  isComputed: true,
  isOwn: true,
  propose: (tokens, most, { predict }) => predict(tokens, most)
}

/** Drafts of one source. */
export const only = (source: Source, policy: Policy = "likely"): Drafting => ({ policy, sources: [source] })

/** The ways to draft: not at all, by lookup, by the model's prediction block, by what saves time. */
export const names = ["off", "lookup", "mtp", "auto"] as const
/** A way to draft. */
export type Name = typeof names[number]

/** What drafts in a way. */
export const named = (name: Name): Drafting | undefined =>
  name === "off"
    ? undefined
    : name === "lookup"
    ? only(lookup)
    : name === "mtp"
    ? { ...only(mtp), prediction: "needed" }
    : { policy: "paying", sources: [mtp, lookup], prediction: "welcome" }

/** Drafts in a way. */
export const layer = (name: Name): Layer.Layer<never> => Layer.succeed(Drafter, named(name))
