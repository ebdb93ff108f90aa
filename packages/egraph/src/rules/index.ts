import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Rule } from "../Rule.ts"
import { associate, associateSums, constants, nest } from "./contractions.ts"
import { scaleBehind, scaleRounded, sumBlocks } from "./factors.ts"
import { storeHalves } from "./halves.ts"
import { round } from "./rounding.ts"
import {
  joinSlices,
  siblings,
  sliceConcat,
  sliceInto,
  sliceSlice,
  sliceStored,
  sliceView,
  splitConcat
} from "./slices.ts"
import { distribute, divide, factor } from "./sums.ts"

export * from "./contractions.ts"
export * from "./factors.ts"
export * from "./halves.ts"
export * from "./rounding.ts"
export * from "./slices.ts"
export * from "./sums.ts"

/** All equations; `round` and those of `factors.ts` are none, and `storeHalves` says where a value is. */
export const all: ReadonlyArray<Rule> = [
  nest,
  associate,
  associateSums,
  constants,
  distribute,
  factor,
  divide,
  sliceInto,
  sliceView,
  sliceSlice,
  sliceConcat,
  sliceStored,
  joinSlices,
  splitConcat,
  siblings
]

/** Those that change what is computed, not only how it is laid out. */
export const usual: ReadonlyArray<Rule> = [
  nest,
  associate,
  constants,
  distribute,
  factor,
  divide,
  sliceInto,
  sliceSlice,
  sliceConcat,
  sliceStored,
  joinSlices,
  splitConcat
]

/**
 * Those for whole bodies: what changes how many loops there are, and how long. Scales and quotients are computed wherever they are
 * read; `divide` would take the sum of a softmax out of what it weighs, and both would run over the positions apart.
 */
export const ofBodies: ReadonlyArray<Rule> = [
  nest,
  associateSums,
  constants,
  factor,
  sliceView,
  sliceSlice,
  sliceConcat,
  sliceStored,
  joinSlices,
  splitConcat,
  storeHalves,
  round,
  scaleRounded,
  sumBlocks,
  scaleBehind
]

/** Those of some rules that may gain anything on a device. */
export const on = (
  { halfOperations = 0 }: Partial<Pick<DeviceProfile, "halfOperations">>,
  given: ReadonlyArray<Rule>
): ReadonlyArray<Rule> => halfOperations > 0 ? given : given.filter((rule) => rule !== storeHalves)
