import * as Bounds from "@tg/core-uop/Bounds"
import type { ScalarName } from "@tg/core-uop/DType"
import type { UOp } from "@tg/core-uop/UOp"
import { rule, rules } from "../PatternMatcher.ts"
import * as P from "../UPat.ts"

const x = P.any("x")

const isInteger = (scalar: ScalarName): boolean => scalar === "i32" || scalar === "u32" || scalar === "index"

const isSigned = (scalar: ScalarName): boolean => scalar !== "u32"

/** Whether a cast through `through` equals the direct one. */
const survives = (x: UOp, through: ScalarName, to: ScalarName): boolean => {
  const from = x.dtype.scalar
  if (from === through || from === "bool") return true
  if (!isInteger(from)) return false
  const { max, min } = Bounds.of(x)
  // integers keep their 32 bits; only a float shows whether they were read as signed
  if (isInteger(through)) {
    return to !== "f32" || isSigned(from) === isSigned(through) || (min >= 0 && max < 2 ** 31)
  }
  // a float holds 24 bits; negative ones have no u32
  return through === "f32" && max <= 2 ** 24 && (to === "u32" || from === "u32" ? min >= 0 : min >= -(2 ** 24))
}

/** Conversions. */
export const casts = rules("casts", [
  rule("same", P.op(["CAST", "BITCAST"], x), ({ x }, node) => x.dtype === node.dtype ? x : undefined),
  rule("cast-cast", P.cast(P.named(P.cast(x), "middle")), ({ middle, x }, node) => {
    if (!survives(x, middle.dtype.scalar, node.dtype.scalar)) return undefined
    return x.dtype === node.dtype ? x : node.arena.make("CAST", node.dtype, [x])
  }),
  rule(
    "bitcast-bitcast",
    P.bitcast(P.bitcast(x)),
    ({ x }, node) => x.dtype === node.dtype ? x : node.arena.make("BITCAST", node.dtype, [x])
  )
])
