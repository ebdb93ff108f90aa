/** Drafts without a model: what followed the last tokens of a text where they stood before. */

/** Tokens that have to be equal: the more, the likelier that what follows is equal too. */
const longest = 4
const shortest = 2
/** The same in front of a token that replaces another: it is no part of a language's habits if so many stood there before. */
const replacing = 6

/** Where the last `length` of the first `n` tokens stood before, the latest place; the index behind them. */
const placeOf = (tokens: ReadonlyArray<number>, length: number, n = tokens.length): number | undefined => {
  for (let end = n - 1; end >= length; end--) {
    let k = 1
    while (k <= length && tokens[end - k] === tokens[n - k]) k++
    if (k > length) return end
  }
  return undefined
}

/** Up to `most` tokens that followed the longest run of last tokens that stands in the text before, of which the last one may be another there. */
export const propose = (tokens: ReadonlyArray<number>, most: number): ReadonlyArray<number> => {
  for (let length = longest; length >= shortest; length--) {
    const at = placeOf(tokens, length)
    if (at === undefined) continue
    // a text that repeats a few tokens goes on repeating them
    const period = tokens.length - at
    return Array.from({ length: most }, (_, i) => tokens[at + i % period]!)
  }
  // a text that was said before with another token in the last place goes on behind it
  const at = placeOf(tokens, replacing, tokens.length - 1)
  return at === undefined ? [] : tokens.slice(at + 1, at + 1 + most)
}
