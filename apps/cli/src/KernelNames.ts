/** What kernels are called where people name them. */
import { key, type UOp } from "@tg/core-uop/UOp"
import { members } from "@tg/rangeify/Horizontal"
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

/** A member of launches, as a kernel of its own: what opts are chosen for. */
export interface Member extends Named {
  /** The names of the launches it is part of: its own where it is one alone. */
  readonly launches: ReadonlyArray<string>
}

/** The different members of some kernels, by name: numbered like kernels where names are the same. */
export const membersApart = (kernels: ReadonlyMap<string, Named>): ReadonlyMap<string, Member> => {
  const parts = [...kernels].flatMap(([launch, { ast, calls }]) => {
    const own = members(ast)
    const names = launch.replace(/\.\d+$/, "").split("+")
    return own.map((member, i) => ({ launch, calls, name: names[i] ?? launch, ast: member.ast }))
  })
  const different = [...Map.groupBy(parts, ({ ast }) => key(ast)).values()]
  const named = nameApart(different.map(([first]) => first!))
  return new Map([...named].map(([name, { ast }], i) => {
    const same = different[i]!
    const calls = same.reduce((n, part) => n + part.calls, 0)
    return [name, { ast, calls, launches: [...new Set(same.map(({ launch }) => launch))] }]
  }))
}
