/** Drafts of a second, smaller model of the same vocabulary, which draws as the text it guesses is drawn. */
import type { ByteSource } from "@tg/gguf/ByteSource"
import * as Metadata from "@tg/gguf/Metadata"
import type { Jit } from "@tg/jit/Jit"
import type { Device } from "@tg/runtime/Device"
import { Context, Effect, Result, Schema, type Scope, Stream } from "effect"
import * as Conversations from "./Conversations.ts"
import * as Drafter from "./Drafter.ts"
import type * as Loading from "./Loading.ts"
import type * as ModelFile from "./ModelFile.ts"
import { PrefixStore } from "./PrefixStore.ts"

/** A model that was to draft for another one, and calls its tokens otherwise. */
export class OtherVocabulary extends Schema.TaggedError<OtherVocabulary>()("OtherVocabulary", {
  file: Schema.String,
  draftFile: Schema.String,
  /** What differs first. */
  found: Schema.String
}) {
  override get message(): string {
    return `${this.draftFile} cannot draft for ${this.file}: ${this.found}; choose a smaller model of the same vocabulary`
  }
}

const tokensOf = ({ gguf }: ModelFile.ModelFile): ReadonlyArray<string> =>
  Result.getOrElse(Metadata.getStrings(gguf, "tokenizer.ggml.tokens"), () => [])

/** Why a model cannot draft for another one: some id is not the same token in both. */
export const mismatch = (model: ModelFile.ModelFile, draft: ModelFile.ModelFile): OtherVocabulary | undefined => {
  const [own, other] = [tokensOf(model), tokensOf(draft)]
  const differs = (found: string) => new OtherVocabulary({ file: model.gguf.name, draftFile: draft.gguf.name, found })
  if (own.length !== other.length) return differs(`it has ${other.length} tokens, and ${own.length} are needed`)
  const at = own.findIndex((text, id) => text !== other[id])
  return at < 0
    ? undefined
    : differs(`token ${at} is ${JSON.stringify(other[at])} in it, and ${JSON.stringify(own[at])} is needed`)
}

/** How to load it: as any model that keeps conversations. */
export type Options = Conversations.Options

/**
 * Loads a model as what drafts, on the device at hand. It keeps conversations of its own, so that a text costs it no more than what came
 * to it since it was asked last; to its seed and settings it draws what the model would, if it were that model.
 */
export const open: (
  source: ByteSource["Service"],
  draft: ModelFile.ModelFile,
  options?: Options
) => Effect.Effect<Drafter.Source, Loading.LoadError, Device | Jit | Scope.Scope> = Effect.fn("DraftModel.open")(
  function*(source, draft, options = {}) {
    const { generate } = yield* Conversations.fromModel(source, draft, options).pipe(
      // it drafts for another one, not for itself, and its caches are not worth a disk
      Effect.provideService(Drafter.Drafter, undefined),
      Effect.updateContext((context: Context.Context<Device | Jit | Scope.Scope>) =>
        Context.omit(PrefixStore)(context as Context.Context<Device | Jit | Scope.Scope | PrefixStore>)
      )
    )
    return {
      name: "model",
      isComputed: true,
      propose: (tokens, most, { sampling }) =>
        Effect.scoped(Effect.gen(function*() {
          const answer = yield* generate({ tokens, maxTokens: most, sampling })
          return (yield* Stream.runCollect(answer.tokens)).map(({ id }) => id)
        }))
    }
  }
)

/** Drafts of such a model; with what else drafts where it pays, if that is said. */
export const drafting = (source: Drafter.Source, name?: "auto"): Drafter.Drafting =>
  name === undefined ? Drafter.only(source) : { policy: "paying", sources: [source, Drafter.lookup] }
