/**
 * Lowerings: ways to compute the same that no equation turns into each other, as they follow from what is in memory. Each has a name and
 * a cost, and the cheapest one that is legal is taken, as an opt is.
 */
import { type DeviceProfile, h200, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { tileTokens } from "./Order.ts"

/** A way, and what it takes. */
export interface Lowering<Name extends string> {
  readonly name: Name
  readonly micros: number
}

/** Of a mixture: a product for each pair of a token and an expert, or for each group of tokens that share an expert (`Grouped`). */
export type OfMixture = "token by token" | "grouped by expert"

/** A mixture of experts. */
export interface MixtureSize {
  readonly count: number
  /** Experts of a token. */
  readonly used: number
  /** Of all matrices of an expert. */
  readonly values: number
  readonly bytes: number
}

/** Operations that a weight takes to unpack, and a term of a product of bytes, of which an instruction computes four and a block is scaled. */
const unpacking = 5.5
const multiplying = 0.5
/** Launches of the counting sort, and those that put rows in places and back. */
const groupingLaunches = 12

/** Both ways for so many tokens. A row of tokens is no tile: only a batch, whose tokens are whole tiles, can be grouped. */
export const ofMixture = (
  { bytes, count, used, values }: MixtureSize,
  { isBatch, profile = h200, tokens }: {
    readonly tokens: number
    readonly isBatch: boolean
    readonly profile?: DeviceProfile | undefined
  }
): ReadonlyArray<Lowering<OfMixture>> => {
  const { cachedPerByte, operationsPerByte } = quantitiesOf(profile)
  const pairs = tokens * used
  const distinct = count * (1 - (1 - used / count) ** tokens)
  // how many groups an expert needs is not known before: the grid has one for each that is not full
  const groups = pairs / tileTokens + count
  const micros = (operations: number, copies: number): number =>
    Math.max(operations * values / operationsPerByte, distinct * bytes, copies * bytes / cachedPerByte) /
    profile.bytesPerMicro
  const alone = { name: "token by token", micros: micros(pairs * (unpacking + multiplying), pairs) } as const
  if (!isBatch) return [alone]
  const grouped = micros(groups * (unpacking + tileTokens * multiplying), groups)
  return [alone, { name: "grouped by expert", micros: grouped + groupingLaunches * profile.dispatchMicros }]
}

/** The one that takes the least time. */
export const cheapest = <Name extends string>(all: ReadonlyArray<Lowering<Name>>): Lowering<Name> =>
  all.reduce((best, each) => each.micros < best.micros ? each : best)

/** Tokens that costs of a batch with room for so many are counted for: of a GPU's a quarter, as few are full; those of a CPU are small. */
export const usualTokens = (most: number, { kind }: Pick<DeviceProfile, "kind"> = h200): number =>
  kind === "gpu" ? Math.max(1, most / 4) : most
