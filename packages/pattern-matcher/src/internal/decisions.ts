import { unseen, type UOp } from "@tg/core-uop/UOp"
import { slot } from "./slot.ts"

const isCounted = (node: UOp): boolean => {
  const cache = slot(node)
  if (cache.decisions < 0 && (node.src.length === 0 || node.op === "LOAD" || node.op === "RANGE")) cache.decisions = 0
  return cache.decisions >= 0
}

const isDecision = (node: UOp): boolean => {
  switch (node.op) {
    case "FLOORDIV":
    case "FLOORMOD":
    case "MAX":
    case "MIN":
    case "WHERE":
    case "CMPLT":
    case "CMPEQ":
    case "CMPNE":
    case "AND":
    case "OR":
    case "SHR":
      return true
    default:
      return false
  }
}

/** Operations of an expression that tighter bounds may remove, counted with repetition. Loads are not entered. */
export const decisions = (root: UOp): number => {
  for (const node of unseen(root, isCounted)) {
    let count = isDecision(node) ? 1 : 0
    for (const s of node.src) count += slot(s).decisions
    slot(node).decisions = count
  }
  return slot(root).decisions
}
