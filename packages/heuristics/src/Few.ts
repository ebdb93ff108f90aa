/**
 * Products of a few tokens with a matrix: the tokens are a short loop of known length. One thread computes a row for all of them,
 * so that a weight is read and unpacked once.
 */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import { openRanges, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { hasManyRegisters } from "./Kinds.ts"
import type { Plan } from "./Plan.ts"
import { freeOutputs } from "./Rows.ts"
import { iterations, largestPower } from "./Sizes.ts"
import { loadsOf } from "./Vectors.ts"

/** Tokens of a step that are few. */
const mostTokens = 16
/** Rows of a matrix at least, for each token: so that there are threads enough without those of the tokens. */
const fewestRows = 8

/** The loop over the tokens of a product, if there are a few: rows of weights are the same for all of them, activations are not. */
export const fewTokens = (kernel: UOp): Loops.Loop | undefined => {
  const free = freeOutputs(kernel)
  // where something is read, not whether it is
  const read = Loops.reductions(kernel).flatMap(loadsOf).map((load) => openRanges(load.src[0]!.src[1]!))
  return free.find((tokens) => {
    const rows = free.filter((loop) =>
      loop.id !== tokens.id && read.some((open) => open.has(loop.node) && !open.has(tokens.node)) &&
      !read.some((open) => open.has(loop.node) && open.has(tokens.node))
    )
    return tokens.size <= mostTokens && read.some((open) => open.has(tokens.node)) &&
      iterations(rows) >= fewestRows * mostTokens
  })
}

/** Tokens of one thread where registers are few. */
const fewResults = 4

/** Gives each thread all tokens of a few, as far as it has registers; returns how many, 1 if there are no such tokens. */
export const upcastTokens = (plan: Plan, profile: DeviceProfile): number => {
  const tokens = fewTokens(plan.kernel)
  if (tokens === undefined) return 1
  const amount = hasManyRegisters(profile) ? tokens.size : largestPower(tokens.size, fewResults)
  return plan.try(Opt.upcast(tokens.id, amount)) ? amount : 1
}
