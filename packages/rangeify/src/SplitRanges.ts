import * as Expr from "@tg/core-uop/Expr"
import { rangeArg, rebuild, substitute, toposort, type UOp } from "@tg/core-uop/UOp"
import { fixedSize } from "@tg/core-uop/View"

/** A loop whose trip count is a symbolic number times a constant: `16 tiles`. */
interface Multiple {
  readonly range: UOp
  readonly tiles: UOp
  readonly factor: number
}

const multipleOf = (range: UOp): Multiple | undefined => {
  const size = range.src[0]!
  const [tiles, factor] = size.src
  return size.op === "MUL" && factor!.is("CONST") && Number(factor.arg) > 1
    ? { range, tiles: tiles!, factor: Number(factor.arg) }
    : undefined
}

/**
 * Splits loops whose variable is only used through quotients and remainders: `r // 32` and `r % 32` with r < 1024
 * become two loops of 32, so that indices are affine. A loop of `16 n` iterations, n symbolic, becomes one of n and one of 16, whose
 * trip count is constant. Axes keep their kind.
 */
export const splitRanges = (kernel: UOp): UOp => {
  const nodes = toposort(kernel)
  const divisors = new Map<UOp, Set<number>>()
  const note = (range: UOp, divisor: number): void => {
    const size = fixedSize(range)
    if (size === undefined || divisor <= 1 || size % divisor !== 0 || divisor >= size) return
    const set = divisors.get(range)
    if (set === undefined) divisors.set(range, new Set([divisor]))
    else set.add(divisor)
  }
  for (const node of nodes) {
    if ((node.op !== "FLOORDIV" && node.op !== "FLOORMOD") || node.src[1]!.op !== "CONST") continue
    const c = Number(node.src[1]!.arg)
    const x = node.src[0]!
    if (x.op === "RANGE") note(x, c)
    else if (x.op === "FLOORDIV" && x.src[0]!.op === "RANGE" && x.src[1]!.op === "CONST") {
      note(x.src[0]!, Number(x.src[1]!.arg))
      note(x.src[0]!, Number(x.src[1]!.arg) * c)
    }
  }
  const multiples = nodes.flatMap((n) => n.op === "RANGE" ? multipleOf(n) ?? [] : [])
  if (divisors.size === 0 && multiples.length === 0) return kernel

  let nextId = 1 + Math.max(...nodes.filter((n) => n.op === "RANGE").map((n) => rangeArg(n).id))
  const parts = new Map<UOp, ReadonlyArray<UOp>>()
  const replace = new Map<UOp, UOp>()
  for (const { factor, range, tiles } of multiples) {
    const { axis, id } = rangeArg(range)
    const outer = Expr.range(kernel.arena, tiles, id, axis)
    const inner = Expr.range(kernel.arena, factor, nextId++, axis)
    parts.set(range, [outer, inner])
    replace.set(range, Expr.add(Expr.mul(outer, factor), inner))
  }
  for (const range of nodes) {
    const found = divisors.get(range)
    if (found === undefined) continue
    const { axis, id } = rangeArg(range)
    let outer = fixedSize(range)!
    const pieces: Array<UOp> = []
    let sum: UOp | undefined
    for (const d of chain([...found])) {
      const piece = Expr.range(kernel.arena, outer / d, pieces.length === 0 ? id : nextId++, axis)
      const term = Expr.mul(piece, d)
      sum = sum === undefined ? term : Expr.add(sum, term)
      pieces.push(piece)
      outer = d
    }
    const last = Expr.range(kernel.arena, outer, nextId++, axis)
    parts.set(range, [...pieces, last])
    replace.set(range, Expr.add(sum!, last))
  }
  return replaceRanges(kernel, parts, replace)
}

/** Divisors in falling order, each dividing the one before; larger ones win. */
const chain = (divisors: ReadonlyArray<number>): ReadonlyArray<number> => {
  const kept: Array<number> = []
  for (const d of [...divisors].sort((a, b) => b - a)) {
    if (kept.every((k) => k % d === 0)) kept.push(d)
  }
  return kept
}

/** Replaces each range by several: in expressions by `value`, in the lists of REDUCE and END by `parts`. */
export const replaceRanges = (
  kernel: UOp,
  parts: ReadonlyMap<UOp, ReadonlyArray<UOp>>,
  value: ReadonlyMap<UOp, UOp>
): UOp =>
  rebuild(kernel, (node, src) => {
    const closes = node.op === "REDUCE" || node.op === "END"
    return node.with(closes ? src.flatMap((s, i) => (i > 0 ? parts.get(node.src[i]!) : undefined) ?? [s]) : src)
  }, value)

/** Numbers ranges from 0 in the order outputs, then reductions as they are met, so that equal kernels are equal nodes. */
export const renumberRanges = (kernel: UOp): UOp => {
  const ranges: Array<UOp> = []
  const seen = new Set<UOp>()
  const take = (list: ReadonlyArray<UOp>): void => {
    for (const r of list) {
      if (r.op !== "RANGE" || seen.has(r)) continue
      seen.add(r)
      ranges.push(r)
    }
  }
  for (const end of kernel.src) take(end.src.slice(1))
  for (const node of toposort(kernel)) if (node.op === "REDUCE") take(node.src.slice(1))
  const replace = new Map<UOp, UOp>()
  ranges.forEach((r, i) => {
    const { axis, id } = rangeArg(r)
    if (id !== i) replace.set(r, kernel.arena.make("RANGE", r.dtype, r.src, { id: i, axis }))
  })
  return substitute(kernel, replace)
}
