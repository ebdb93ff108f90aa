/** What the passes of the compiler did to one kernel, and to the body that it is part of. */
import * as Pass from "@tg/core-uop/Pass"
import { key, toposort, type UOp } from "@tg/core-uop/UOp"
import * as Body from "@tg/rangeify/Body"
import * as Finish from "@tg/rangeify/Finish"
import * as Horizontal from "@tg/rangeify/Horizontal"
import { Effect } from "effect"
import type { Named } from "@tg/jit/KernelNames"

/** A pass that changed something. */
export interface Changed {
  readonly stage: string
  /** The kernel, or the function body, that it was given. */
  readonly of: string
  readonly pass: string
  /** Nodes in front of it and behind it. */
  readonly nodes: readonly [before: number, after: number]
  readonly micros: number
  /** How often each rule fired. */
  readonly rules: Readonly<Record<string, number>>
  /** Values of a body by the memory that they live in, where the pass decided that. */
  readonly homes: Readonly<Record<string, number>> | undefined
  readonly after: UOp
}

/** Hears of the passes that run meanwhile. */
export const heard = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const ran: Array<Pass.Ran> = []
    return work.pipe(
      Effect.provideService(Pass.Listener, (each) => void ran.push(each)),
      Effect.map((result) => ({ result, ran }))
    )
  })

/**
 * Of all that a schedule did, what led to this kernel: the passes over the body that it is part of, those over each of its
 * members, and the one that joined them. Several kernels may have its name.
 */
export const ofKernel = (ran: ReadonlyArray<Pass.Ran>, { ast, body = "program" }: Named): ReadonlyArray<Pass.Ran> => {
  const scheduled = ran.filter(({ stage }) => stage === Finish.passes.stage)
  const finished = ofMembers(scheduled, ast)
  // bodies that are called are scheduled in between, under names of their own
  const start = finished.length === 0 ? scheduled.length : scheduled.indexOf(finished[0]!)
  const placed = ofBody(scheduled.slice(0, start), body)
  const joined = scheduled.filter(({ after, pass }) => isOf(Horizontal.passes, pass) && key(after) === key(ast))
  return [...placed, ...finished, ...joined.slice(-1)]
}

const isOf = ({ passes }: { readonly passes: ReadonlyArray<{ readonly name: string }> }, pass: string): boolean =>
  passes.some(({ name }) => name === pass)

/** The last passes over a body of this name: a body is placed again if a kernel needs too many bindings. */
const ofBody = (ran: ReadonlyArray<Pass.Ran>, body: string): ReadonlyArray<Pass.Ran> => {
  const own = ran.filter(({ kernel, pass }) => kernel === body && isOf(Body.passes, pass))
  return own.slice(Math.max(0, own.findLastIndex(({ pass }) => pass === Body.passes.passes[0]!.name)))
}

/** The passes over each member, once, however often the member was made. */
const ofMembers = (ran: ReadonlyArray<Pass.Ran>, kernel: UOp): ReadonlyArray<Pass.Ran> => {
  const { passes } = Finish.passes
  const finished = ran.filter(({ pass }) => isOf(Finish.passes, pass))
  const own = new Set(Horizontal.members(kernel).map(({ ast }) => key(ast)))
  return finished.flatMap(({ after, pass }, i) => {
    if (pass !== passes.at(-1)!.name || !own.delete(key(Horizontal.canonical(after).ast))) return []
    const start = finished.slice(0, i + 1).findLastIndex((each) => each.pass === passes[0]!.name)
    return finished.slice(start, i + 1)
  })
}

/** How many values of a body live in each kind of memory, where a pass decided it. */
const homesOf = (after: UOp): Changed["homes"] => {
  const marks = [...Body.marksOf(after).values()]
  if (marks.length === 0) return undefined
  return Object.fromEntries([...Map.groupBy(marks, ({ home }) => home)].map(([home, own]) => [home, own.length]))
}

/** Those that changed something. */
export const changes = (ran: ReadonlyArray<Pass.Ran>): ReadonlyArray<Changed> =>
  ran.filter(({ after, before }) => after !== before).map(({ after, before, kernel, micros, pass, rules, stage }) => ({
    stage,
    of: kernel,
    pass,
    nodes: [toposort(before).length, toposort(after).length],
    micros,
    rules: Object.fromEntries(rules),
    homes: homesOf(after),
    after
  }))

/** `homes: 12 global, 3 inline` */
export const printHomes = (homes: Changed["homes"]): string =>
  homes === undefined ? "" : `homes: ${Object.entries(homes).map(([home, values]) => `${values} ${home}`).join(", ")}`

/** `constants/fold x 3, index/sum` */
export const printRules = (rules: Changed["rules"]): string =>
  Object.entries(rules).map(([rule, times]) => times === 1 ? rule : `${rule} x ${times}`).join(", ")
