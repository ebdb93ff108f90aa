import { assert } from "@effect/vitest"
import { h200 } from "@tg/core-uop/DeviceProfile"
import * as Program from "@tg/tensor/Program"
import type { Tensor } from "@tg/tensor/Tensor"
import { storageOf } from "../../src/Values.ts"
import { type Limits, limitsOf } from "../../src/Rangeify.ts"
import { Build, runSchedule, runTensor, scheduled } from "./programs.ts"

/** Effects of a program over buffers with running numbers. */
export type Effects = (b: Build) => ReadonlyArray<Tensor>

/** A program, and what it is scheduled for. */
export interface Version {
  readonly effects: Effects
  readonly limits: Limits
}

/** Placement's rules alone: nothing is staged, nothing joined. */
export const plain: Limits = { maxStorageBuffers: 8 }

/** An H200, by its costs. */
export const onH200: Limits = limitsOf(h200)

/** The value in a buffer of its own. */
export const apart = (x: Tensor): Tensor => x.contiguous()

/** The value as it is. */
export const asIs = (x: Tensor): Tensor => x

/** A program written with `apart` around what a rewrite puts together, and without. Both are scheduled by the same rules. */
export const withAndWithout = (
  effects: (b: Build, alone: (x: Tensor) => Tensor) => ReadonlyArray<Tensor>,
  limits: Limits = plain
): readonly [before: Version, after: Version] => [
  { effects: (b) => effects(b, apart), limits },
  { effects: (b) => effects(b, asIs), limits }
]

/** One program, by placement's rules and for an H200. */
export const plainAndOnH200 = (effects: Effects): readonly [before: Version, after: Version] => [
  { effects, limits: plain },
  { effects, limits: onH200 }
]

/**
 * Launches of both versions. What they compute on the reference evaluator agrees with the tensor program: relative
 * 1e-5, because sums of at most some hundred floats are added in another order.
 */
export const launches = (
  versions: readonly [before: Version, after: Version],
  vars: Readonly<Record<string, number>> = {}
): readonly [before: number, after: number] => {
  const [before, after] = versions.map(({ effects, limits }) => {
    const { sink } = Program.make(effects(new Build()))
    const made = scheduled(sink, limits)
    const got = runSchedule(sink, made, vars)
    const written = sink.src.map((store) => (storageOf(store.src[0]!).arg as { readonly id: number }).id)
    for (const [id, want] of runTensor(sink, vars)) {
      // values that could be told from others
      if (written.includes(id)) assert.isAbove(new Set(want).size, 2, `buffer ${id}`)
      want.forEach((x, i) => assert.closeTo(got.get(id)![i]!, x, 1e-5 * Math.max(1, Math.abs(x)), `buffer ${id}[${i}]`))
    }
    return made.steps.length
  })
  return [before!, after!]
}
