/**
 * Times a kernel's candidates where its launches stand: in a whole step of a program, behind other kernels and in front of others. Launches among their like may find in
 * caches what those of a step do not: weights, and code.
 */
import { key, type UOp } from "@tg/core-uop/UOp"
import { ownOf, type Prepared } from "@tg/jit/Jit"
import { median, settle } from "@tg/jit/Profiler"
import { type Binding, Device, type DeviceError, type Dispatch, type Executable } from "@tg/runtime/Device"
import { Effect, type Scope } from "effect"
import type * as Inputs from "./Inputs.ts"
import { sampled, type Timing } from "./Workbench.ts"

/** The launches of one kernel in a step. */
export interface Place {
  /** Microseconds that a launch takes longer with this program than with the one that the step has; what the step as a whole does, by launch. */
  readonly time: (executable: Executable) => Effect.Effect<Timing, DeviceError, Scope.Scope>
  /** From now on the step has this program. */
  readonly keep: (executable: Executable) => void
}

/** A step, whose kernels are timed one after the other. */
export interface Step {
  readonly placeOf: (kernel: UOp) => Place
  /** Microseconds of the step as it was, and with the programs that were kept since. */
  readonly micros: Effect.Effect<{ readonly before: number; readonly now: number }, DeviceError>
}

/** Pairs of steps, with a program and without, whose median difference is a sample. A device's clock drifts from pair to pair. */
const pairs = 3
const rounds = 15

/** The arguments of a launch as another program of its kernel numbers them. */
const rebound = ({ buffers, executable: { program } }: Dispatch, executable: Executable): Dispatch => {
  const bySlot = new Map(program.bindings.map(({ slot }, i): [number, Binding] => [slot, buffers[i]!]))
  return { executable, buffers: executable.program.bindings.map(({ slot }) => bySlot.get(slot)!) }
}

/** A step that is prepared, with these variables. */
export const make = Effect.fn("InStep.make")(function*(prepared: Prepared, given: Inputs.Vars) {
  const device = yield* Device
  const vars = ownOf(prepared, given)
  const { steps } = yield* prepared.schedule
  const wait = Effect.provideService(settle(prepared), Device, device)
  /** Samples of what a step takes: the first one shows how long that is. */
  const samples = Effect.fnUntraced(function*(dispatches: ReadonlyArray<Dispatch>) {
    const sample = sampled(yield* device.plan(dispatches), vars, wait, device.profile.kind)
    yield* sample
    return sample
  })
  const differences = (
    [without, own]: readonly [Effect.Effect<number, DeviceError>, Effect.Effect<number, DeviceError>]
  ) => Effect.map(Effect.replicateEffect(Effect.zipWith(without, own, (a, b) => b - a), pairs), median)

  let current = prepared.dispatches
  const step: Step = {
    placeOf: (kernel) => {
      const wanted = key(kernel)
      const own = new Set(steps.flatMap((step, i) => step.kind === "kernel" && key(step.ast) === wanted ? [i] : []))
      const withProgram = (executable: Executable) =>
        current.map((dispatch, i) => own.has(i) ? rebound(dispatch, executable) : dispatch)
      return {
        keep: (executable) => {
          current = withProgram(executable)
        },
        time: Effect.fnUntraced(function*(executable) {
          const both = [yield* samples(current), yield* samples(withProgram(executable))] as const
          return { again: Effect.map(differences(both), (micros) => micros / own.size) }
        })
      }
    },
    micros: Effect.scoped(Effect.gen(function*() {
      const both = Effect.all([yield* samples(prepared.dispatches), yield* samples(current)])
      const times = yield* Effect.replicateEffect(both, rounds)
      return { before: median(times.map(([before]) => before)), now: median(times.map(([, now]) => now)) }
    }))
  }
  return step
})
