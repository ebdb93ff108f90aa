/** What kernels are called where people name them. */
import type { UOp } from "@tg/core-uop/UOp"
import type { KernelStep } from "@tg/rangeify/Schedule"

/** A kernel of a step. */
export interface Named {
  readonly ast: UOp
  /** Launches in the step. */
  readonly calls: number
}

/** Different kernels of one name get a number: `x`, `x.2`, `x.3`. In the order of their first launch. */
export const nameApart = (steps: ReadonlyArray<Pick<KernelStep, "name" | "ast">>): ReadonlyMap<string, Named> => {
  const taken = new Map<string, number>()
  return new Map(
    [...Map.groupBy(steps, (step) => step.ast)].map(([ast, same]) => {
      const { name } = same[0]!
      const number = (taken.get(name) ?? 0) + 1
      taken.set(name, number)
      return [number === 1 ? name : `${name}.${number}`, { ast, calls: same.length }]
    })
  )
}
