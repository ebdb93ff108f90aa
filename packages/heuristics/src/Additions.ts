/** Kernels whose threads add to memory row by row. */
import { isAccumulating, isCoherent, type UOp } from "@tg/core-uop/UOp"
import { accessOf, endOf } from "@tg/core-uop/View"
import * as Opt from "@tg/postrange/Opt"
import type { Plan } from "./Plan.ts"
import { freeOutputs } from "./Outputs.ts"
import { largestDivisor } from "./Sizes.ts"
import { vectoriseOutputs } from "./Vectors.ts"

/** Whether a kernel adds rows in order. */
export const addsRows = (kernel: UOp): boolean =>
  kernel.src.some((end) => endOf(end).stores.some((s) => isAccumulating(s) && !isCoherent(accessOf(s).buffer)))

/** Vectors of a row that a thread of a CPU adds: two cache lines, and the row's number is read once for them. */
const mostVectors = 8

/** Threads of a CPU add neighbouring vectors of a row. */
export const addRowsCpu = (plan: Plan): void => {
  vectoriseOutputs(plan)
  const columns = freeOutputs(plan.kernel).at(-1)
  if (columns !== undefined) plan.try(Opt.upcast(columns.id, largestDivisor(columns.size, mostVectors)))
}
