/** `--draft` and `--draft-model`: what proposes tokens, and what became of them in words. */
import * as Drafter from "@tg/engine/Drafter"
import * as DraftModel from "@tg/engine/DraftModel"
import type * as ModelFile from "@tg/engine/ModelFile"
import type { Session } from "@tg/engine/Session"
import * as Speculation from "@tg/engine/Speculation"
import { Effect, Option } from "effect"
import { Flag } from "effect/cli"
import { UsageError } from "./Report.ts"
import * as Words from "./Words.ts"

type Drafts = Speculation.Drafts

/** The flags. */
export const flags = {
  draft: Flag.Literals("draft", Drafter.names).pipe(
    Flag.withDescription(
      "Guess tokens and verify several in a step, which changes no text: lookup takes what followed the same words before, " +
        "mtp what the model's own prediction block says, auto what saves time (default: off)"
    ),
    Flag.optional
  ),
  draftModel: Flag.String("draft-model").pipe(
    Flag.withMetavar("MODEL"),
    Flag.withDescription(
      "A smaller model of the same vocabulary that guesses tokens; with --draft auto where it saves time"
    ),
    Flag.optional
  )
} as const

/** What the flags say. */
export interface Given {
  readonly draft?: Option.Option<Drafter.Name>
  readonly draftModel?: Option.Option<string>
}

/** What is wrong with the flags together. */
export const refusal = ({ draft = Option.none(), draftModel = Option.none() }: Given): UsageError | undefined =>
  Option.isSome(draftModel) && Option.isSome(draft) && draft.value !== "auto"
    ? new UsageError({
      message: `--draft-model drafts by a model, and --draft ${draft.value} otherwise; leave one of them out, ` +
        "or take --draft auto, which drafts by the model where it saves time"
    })
    : undefined

/** Refuses a second model that calls tokens otherwise. */
export const checkVocabulary = (
  model: ModelFile.ModelFile,
  draft: ModelFile.ModelFile
): Effect.Effect<void, DraftModel.OtherVocabulary> => {
  const mismatch = DraftModel.mismatch(model, draft)
  return mismatch === undefined ? Effect.void : Effect.fail(mismatch)
}

/** What drafts by the flags; a second model is loaded with these options. Where none is given, what is in force does. */
export const drafterOf = Effect.fn("cli.drafter")(function*(
  { draft = Option.none() }: Given,
  second: Parameters<typeof DraftModel.open> | undefined
) {
  if (second !== undefined) {
    const source = yield* DraftModel.open(...second)
    return DraftModel.drafting(source, Option.isSome(draft) ? "auto" : undefined)
  }
  return Option.isSome(draft) ? Drafter.named(draft.value) : yield* Drafter.Drafter
})

/** `12 of 15 drafted tokens accepted, 20 steps`. */
export const show = ({ accepted, drafted, steps }: Drafts): string =>
  `${accepted} of ${Words.count(drafted, "drafted token")} accepted, ${Words.count(steps, "step")}`

/** The same of a benchmark, with what steps of several tokens take; nothing where nothing drafts. */
export const measured = (
  depth: number,
  drafts: Drafts | undefined,
  verify: ReadonlyArray<{ readonly tokens: number; readonly ms: number }> = []
): ReadonlyArray<string> =>
  drafts === undefined ? [] : [
    `drafts at ${depth}: ${show(drafts)}; a step that verifies ${
      verify.map(({ ms, tokens }) => `${tokens}: ${ms} ms`).join(", ")
    }`
  ]

/** How decoding is stepped. */
export interface Stepping {
  readonly stepping: () => Pick<Session, "next">
  /** What became of all drafts so far. */
  readonly drafts: () => Drafts
}

const none: Drafts = { steps: 0, drafted: 0, accepted: 0 }

/** What became of drafts between two counts. */
export const difference = (after: Drafts, before: Drafts): Drafts => ({
  steps: after.steps - before.steps,
  drafted: after.drafted - before.drafted,
  accepted: after.accepted - before.accepted
})

/** What became of all of them. */
export const sum = (all: ReadonlyArray<Drafts>): Drafts =>
  all.reduce((sum, drafts) => ({
    steps: sum.steps + drafts.steps,
    drafted: sum.drafted + drafts.drafted,
    accepted: sum.accepted + drafts.accepted
  }), none)

/** Steps with what drafts, or without; what is learned of the device holds for all rounds. */
export const stepping = (session: Session, drafter: Drafter.Drafting | undefined): Stepping => {
  if (drafter === undefined) return { stepping: () => session, drafts: () => none }
  const speculation = Speculation.make(drafter)
  const rounds: Array<Speculation.Speculating> = []
  return {
    stepping: () => {
      const round = Speculation.over(session, speculation, { most: Infinity })
      rounds.push(round)
      return round
    },
    drafts: () => sum(rounds.map((round) => round.drafts()))
  }
}
