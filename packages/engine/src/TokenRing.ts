/**
 * The tokens of a pool's steps in one buffer: those that the host gives, and behind them those that steps draw. A step may begin before the
 * host knows the tokens that the steps in front of it draw, so each of the last few steps has a place of its own for its tokens.
 */
import * as DType from "@tg/core-uop/DType"
import type { Arena } from "@tg/core-uop/UOp"
import { buffer, type Extent, type Tensor, variable } from "@tg/tensor/Tensor"

/** Steps of a pool that may be under way at a time: one that is computed, and behind it those that the host has encoded. */
export const mostAhead = 3

/** Steps whose tokens are there: those under way, and the one that begins. */
const steps = mostAhead + 1

/** Where tokens lie in the buffer. */
export interface TokenRing {
  /** Tokens that the host gives, the first ones. */
  readonly given: number
  /** Tokens that a step draws at most. */
  readonly each: number
}

/** A token that a step draws: the number of the step, and of the token among those that the step draws. */
export interface Drawn {
  readonly step: number
  readonly row: number
}

/** Tokens in the buffer. */
export const size = ({ each, given }: TokenRing): number => given + steps * each

/** Where a step puts its first token. */
export const placeOf = ({ each, given }: TokenRing, step: number): number => given + (step % steps) * each

/** The whole buffer. */
export const bufferOf = (arena: Arena, ring: TokenRing, id: number): Tensor =>
  buffer(arena, id, { shape: [size(ring)], dtype: DType.u32, label: "tokens" })

/** The places of so many tokens that a step draws; the variable `drawn` is `placeOf` the step. */
export const drawnIn = (tokens: Tensor, { each, given }: TokenRing, count: Extent): Tensor =>
  tokens.slice(0, variable(tokens.arena, "drawn", given, given + (steps - 1) * each), count)
