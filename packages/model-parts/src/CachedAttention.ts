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

/** Queries `[T, ..]`, already scaled, as attention reads them: once for every cached position. */
export const asQuery = (input: Laid, query: Tensor): Tensor => stored(input, query.label("query"))

/** `softmax(q k^T) v` of queries `[T, A.., K]` over a cache's rows up to theirs: `[T, A.., width]`. */
export const attention = (reader: Reader, input: AttentionInput, query: Tensor, cache: Tensor): Tensor => {
  const { isFew, places, window } = input
  if (places !== undefined && Places.areSame(places)) {
    const where = places.among ?? { position: places.position, begin: undefined }
    return whole(reader, { ...input, ...where }, query, Places.rowsOf(cache, places))
  }
  if (places !== undefined && Places.isAlone(places)) {
    return Places.attendAlone(reader, query, { cache, places, window })
  }
  if (places !== undefined) return Places.attend(reader, query, { cache, places, window })
  return isFew ? few(reader, query, cache, input) : whole(reader, input, query, cache)
}
