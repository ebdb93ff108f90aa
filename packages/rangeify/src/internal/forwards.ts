/** Which stores of the steps of a persistent launch are forwarded to the loads of another one (`Phases.Forward`). */
import * as Phases from "@tg/core-uop/Phases"
import * as Symbolic from "@tg/pattern-matcher/Symbolic"
import { bindingOf, keyOf } from "../Horizontal.ts"
import type { KernelStep, Ref } from "../Schedule.ts"

/** What a step writes for another one: its slot, the other step, and how many words. */
export interface Forwarded extends Pick<Phases.Forward, "slot" | "reader"> {
  readonly words: number
}

/** An argument of a step. */
interface Use {
  readonly step: number
  readonly slot: number
  readonly ref: Ref
  readonly isWritten: boolean
}

/** Words of a vector: readers store whole ones. */
const lanes = 4
/** Words of the largest window that each workgroup of a reader stores. */
const mostWords = 2 ** 11

/** For each of these steps, what is forwarded: windows of the host's memory that it alone writes, in front of the one step that reads there. */
export const forwardsOf = (
  steps: ReadonlyArray<KernelStep>,
  touches: (step: KernelStep) => ReadonlyArray<Pick<Use, "ref" | "isWritten">>
): ReadonlyMap<number, ReadonlyArray<Forwarded>> => {
  const uses = steps.flatMap((own, step) => touches(own).map((use, slot): Use => ({ ...use, slot, step })))
  const found = new Map<number, ReadonlyArray<Forwarded>>()
  for (const own of Map.groupBy(uses.filter(({ ref }) => ref.kind === "buffer"), ({ ref }) => keyOf(ref)).values()) {
    const [writer, reader, ...more] = own
    if (writer?.isWritten !== true || reader === undefined || reader.isWritten || more.length > 0) continue
    if (writer.step >= reader.step || bindingOf(writer.ref) !== bindingOf(reader.ref)) continue
    const window = Phases.windowOf(steps[writer.step]!.ast, writer.slot)
    if (window === undefined || window.words > mostWords || window.words % lanes !== 0) continue
    if (Symbolic.divisor(window.base) % lanes !== 0) continue
    const forwarded = { slot: writer.slot, reader: reader.step, words: window.words }
    found.set(writer.step, [...found.get(writer.step) ?? [], forwarded])
  }
  return found
}
