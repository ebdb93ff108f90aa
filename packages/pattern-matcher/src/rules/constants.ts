import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import { elementwise } from "@tg/core-uop/Op"
import type { UOp } from "@tg/core-uop/UOp"
import { fold } from "../internal/fold.ts"
import { constantLike, isFloat, valueOf } from "../internal/values.ts"
import { rule, rules } from "../PatternMatcher.ts"
import * as P from "../UPat.ts"

const operations = [...elementwise]

const isConstant = (node: UOp): boolean =>
  node.op === "CONST" || (node.op === "STACK" && node.src.every((s) => s.op === "CONST"))

const folded = (node: UOp): UOp | undefined => {
  const values = node.src.map(valueOf)
  if (values.every((v) => v !== undefined)) {
    const value = fold(node.op, node.dtype.scalar, node.src[0]!.dtype.scalar, values)
    return value === undefined ? undefined : constantLike(node, value)
  }
  // vectors with a constant in each lane
  const scalar = DType.scalarOf(node.dtype)
  const lanes: Array<UOp> = []
  for (let i = 0; i < node.dtype.lanes; i++) {
    const lane = node.src.map((s) => valueOf(s.src[i]!)!)
    const value = fold(node.op, scalar.scalar, node.src[0]!.dtype.scalar, lane)
    if (value === undefined) return undefined
    lanes.push(node.arena.make("CONST", scalar, [], value))
  }
  return node.arena.make("STACK", node.dtype, lanes)
}

/** Constant folding, and values that their bounds determine. */
export const constants = rules("constants", [
  rule(
    "fold",
    P.every(operations, P.satisfying(P.node("CONST", "STACK"), isConstant)),
    (_, node) => folded(node)
  ),
  rule("bounds", P.node(...operations, "VAR", "SPECIAL"), (_, node) => {
    const value = Bounds.constantOf(node)
    return value === undefined || !Number.isFinite(value) ? undefined : constantLike(node, value)
  }, { when: (node) => !isFloat(node) })
])
