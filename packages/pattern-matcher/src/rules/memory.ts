import { reduceArg, type UOp } from "@tg/core-uop/UOp"
import { constantLike } from "../internal/values.ts"
import { rule, rules } from "../PatternMatcher.ts"
import * as P from "../UPat.ts"

const isLoop = (node: UOp): boolean => node.op !== "CONST"

/** Loops of one iteration, constant gates, lanes of a vector that is built here. */
export const memory = rules("memory", [
  rule("reduce-once", P.startsWith("REDUCE", P.any("x")), ({ x }, node) => {
    const loops = node.src.slice(1).filter(isLoop)
    if (reduceArg(node).axes.length > 0 || loops.length === node.src.length - 1) return undefined
    return loops.length === 0 ? x : node.with([x, ...loops])
  }),
  rule("end-once", P.startsWith("END", P.node("STORE")), (_, node) => {
    const loops = node.src.slice(1).filter(isLoop)
    return loops.length === node.src.length - 1 ? undefined : node.with([node.src[0]!, ...loops])
  }),
  rule("open-gate", P.index(P.any("buffer"), P.any("at"), P.yes), ({ at, buffer }, node) => node.with([buffer, at])),
  rule("closed-load", P.load(P.index(P.anything, P.anything, P.no)), (_, node) => constantLike(node, 0)),
  rule("lane-of-stack", P.op("LANE", P.named(P.node("STACK"), "x")), ({ x }, node) => x.src[Number(node.arg)]),
  rule("stack-of-lanes", P.every("STACK", P.node("LANE")), (_, node) => {
    const vector = node.src[0]!.src[0]!
    return vector.dtype === node.dtype && node.src.every((s, i) => s.arg === i && s.src[0] === vector)
      ? vector
      : undefined
  })
])
