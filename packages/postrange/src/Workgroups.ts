/** What a workgroup of a GPU allows: its threads, how reductions share them, and its memory. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import * as Workgroup from "@tg/core-uop/Workgroup"
import * as Loops from "./Loops.ts"
import type { Opt } from "./Opt.ts"

/** An opt, its loop, and the kernel with it. */
export interface Step {
  readonly opt: Opt
  readonly loop: Loops.Loop
  readonly opted: UOp
}

/** Why a workgroup does not allow an opt, or `undefined` if it does. */
export const whyIllegal = (kernel: UOp, { loop, opt, opted }: Step, profile: DeviceProfile): string | undefined => {
  const threads = Loops.threads(opted)
  if (threads > profile.maxWorkgroupThreads) {
    return `${threads} threads, the device allows ${profile.maxWorkgroupThreads}`
  }
  const reason = opt.kind === "GROUP" ? whyNoGroup(kernel, loop, opt.amount) : undefined
  if (reason !== undefined) return reason
  const bytes = workgroupBytes(opted, profile)
  return bytes > profile.maxWorkgroupBytes
    ? `${bytes} bytes of workgroup memory, the device has ${profile.maxWorkgroupBytes}`
    : undefined
}

/** Why so many threads cannot share a reduction. */
const whyNoGroup = (kernel: UOp, loop: Loops.Loop, amount: number): string | undefined => {
  const reductions = Loops.reductions(kernel)
  const own = amount * Math.max(...reductions.filter((r) => has(r, loop.node)).map(Loops.groupOf))
  const other = reductions.filter((r) => !has(r, loop.node)).map(Loops.groupOf)
    .find((n) => n % own !== 0 && own % n !== 0)
  if (other !== undefined) {
    return `another reduction is grouped by ${other}; of two groups in a kernel one divides the other`
  }
  return reductions.some((r) => has(r, loop.node) && isNested(kernel, r))
    ? `the reduction over r${loop.id} runs inside another one`
    : undefined
}

/**
 * Bytes of workgroup memory: staged values, and the partial results of split reductions, unless a subgroup combines them: one for each
 * subgroup, or each thread where groups are not whole subgroups, and for each copy of the reduction.
 */
const workgroupBytes = (kernel: UOp, profile: DeviceProfile): number => {
  const staged = Workgroup.bytesOf(kernel)
  const threads = Loops.threads(kernel)
  const lanes = profile.subgroupSize
  const partials = kernel.src.flatMap((end) => {
    const copies = Loops.ofEnd(end).filter((l) => l.axis === "UPCAST").reduce((n, l) => n * l.size, 1)
    return Loops.reductions(end).map(Loops.groupOf).filter((group) => group > 1).map((group) =>
      lanes !== undefined && lanes % group === 0
        ? 0
        : copies * Math.ceil(lanes !== undefined && group % lanes === 0 ? threads / lanes : threads)
    )
  })
  return staged + 4 * partials.reduce((a, b) => a + b, 0)
}

const has = (reduction: UOp, range: UOp): boolean => reduction.src.indexOf(range) > 0

/** A nested reduction cannot be grouped: its barrier would be inside of another reduction's loops. */
const isNested = (kernel: UOp, inner: UOp): boolean =>
  Loops.reductions(kernel).some((outer) => Loops.isInside(inner, outer))
