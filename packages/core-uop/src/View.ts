/** Named views of the parts of a program or a kernel, in place of chains of source numbers. */
import { argOf, type UOp } from "./UOp.ts"

/** A result of a call of a function: the call, and what the function's body computes there. */
export interface Result {
  readonly call: UOp
  readonly body: UOp
  readonly value: UOp
}

/** The view of a GETTUPLE. */
export const resultOf = (node: UOp): Result => {
  const call = node.src[0]!
  const body = call.src[0]!
  return { call, body, value: body.src[argOf(node, "GETTUPLE")]! }
}

/** One END of a kernel: its stores, and the loops around them, outermost first. */
export interface End {
  readonly node: UOp
  readonly stores: ReadonlyArray<UOp>
  readonly loops: ReadonlyArray<UOp>
}

/** The view of an END. Several stores in one loop nest are a TUPLE in it. */
export const endOf = (node: UOp): End => {
  const [effect, ...loops] = node.src
  return { node, stores: effect!.op === "TUPLE" ? effect!.src : [effect!], loops }
}

/** The ENDs of a kernel, in order: those that fill workgroup memory, then the one that stores results; before it, what is peeled from it. */
export const endsOf = (kernel: UOp): ReadonlyArray<End> => kernel.src.map(endOf)

/** A memory access: the element of a buffer, predicated by the gate if there is one. */
export interface Access {
  /** The INDEX. */
  readonly element: UOp
  readonly buffer: UOp
  readonly at: UOp
  readonly gate: UOp | undefined
}

/** What a LOAD reads, what a STORE writes, or what an INDEX names. */
export const accessOf = (node: UOp): Access => {
  const element = node.op === "INDEX" ? node : node.src[0]!
  const [buffer, at, gate] = element.src
  return { element, buffer: buffer!, at: at!, gate }
}

/** A STORE: where it writes, and what. */
export interface Store extends Access {
  readonly value: UOp
}

/** The view of a kernel's STORE. */
export const storeOf = (node: UOp): Store => ({ ...accessOf(node), value: node.src[1]! })

/** The trip count of a loop, or the length of a PARAM; `undefined` if it is known only at launch. */
export const fixedSize = (node: UOp): number | undefined => {
  const size = node.src[0]!
  return size.is("CONST") ? Number(size.arg) : undefined
}
