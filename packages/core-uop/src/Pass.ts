/**
 * Stages as lists of passes. A pass is a value that says by its specs what it takes and what it leaves; one runner applies a list,
 * checks the specs in between, and tells a listener what each pass did. Without a listener that costs nothing.
 */
import { Clock, Context, Effect, Schema } from "effect"
import * as Spec from "./Spec.ts"
import type { UOp } from "./UOp.ts"

/** Sees a rule fire. */
export type Trace = (rule: string, before: UOp, after: UOp) => void

/** One step of a stage. */
export interface Pass<C, E extends Error = never> {
  readonly name: string
  /** The spec of what it takes. */
  readonly from: Spec.Stage
  /** The spec of what it leaves. */
  readonly to: Spec.Stage
  /** Tells the trace which of its rules fire, if it has rules; returns an error for what it cannot take. */
  readonly run: (root: UOp, context: C, trace: Trace | undefined) => UOp | E
}

/** A stage: passes in their order. */
export interface PassList<C, E extends Error = never> {
  readonly stage: string
  readonly passes: ReadonlyArray<Pass<C, E>>
}

/** What a pass did. */
export interface Ran {
  readonly stage: string
  readonly kernel: string
  readonly pass: string
  readonly before: UOp
  /** The same node if nothing changed. */
  readonly after: UOp
  readonly micros: number
  /** How often each rule fired. */
  readonly rules: ReadonlyMap<string, number>
}

/** Is told of every pass that runs. None by default. */
export const Listener = Context.Reference<((ran: Ran) => void) | undefined>("@tg/core-uop/Pass/Listener", {
  defaultValue: () => undefined
})

/** What is checked and reported while a list runs. */
export interface Watch {
  readonly checks: boolean
  readonly listener: ((ran: Ran) => void) | undefined
  readonly clock: Pick<Clock.Clock, "currentTimeNanosUnsafe">
}

/** Checks if `Spec.Checked` says so, and tells the `Listener`. */
export const watch: Effect.Effect<Watch> = Effect.all({
  checks: Spec.Checked,
  listener: Listener,
  clock: Clock.Clock
})

/** A pass whose result violates its spec: a defect of the pass. */
export class BrokenPass extends Schema.TaggedError<BrokenPass>()("BrokenPass", {
  kernel: Schema.String,
  stage: Schema.String,
  pass: Schema.String,
  message: Schema.String
}) {}

/**
 * Applies the passes of a list, one after the other, up to the first error. Specs are checked between passes; the input and the
 * result of a list are checked by its stage.
 */
export const run = <C, E extends Error>(
  { passes, stage }: PassList<C, E>,
  root: UOp,
  context: C,
  { kernel, watch }: { readonly kernel: string; readonly watch?: Watch | undefined }
): UOp | E | BrokenPass => {
  let current = root
  for (const [i, pass] of passes.entries()) {
    const result = watch?.listener === undefined
      ? pass.run(current, context, undefined)
      : heard(pass, current, context, { stage, kernel, clock: watch.clock, listener: watch.listener })
    if (result instanceof Error) return result
    const isChecked = watch?.checks === true && i < passes.length - 1 && result !== current
    const violation = isChecked ? Spec.check(pass.to, result)[0] : undefined
    if (violation !== undefined) {
      const message = `${kernel}: ${stage}, pass ${pass.name}: spec ${pass.to}: ${violation.node}: ${violation.reason}`
      return new BrokenPass({ kernel, stage, pass: pass.name, message })
    }
    current = result
  }
  return current
}

const heard = <C, E extends Error>(
  pass: Pass<C, E>,
  before: UOp,
  context: C,
  { clock, kernel, listener, stage }: Pick<Ran, "kernel" | "stage"> & Pick<Watch, "clock"> & {
    readonly listener: (ran: Ran) => void
  }
): UOp | E => {
  const rules = new Map<string, number>()
  const start = clock.currentTimeNanosUnsafe()
  const { arena } = before
  const outer = arena.onRewrite
  const trace: Trace = (rule) => void rules.set(rule, 1 + (rules.get(rule) ?? 0))
  // rules that are applied without the trace are counted too
  arena.onRewrite = trace
  let after: UOp | E
  try {
    after = pass.run(before, context, trace)
  } finally {
    arena.onRewrite = outer
  }
  const micros = Number(clock.currentTimeNanosUnsafe() - start) / 1000
  if (!(after instanceof Error)) listener({ stage, kernel, pass: pass.name, before, after, micros, rules })
  return after
}

/** Neighbours of a list that do not fit: a pass whose `from` is not the `to` of the one before it. */
export const gaps = <C, E extends Error>({ passes }: PassList<C, E>): ReadonlyArray<string> =>
  passes.slice(1).flatMap((pass, i) =>
    pass.from === passes[i]!.to ? [] : [`${passes[i]!.name} leaves ${passes[i]!.to}, ${pass.name} takes ${pass.from}`]
  )
