/** What the passes of the compiler did to one kernel. */
import * as Pass from "@tg/core-uop/Pass"
import { key, toposort, type UOp } from "@tg/core-uop/UOp"
import { passes as finishing } from "@tg/rangeify/Finish"
import { canonical, members } from "@tg/rangeify/Horizontal"
import { Effect } from "effect"

/** A pass that changed a kernel. */
export interface Changed {
  readonly stage: string
  readonly pass: string
  /** Nodes in front of it and behind it. */
  readonly nodes: readonly [before: number, after: number]
  readonly micros: number
  /** How often each rule fired. */
  readonly rules: Readonly<Record<string, number>>
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

/** Of all that a schedule did, what led to the members of this kernel: several may have its name. */
export const ofKernel = (ran: ReadonlyArray<Pass.Ran>, kernel: UOp): ReadonlyArray<Pass.Ran> => {
  const [first, last] = [finishing.passes[0]!.name, finishing.passes.at(-1)!.name]
  const own = new Set(members(kernel).map(({ ast }) => key(ast)))
  const found: Array<Pass.Ran> = []
  const finished = ran.filter(({ stage }) => stage === finishing.stage)
  for (const [i, { after, pass }] of finished.entries()) {
    // each member once, however often it was made
    if (pass !== last || !own.delete(key(canonical(after).ast))) continue
    const start = finished.slice(0, i + 1).findLastIndex((each) => each.pass === first)
    found.push(...finished.slice(start, i + 1))
  }
  return found
}

/** Those that changed something. */
export const changes = (ran: ReadonlyArray<Pass.Ran>): ReadonlyArray<Changed> =>
  ran.filter(({ after, before }) => after !== before).map(({ after, before, micros, pass, rules, stage }) => ({
    stage,
    pass,
    nodes: [toposort(before).length, toposort(after).length],
    micros,
    rules: Object.fromEntries(rules),
    after
  }))

/** `constants/fold x 3, index/sum` */
export const printRules = (rules: Changed["rules"]): string =>
  Object.entries(rules).map(([rule, times]) => times === 1 ? rule : `${rule} x ${times}`).join(", ")
