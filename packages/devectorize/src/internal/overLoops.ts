/** Reductions over loops: registers, and the loops that accumulate in them. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { ReduceOp } from "@tg/core-uop/Op"
import { openRanges, rangeArg, reduceArg, substitute, type UOp } from "@tg/core-uop/UOp"
import type { Code } from "./code.ts"
import type { Siblings } from "./siblings.ts"

/** With this many accumulators the latency of an addition is hidden, and a chain of additions to each costs nothing. */
const manySums = 8

/**
 * The addends of an unrolled reduction, one by one, so that each product is contracted with its addition (fused multiply-add). Lanes of one vector
 * stay together: the vector would be held until the last of them is added.
 */
const addendsOf = (value: UOp, op: ReduceOp): ReadonlyArray<UOp> => {
  const found: Array<UOp> = []
  let rest = value
  while (rest.op === op) {
    found.unshift(rest.src[1]!)
    rest = rest.src[0]!
  }
  found.unshift(rest)
  return new Set(found).size === found.length && found.every(({ op }) => op !== "LANE") ? found : [value]
}

/** Emits a group of reductions over the same loops (loop fusion). */
export const overLoops = (
  group: ReadonlyArray<UOp>,
  { code, emit, siblings }: {
    readonly code: Code
    readonly siblings: Siblings
    readonly emit: (node: UOp) => UOp
  }
): void => {
  const { arena } = code
  const ranges = group[0]!.src.slice(1)
  const parent = code.scopeOf(openRanges(group[0]!))
  const registers = group.map((n) => {
    const initial = emit(Expr.identity(arena, reduceArg(n).op, n.dtype))
    return code.push(parent, arena.make("REG", n.dtype, [initial], { id: code.freshId() }))
  })
  // the loops are open already, for a copy at another place: this one gets loops of its own
  const own = ranges.map((r) => code.isOpen(r) ? Expr.range(arena, r.src[0]!, code.freshRange(), rangeArg(r).axis) : r)
  const renamed = new Map(ranges.map((r, i) => [r, own[i]!] as const).filter(([r, fresh]) => r !== fresh))
  const values = group.map((n) => substitute(n.src[0]!, renamed))
  if (renamed.size > 0) siblings.note(values)
  const body = code.open(parent, own, emit)
  const addends = group.map((n, i) => group.length < manySums ? [values[i]!] : addendsOf(values[i]!, reduceArg(n).op))
  // the first addend of every sum, then the second: short live ranges for shared operands
  for (let j = 0; j < Math.max(...addends.map((list) => list.length)); j++) {
    group.forEach((n, i) => {
      const addend = addends[i]![j]
      if (addend === undefined) return
      code.push(body, arena.make("ACCUMULATE", DType.none, [registers[i]!, emit(addend)], { op: reduceArg(n).op }))
    })
  }
  group.forEach((n, i) => code.done.set(n, registers[i]!))
  code.close(parent, own)
}
