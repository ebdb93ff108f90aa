/** How the activations of a step lie in memory. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Tensor } from "@tg/tensor/Tensor"

/**
 * `tokens`: the features of one token are neighbours, and what the compiler does not want to store is not stored. Right
 * for a token or a few.
 *
 * `features`: one feature of neighbouring tokens lies together, `[.., T]`, with T a multiple of `tileTokens`. A product
 * then works on tiles of tokens, and a weight that was unpacked serves all of a tile. What is read more than once is
 * stored.
 */
export type Order = "tokens" | "features"

/** Tokens of a tile. */
export const tileTokens = 16

/** `count` rounded up to whole tiles of tokens. */
export const wholeTiles = (count: number): number => Math.ceil(count / tileTokens) * tileTokens

const activationBytes = 4

/**
 * Tokens that rows of a batch have room for. A tile reads a line of each row, of thousands of rows: where these are an even number of
 * lines apart, they share half of the sets of a cache or fewer; 8 lines apart, as 128 tokens are, an eighth. So there is a tile more then.
 */
export const roomFor = (tokens: number, { cacheLineBytes }: Pick<DeviceProfile, "cacheLineBytes"> = {}): number => {
  const whole = wholeTiles(tokens)
  const isEven = cacheLineBytes !== undefined && activationBytes * whole % (2 * cacheLineBytes) === 0
  return isEven ? whole + tileTokens : whole
}

/** `[T, ..]` as it is stored, `[.., T]`. */
export const store = (x: Tensor): Tensor => x.permute([...x.shape.keys()].map((i) => (i + 1) % x.rank)).contiguous()

/** What is stored as `[.., T]`, as `[T, ..]`. */
export const load = (x: Tensor): Tensor => x.permute([...x.shape.keys()].map((i) => (i + x.rank - 1) % x.rank))
