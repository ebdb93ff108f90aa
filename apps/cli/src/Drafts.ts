/** `--draft`: what proposes tokens, and what became of them in words. */
import * as Drafter from "@tg/engine/Drafter"
import type { Drafts } from "@tg/engine/Speculation"
import { Effect, Option } from "effect"
import { Flag } from "effect/cli"
import * as Words from "./Words.ts"

/** The flag. */
export const flag = Flag.Literals("draft", Drafter.names).pipe(
  Flag.withDescription(
    "Guess tokens and verify several in a step, which changes no text: lookup takes what followed the same words before, auto does where it saves time (default: off)"
  ),
  Flag.optional
)

/** What drafts by the flag. Where it is not given, what is in force does. */
export const drafterOf = (given: Option.Option<Drafter.Name>): Effect.Effect<Drafter.Drafting | undefined> =>
  Option.match(given, {
    onNone: () => Effect.map(Drafter.Drafter, (drafter) => drafter),
    onSome: (name) => Effect.succeed(Drafter.named(name))
  })

/** `12 of 15 drafted tokens accepted, 20 steps`. */
export const show = ({ accepted, drafted, steps }: Drafts): string =>
  `${accepted} of ${Words.count(drafted, "drafted token")} accepted, ${Words.count(steps, "step")}`
