/** Whole programs: each distinct body of a call is one search. */
import * as DType from "@tg/core-uop/DType"
import { type Node, rebuild, slotOf, type UOp } from "@tg/core-uop/UOp"
import { storageOf } from "@tg/tensor/Program"
import type { Residency } from "./Analysis.ts"
import { choose, explanation, explore, listing, type Search } from "./Optimise.ts"
import type { Stop } from "./Saturate.ts"
import type { Situation } from "./TensorCost.ts"

/** What became of a body. Microseconds are those of one call, by the cost model of the search. */
export interface BodyReport {
  readonly name: string
  readonly writtenMicros: number
  readonly micros: number
  /** Nodes looked at, and why no more. */
  readonly nodes: number
  readonly stop: Stop
  /** What is computed, and the rules that lead there; empty where it stayed as it was written. */
  readonly chosen: ReadonlyArray<string>
  readonly because: ReadonlyArray<string>
}

/** A program with the cheapest bodies, and what became of each. */
export interface Optimised {
  readonly sink: UOp
  readonly bodies: ReadonlyArray<BodyReport>
}

const isCall = (node: UOp): node is Node<"CALL"> => node.is("CALL") && node.src[0]!.op === "TUPLE"

/** The program with each body in its cheapest form; where calls give a parameter different kinds of storage, the first call says. */
export const ofProgram = (
  sink: UOp,
  { search, situation }: { readonly search: Search; readonly situation: Situation }
): Optimised => {
  const known = new Map<UOp, UOp>()
  const bodies: Array<BodyReport> = []
  const bodyOf = (call: Node<"CALL">): UOp => {
    const body = call.src[0]!
    const before = known.get(body)
    if (before !== undefined) return before
    const residency = (param: UOp): Residency => placeOf(call.src[1 + slotOf(param)]!, search.residency)
    const explored = explore(body.src, { ...search, residency })
    const chosen = choose(explored, situation)
    bodies.push({
      name: call.arg.name,
      writtenMicros: chosen.writtenMicros,
      micros: chosen.micros,
      nodes: explored.graph.size,
      stop: explored.saturation.stop,
      chosen: chosen.choice === undefined ? [] : listing(explored, chosen),
      because: explanation(explored, chosen)
    })
    const now = body.with(chosen.roots)
    known.set(body, now)
    return now
  }
  const made = rebuild(sink, (node, src) => node.with(isCall(node) ? [bodyOf(node), ...src.slice(1)] : src))
  return { sink: made, bodies }
}

/** Where an argument is: storage where it says, computed values among the activations. */
const placeOf = (argument: UOp, residency: Search["residency"]): Residency => {
  if (argument.dtype === DType.index) return "activation"
  const storage = storageOf(argument)
  return storage === undefined ? "activation" : residency(storage)
}
