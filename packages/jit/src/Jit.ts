import { evaluateIndex } from "@tg/core-uop/Program"
import type { UOp } from "@tg/core-uop/UOp"
import type { RangeifyError } from "@tg/rangeify/Rangeify"
import type { Schedule } from "@tg/rangeify/Schedule"
import {
  type Binding,
  type DeviceError,
  type DeviceShape,
  type Dispatch,
  type Replay,
  type Span,
  together,
  type Work
} from "@tg/runtime/Device"
import { Context, Effect, Layer, type Scope } from "effect"
import type { CompileError } from "./Compiler.ts"
import type * as Estimate from "./Estimate.ts"
import { make } from "./internal/capture.ts"
import { untilCleared } from "./internal/words.ts"
import type * as Plan from "./Plan.ts"
import type * as Shared from "./Shared.ts"

/** The host's buffers by id, or slices of them. */
export type Buffers = ReadonlyMap<number, Binding>

/** How a program is bound. */
export interface BindOptions {
  /** Whether launches may share bind groups, which lowers encoding time; default `dispatch`: each has its own. */
  readonly groups?: Shared.BindGroups | undefined
}

/** A tensor program made ready for a device. */
export interface Prepared extends Replay {
  /** The variables a run needs: all of them, and no others. `undefined` accepts any. */
  readonly vars?: ReadonlyArray<string> | undefined
  readonly plan: Plan.ExecutionPlan
  /** The plan's schedule: step i became launch i. For a cached program it is made on demand. */
  readonly schedule: Effect.Effect<Schedule, RangeifyError>
  /** The launches bound to memory, in order: for replays of some of them, or of one repeatedly. */
  readonly dispatches: ReadonlyArray<Dispatch>
  /** What it is bound to, where that may be another device than the one that a program began with: one is made for a lost one. */
  readonly device?: DeviceShape | undefined
}

/** What says whether a grid barrier of a persistent launch timed out in any run so far: then what runs have left is void. */
export interface Settling {
  /** The words that say so, to be read behind the runs. None where no launch is persistent. */
  readonly span: () => Span | undefined
  /** Fails if they do. */
  readonly check: (words: Uint8Array) => Effect.Effect<void, DeviceError>
}

/** Runs plans and reads buffers, as `together`, and fails if what was read is void. Behind it stand the words that say so. */
export const settled = (
  { device, jit }: {
    readonly device: Pick<DeviceShape, "read" | "submit">
    readonly jit: Pick<Jit["Service"], "settle">
  },
  work: ReadonlyArray<Work>
): Effect.Effect<ReadonlyArray<Uint8Array>, DeviceError> => {
  const { settle } = jit
  const span = settle?.span()
  return span === undefined
    ? together(device, work)
    : Effect.tap(together(device, [...work, span]), (read) => settle!.check(read.at(-1)!))
}

/** Errors of scheduling, compiling and binding. */
export type JitError = RangeifyError | CompileError | DeviceError

/** The subset of `values` that are variables of this program. */
export const ownOf = (
  { vars }: Pick<Prepared, "vars">,
  values: Readonly<Record<string, number>>
): Readonly<Record<string, number>> =>
  vars === undefined ? values : Object.fromEntries(Object.entries(values).filter(([name]) => vars.includes(name)))

/** Captures a tensor program once and replays it. */
export class Jit extends Context.Service<Jit, {
  /** Schedules and compiles the program ahead of a `prepare` with `groups: "dispatch"`, which then only binds it. */
  readonly compile: (sink: UOp) => Effect.Effect<void, JitError>
  /** The predicted cost of the program, without compiling it. */
  readonly estimate: (sink: UOp) => Effect.Effect<Estimate.Estimate, RangeifyError>
  /** For `settled`. A `Jit` without persistent launches may leave it out. */
  readonly settle?: Settling | undefined
  /**
   * Schedules and compiles the program, allocates its temporary memory in the Scope and binds everything to the
   * device. Preparing the same graph again for other buffers only binds; with `groups: "block"`, only if their slices have the same layout.
   */
  readonly prepare: (
    sink: UOp,
    buffers: Buffers,
    options?: BindOptions
  ) => Effect.Effect<Prepared, JitError, Scope.Scope>
}>()("@tg/jit/Jit") {
  static readonly layer = Layer.effect(Jit, make)
}

/** Launches of a plan whose grid is not empty for these variables. */
export const launchCount = (plan: Plan.ExecutionPlan, vars: Readonly<Record<string, number>>): number =>
  plan.launches.filter((l) => plan.programs[l.program]!.grid.every((n) => evaluateIndex(n, vars) > 0)).length

/**
 * How many launches there are up to the last one that leaves something in a buffer of the host, but for one that is not wanted: who does
 * not want it needs no more of them. What lies in blocks is for the launches behind. Words that readers await (`Phases.waiting`) must not be left where the first launch of a program
 * has its own: then as many more launches as it takes to clear them.
 */
export const leadingWithout = (plan: Plan.ExecutionPlan, unwanted: number): number => {
  const { launches, programs } = plan
  const needed = 1 +
    launches.findLastIndex(({ program, slots }) =>
      slots.some((slot, i) =>
        slot.kind === "buffer" && slot.id !== unwanted && programs[program]!.bindings[i]!.access === "write"
      )
    )
  return untilCleared(plan, needed)
}
