/** What steps of a schedule read and write in memory. */
import * as Custom from "@tg/core-uop/Custom"
import * as Phases from "@tg/core-uop/Phases"
import { evaluateIndex } from "@tg/core-uop/Program"
import { slotOf, type UOp } from "@tg/core-uop/UOp"
import * as Fusion from "@tg/rangeify/Fusion"
import type { Step } from "@tg/rangeify/Schedule"

/** Values of the symbolic variables. */
export type Vars = Readonly<Record<string, number>>

/** Memory traffic of a kernel (spec `kernel`) in bytes, by the slot of the argument. */
export const traffic = (kernel: UOp, vars: Vars): ReadonlyMap<number, number> => {
  const elements = Fusion.traffic(kernel, (size) => evaluateIndex(size, vars))
  return new Map([...elements].map(([param, count]) => [slotOf(param), 4 * count]))
}

/** Memory traffic of a step in bytes, each byte counted once. */
export const bytesOf = (step: Step, vars: Vars): number =>
  step.kind === "custom"
    ? evaluateIndex(Custom.of(step.custom).cost.bytes, vars)
    : kernelsOf(step.ast).reduce((sum, kernel) => sum + bytesOfKernel(kernel, vars), 0)

/** The phases of a persistent launch; else the kernel itself. */
export const kernelsOf = (ast: UOp): ReadonlyArray<UOp> =>
  Phases.isPersistent(ast) ? Phases.runningIn(ast).map(({ kernel }) => kernel) : [ast]

/** Memory traffic of a kernel in bytes. */
export const bytesOfKernel = (kernel: UOp, vars: Vars): number =>
  [...traffic(kernel, vars).values()].reduce((a, b) => a + b, 0)
