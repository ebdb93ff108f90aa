import { readFileSync } from "node:fs"
import { Conversations } from "@tg/engine/Conversations"
import type { Request, Token } from "@tg/engine/Engine"
import * as ModelFile from "@tg/engine/ModelFile"
import * as Gguf from "@tg/gguf/Gguf"
import { known } from "@tg/models/Models"
import { Effect, Layer, Result, Stream } from "effect"

const bytes = readFileSync(new URL("../../../../apps/cli/models/tg-tiny-Q4_0.gguf", import.meta.url))
const model = Result.getOrThrow(
  Result.flatMap(Gguf.fromBytes("tg-tiny", new Uint8Array(bytes)), (gguf) => ModelFile.fromGguf(gguf, known))
)

/** The tokenizer of tg-tiny. */
export const { codec } = model

/** What a fake model was asked, and what became of it. */
export interface Seen {
  readonly requests: Array<Request>
  /** Tokens that were taken of all answers. */
  tokens: number
  /** Answers that are open. */
  open: number
}

/**
 * tg-tiny without its weights: says `text` over and over, a token each `millis`, until the model's context or the asked
 * number of tokens ends it.
 */
export const fake = ({ millis = 1, text = "la " }: { readonly millis?: number; readonly text?: string } = {}) => {
  const seen: Seen = { requests: [], tokens: 0, open: 0 }
  const ids = codec.encode(text)
  const layer = Layer.succeed(Conversations, {
    model,
    loadTimes: { weights: 0, compile: 0 },
    status: Effect.sync(() => ({ kept: 1, busy: seen.open, most: 64 })),
    context: 1024,
    tokenizer: Effect.succeed(codec),
    generate: (request) =>
      Effect.map(
        Effect.acquireRelease(
          Effect.sync(() => {
            seen.requests.push(request)
            seen.open++
          }),
          () => Effect.sync(() => seen.open--)
        ),
        () => ({ promptTokens: request.tokens.length, cachedTokens: 0, tokens: tokensOf(request) })
      )
  })
  const tokensOf = ({ maxTokens = Infinity, tokens }: Request): Stream.Stream<Token> => {
    const count = Math.min(maxTokens, 1024 - tokens.length)
    return Stream.range(1, count).pipe(
      Stream.rechunk(1),
      Stream.mapEffect((i) =>
        Effect.gen(function*() {
          if (millis > 0) yield* Effect.sleep(millis)
          seen.tokens++
          const id = ids[(i - 1) % ids.length]!
          return { id, text: codec.decode([id]), stop: i === count ? "length" as const : undefined }
        })
      )
    )
  }
  return { layer, seen }
}
