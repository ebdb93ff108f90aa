/** The order of workgroups in the grid: those that read the same run at once. */
import { openRanges, rangeArg, type UOp } from "@tg/core-uop/UOp"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { isInt8 } from "./Kinds.ts"
import type { Plan } from "./Plan.ts"
import { loadsOf } from "./Vectors.ts"

const onGrid = (open: ReadonlySet<UOp>): ReadonlyArray<UOp> =>
  [...open].filter((range) =>
    rangeArg(range).axis === "GLOBAL" && range.src[0]!.op === "CONST" && Number(range.src[0]!.arg) > 1
  )

/**
 * The loops over rows of matrices that an index in memory names, as the experts of tokens are named, where several activations may name
 * the same matrix: the index depends on a loop of the grid on which an activation depends too.
 */
const namedRows = (kernel: UOp): ReadonlySet<UOp> => {
  const loads = loadsOf(kernel)
  const named = loads.filter((load) => loadsOf(load.src[0]!).length > 0)
  const names = new Set(named.flatMap((load) => loadsOf(load.src[0]!)))
  const namers = new Set([...names].flatMap((load) => onGrid(openRanges(load))))
  const activations = Loops.reductions(kernel).flatMap(loadsOf).filter((load) =>
    !named.includes(load) && !names.has(load)
  )
  const areSeveral = activations.some((load) => onGrid(openRanges(load)).some((range) => namers.has(range)))
  return new Set(
    areSeveral ? named.flatMap((load) => onGrid(openRanges(load))).filter((range) => !namers.has(range)) : []
  )
}

/**
 * Puts the rows of such a product of bytes outside of its tokens: workgroups of the same rows run at once, so that a matrix that several
 * tokens have chosen is read once. Of 64 experts 16 tokens with four each choose 41 different ones: 146 MB of GLM-4.7-Flash's instead of 226.
 */
export const gatherRows = (plan: Plan): void => {
  if (!isInt8(plan.kernel)) return
  for (const range of [...namedRows(plan.kernel)].reverse()) {
    const { id, size } = Loops.toLoop(range)
    plan.try(Opt.outer(id, size))
  }
}
