import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import * as node from "./internal/node.ts"
import { iota, type Operand, type Tensor } from "./Tensor.ts"
import { fail } from "./TensorError.ts"

/** Joins along an axis of fixed sizes; all other axes agree. */
export const cat = (parts: ReadonlyArray<Tensor>, axis: number): Tensor => {
  const first = parts[0] ?? fail("cat", "at least one part", "none", "leave it out")
  const at = node.axisOf("cat", axis, first.rank)
  const sizes = parts.map((part) => {
    const d = part.shape[at]
    const fits = part.rank === first.rank && part.shape.every((size, i) => i === at || size === first.shape[i])
    return fits && part.dtype === first.dtype && typeof d === "number" ? d : fail(
      "cat",
      `parts like ${DType.print(first.dtype)} ${Shape.print(first.shape)} along axis ${axis}`,
      `${DType.print(part.dtype)} ${Shape.print(part.shape)}`,
      "agree in dtype and in all other axes; the joined axis has a fixed size"
    )
  })
  const total = sizes.reduce((a, b) => a + b, 0)
  const aside: ReadonlyArray<Shape.Dim> = first.shape.slice(at + 1).map(() => 1)
  const position = iota(first.arena, total).reshape([total, ...aside])
  let end = total
  let result: Tensor | undefined
  for (let i = parts.length - 1; i >= 0; i--) {
    const start = end - sizes[i]!
    const padded = parts[i]!.pad(first.shape.map((_, j) => j === at ? [start, total - end] : [0, 0]))
    result = result === undefined ? padded : position.lt(end).where(padded, result)
    end = start
  }
  return result!
}

/** Joins along a fresh axis. */
export const stack = (parts: ReadonlyArray<Tensor>, axis = 0): Tensor =>
  cat(parts.map((part) => part.unsqueeze(axis)), axis)

/** `[..., M, K] x [..., K, N]`; leading axes broadcast. */
export const matmul = (x: Tensor, y: Tensor): Tensor => {
  if (x.rank < 2 || y.rank < 2 || x.dim(-1) !== y.dim(-2)) {
    return fail(
      "matmul",
      "[..., M, K] x [..., K, N]",
      `${Shape.print(x.shape)} x ${Shape.print(y.shape)}`,
      "transpose or reshape one of them"
    )
  }
  return x.unsqueeze(-2).mul(y.transpose().unsqueeze(-3)).sum(-1)
}

/**
 * `y[..., n] = sum_k w[n, k] x[..., k]` for a weight whose rows are outputs, `[N, K]`. The row may be spread over
 * several axes, `[N, K1, K2, ...]` with K = K1 K2 ...: the sum then runs over nested axes, as packed weights want it.
 */
export const linear = (x: Tensor, w: Tensor): Tensor => contract(x, w, w.rank - 1)

/**
 * Like `linear`, for a weight `[..., N, ...row]` whose last `rowRank` axes are the row. The leading axes of the weight
 * broadcast with those of `x` in front of its last axis.
 */
export const contract = (x: Tensor, w: Tensor, rowRank: number): Tensor => {
  const row = w.shape.slice(w.rank - rowRank)
  const length = row.reduce<number>((n, d) => typeof d === "number" ? n * d : NaN, 1)
  if (x.rank === 0 || w.rank <= rowRank || (x.dim(-1) !== length && !(rowRank === 1 && x.dim(-1) === row[0]))) {
    return fail(
      "linear",
      "[..., K] with a weight [N, K]",
      `${Shape.print(x.shape)} with ${Shape.print(w.shape)}`,
      "weights have one row per output"
    )
  }
  const spread = x.reshape([...x.shape.slice(0, -1), 1, ...row])
  return spread.mul(w).sum({ axis: row.map((_, i) => i - rowRank) })
}

/** `exp(x) / sum(exp(x))` along an axis, shifted by the largest element so that nothing overflows. */
export const softmax = (x: Tensor, axis = -1): Tensor => {
  const e = x.sub(x.max({ axis, keepDims: true })).exp()
  return e.div(e.sum({ axis, keepDims: true }))
}

/** `1 / sqrt(mean(x^2) + eps)` over the last axis, which stays with size 1. */
export const rmsScale = (x: Tensor, eps: number): Tensor => x.mul(x).mean({ axis: -1, keepDims: true }).add(eps).rsqrt()

/** `weight * x / sqrt(mean(x^2) + eps)` over the last axis. */
export const rmsNorm = (x: Tensor, weight: Tensor, eps: number): Tensor => x.mul(rmsScale(x, eps)).mul(weight)

/** The k largest of the last axis in descending order, and where they were (`u32`). */
export interface TopK {
  readonly values: Tensor
  readonly indices: Tensor
}

/**
 * The k largest elements of the last axis. An element's rank is the number of those that beat it; of equal elements
 * the earlier wins. Costs n^2 comparisons per row, all parallel: meant for routers and samplers' short lists. NaN
 * beats nothing and is beaten by nothing, so rows with NaN give meaningless indices: keep them out.
 */
export const topK = (x: Tensor, k: number): TopK => {
  const n = x.dim(-1)
  if (typeof n !== "number" || k > n || k < 1) {
    return fail("topK", `the ${k} largest`, `shape ${Shape.print(x.shape)}`, "the last axis needs a fixed size >= k")
  }
  const position = iota(x.arena, n)
  const mine = x.unsqueeze(-1)
  const other = x.unsqueeze(-2)
  const beats = other.gt(mine).or(other.eq(mine).and(position.lt(position.unsqueeze(-1))))
  const rank = beats.cast(DType.u32).sum(-1)
  // [..., k, n]: exactly one element of a row has each rank
  const chosen = rank.unsqueeze(-2).eq(iota(x.arena, k).cast(DType.u32).unsqueeze(-1))
  const pick = (from: Tensor): Tensor => chosen.where(from, 0).sum(-1)
  return { values: pick(x.unsqueeze(-2)), indices: pick(position.cast(DType.u32)) }
}

// Rows longer than this are cut into pieces, so that many threads look for the largest element.
const longRow = 4096

/**
 * Where the largest element of the last axis is (`u32`); of equal ones the first. NaN is never the largest: a row of
 * nothing else gives the row's length.
 */
export const argmax = (x: Tensor): Tensor => {
  const n = x.dim(-1)
  if (typeof n !== "number") {
    return fail("argmax", "a last axis of fixed size", `shape ${Shape.print(x.shape)}`, "slice it to a fixed size")
  }
  const piece = n <= longRow ? n : Array.from({ length: 1024 }, (_, i) => 1024 - i).find((d) => n % d === 0)!
  const cut = (y: Tensor): Tensor => y.reshape([...x.shape.slice(0, -1), n / piece, piece])
  const largest = cut(x).max(-1).max({ axis: -1, keepDims: true })
  const position = iota(x.arena, n).cast(DType.i32)
  return cut(x.eq(largest).where(position, n)).min(-1).min(-1).cast(DType.u32)
}

/** Elements of `a` where the condition holds, of `b` elsewhere. */
export const where = (condition: Tensor, a: Operand, b: Operand): Tensor => condition.where(a, b)
