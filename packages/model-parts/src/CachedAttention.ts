/** Attention over a cache, whatever the step: of a few tokens, of many, or of tokens that stand anywhere. */
import type { Tensor } from "@tg/tensor/Tensor"
import { few, type Reader, whole, type WholeInput } from "./Attention.ts"
import * as Places from "./Places.ts"
import { type Laid, stored } from "./Schedule.ts"

/** What attention computes with. */
export interface AttentionInput extends WholeInput {
  /** Whether the tokens are a few, of a known number. */
  readonly isFew: boolean
  /** Where the tokens stand, unless they stand behind `startPos`. */
  readonly places?: Places.Places | undefined
}

/** How rows of a cache are read: with so many axes of tokens in front. */
export type ReaderOf = (shared: 0 | 1) => Reader

/** Queries `[T, ..]`, already scaled, as attention reads them: once for every cached position. */
export const asQuery = (input: Laid, query: Tensor): Tensor => stored(input, query.label("query"))

/** `softmax(q k^T) v` of queries `[T, A.., K]` over a cache's rows up to theirs: `[T, A.., width]`. */
export const attention = (reader: ReaderOf, input: AttentionInput, query: Tensor, cache: Tensor): Tensor => {
  const { isFew, places, window } = input
  if (places !== undefined && Places.areOfOne(places)) {
    return whole(reader(0), { ...input, position: places.position }, query, Places.rowsOf(cache, places))
  }
  if (places !== undefined) return Places.attend(reader(1), query, { cache, places, window })
  return isFew ? few(reader(0), query, cache, input) : whole(reader(0), input, query, cache)
}
