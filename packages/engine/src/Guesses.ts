/** What the prediction block guesses for conversations of a pool that wait for it at the same time. */
import { Deferred, Effect } from "effect"
import { mostDrafts } from "./DraftLength.ts"
import type { Pages } from "./Pages.ts"
import type { Pool } from "./Pool.ts"
import type { Text } from "./PoolPrediction.ts"
import type { Seat } from "./Seats.ts"
import { commonPrefix } from "./Tokens.ts"

/** Who waits for guesses behind a text. */
export interface Asking<E> {
  readonly seat: Pick<Seat<E>, "holding">
  readonly tokens: ReadonlyArray<number>
  readonly most: number
  readonly answer: Deferred.Deferred<ReadonlyArray<number>, E>
}

/** Whether all tokens of the text but the last are computed. */
const isThere = <E>({ seat: { holding }, tokens }: Asking<E>): boolean =>
  holding !== undefined && commonPrefix(holding.tokens, tokens) >= tokens.length - 1

/**
 * Answers all who wait, with as many guesses as is asked for most and there is room for in everybody's context. Nobody gives way for guesses: who has no room for
 * them has none. Says for how many there were some.
 */
export const guess = Effect.fnUntraced(function*<E>(
  pool: Pick<Pool, "copy" | "predict">,
  pages: Pages,
  { asking, context, most }: {
    readonly asking: ReadonlyArray<Asking<E>>
    readonly context: number
    /** Conversations of a step. */
    readonly most: number
  }
) {
  const there = asking.filter(isThere)
  const room = (tokens: ReadonlyArray<number>): number => context - tokens.length + 1
  const count = Math.min(
    mostDrafts,
    ...there.map(({ tokens }) => room(tokens)),
    Math.max(0, ...there.map(({ most }) => most))
  )
  let guessed = 0
  for (let first = 0; first < there.length && count > 0; first += most) {
    const texts: Array<Text & { readonly own: Asking<E> }> = []
    for (const own of there.slice(first, first + most)) {
      const holding = own.seat.holding!
      const last = own.tokens.length - 1
      const copies = pages.reserve(holding, last, last + count)
      if (copies === undefined) continue
      yield* pool.copy(copies)
      texts.push({ own, tokens: own.tokens, pages: [...holding.pages] })
    }
    if (texts.length === 0) continue
    guessed += texts.length
    const found = yield* pool.predict!(texts, count)
    texts.forEach(({ own }, i) => Deferred.doneUnsafe(own.answer, Effect.succeed(found[i]!.slice(0, own.most))))
  }
  for (const { answer } of asking) Deferred.doneUnsafe(answer, Effect.succeed([]))
  return guessed
})
