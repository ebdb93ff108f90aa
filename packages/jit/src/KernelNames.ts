/** Kernel names as people type and read them. */
import { key, type UOp } from "@tg/core-uop/UOp"
import { members } from "@tg/rangeify/Horizontal"
import type { KernelStep } from "@tg/rangeify/Schedule"

/** A kernel of a step. */
export interface Named {
  readonly ast: UOp
  /** Launches in the step. */
  readonly calls: number
  /** The function it belongs to, if any: the first of several for equal kernels. */
  readonly body?: string
}

/** Unique names: different kernels of one name become `x`, `x.2`, `x.3`, in the order of their first launch. */
export const nameApart = (
  steps: ReadonlyArray<Pick<KernelStep, "name" | "ast" | "body">>
): ReadonlyMap<string, Named> => {
  const taken = new Map<string, number>()
  return new Map(
    [...Map.groupBy(steps, (step) => key(step.ast)).values()].map((same) => {
      const { ast, body, name } = same[0]!
      const number = (taken.get(name) ?? 0) + 1
      taken.set(name, number)
      const named = { ast, calls: same.length, ...(body === undefined ? {} : { body }) }
      return [number === 1 ? name : `${name}.${number}`, named]
    })
  )
}

/** A member of a launch, as a kernel of its own: the unit opts are chosen for. */
export interface Member {
  /** Its name before horizontal fusion. */
  readonly name: string
  readonly ast: UOp
}

/** The members of a launch, in their order. */
export const membersOf = (launch: string, kernel: UOp): ReadonlyArray<Member> => {
  const names = launch.replace(/\.\d+$/, "").split("+")
  const all = members(kernel)
  return all.map(({ ast }, i) => ({ name: all.length === 1 ? launch : names[i] ?? launch, ast }))
}
