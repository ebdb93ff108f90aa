/** What may come next, decided outside of the engine: a grammar, a schema, a list of words. */

/**
 * What may come next, token by token. It belongs to one generation, which tells it each token it draws. Structural: the matchers
 * of `@tg/constrain` are one, and neither package knows the other.
 */
export interface Constraint {
  /** One bit per token id (bit `id & 31` of word `id >>> 5`): 1 where it may come next, end tokens included. Valid until `accept`. */
  readonly mask: () => Uint32Array
  /** Takes the token that was drawn. It is not told of an end token: nothing comes after it. */
  readonly accept: (id: number) => void
  /** Whether nothing but an end token may follow. The generation then ends without asking the model for one. */
  readonly isFinished: () => boolean
}

/** Whether a token is in a mask. Ids behind its last word are not. */
export const isAllowed = (mask: Uint32Array, id: number): boolean => (((mask[id >>> 5] ?? 0) >>> (id & 31)) & 1) === 1

/** Whether no token of a vocabulary is in a mask. */
export const isNone = (mask: Uint32Array, vocabulary: number): boolean => {
  const words = vocabulary >>> 5
  for (let i = 0; i < Math.min(words, mask.length); i++) if (mask[i] !== 0) return false
  return ((mask[words] ?? 0) & ((2 ** (vocabulary & 31)) - 1)) === 0
}
