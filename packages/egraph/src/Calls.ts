/** Calls of functions with a body. */
import type { Node, UOp } from "@tg/core-uop/UOp"

/** A call of a function with a body. */
export type Call = Node<"CALL">

/** Whether it calls a function with a body. */
export const isCall = (node: UOp): node is Call => node.is("CALL") && node.src[0]!.op === "TUPLE"
