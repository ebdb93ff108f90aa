import type { Rule } from "../Rule.ts"
import { associate, constants, nest } from "./contractions.ts"
import { joinSlices, siblings, sliceInto, sliceSlice, splitConcat } from "./slices.ts"
import { distribute, divide, factor } from "./sums.ts"

export * from "./contractions.ts"
export * from "./slices.ts"
export * from "./sums.ts"

/** All rules. */
export const all: ReadonlyArray<Rule> = [
  nest,
  associate,
  constants,
  distribute,
  factor,
  divide,
  sliceInto,
  sliceSlice,
  joinSlices,
  splitConcat,
  siblings
]

/** Those that change what is computed, not only how it is laid out: the usual ones. */
export const usual: ReadonlyArray<Rule> = all.filter((rule) => rule !== siblings)
