import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import * as node from "./internal/node.ts"
import { iota, type Operand, type Tensor } from "./Tensor.ts"
import { fail } from "./TensorError.ts"

/** Concatenates along an axis of fixed sizes; all other axes agree. */
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

/** Concatenates along a new axis. */
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
 * several axes, `[N, K1, K2, ...]` with K = K1 K2 ...: the reduction is then a nest of loops, as packed weights need it.
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

/** `exp(x - m) / sum(exp(x - m))` along an axis; `m` is its largest element, against overflow. */
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

/** The least finite value of the dtype: WGSL has no literal for infinity. */
const lowest = ({ dtype }: Tensor): number =>
  dtype === DType.u32 ? 0 : dtype === DType.i32 ? -(2 ** 31) : -3.4028234663852886e38

/**
 * The k largest elements of the last axis; of equal elements the earlier wins. Selection one by one, each by two reductions of the
 * row (the largest of the rest, and the first that equals it): a subgroup does all 2 k without workgroup memory or barriers, and
 * readers can fuse them. Meant for the short lists of routers and samplers. Indices are within the row whatever is in it, but of
 * rows with NaN or infinities they mean nothing.
 */
export const topK = (x: Tensor, k: number): TopK => {
  const n = x.dim(-1)
  if (typeof n !== "number" || k > n || k < 1) {
    return fail("topK", `the ${k} largest`, `shape ${Shape.print(x.shape)}`, "the last axis needs a fixed size >= k")
  }
  const position = iota(x.arena, n).cast(DType.i32)
  const row = { axis: -1, keepDims: true } as const
  const found: Array<{ readonly value: Tensor; readonly index: Tensor }> = []
  for (let i = 0; i < k; i++) {
    /** `own`, with `other` in place of the elements that were found before. */
    const left = (own: Tensor, other: number): Tensor =>
      found.reduce((rest, { index }) => position.eq(index).where(other, rest), own)
    const value = left(x, lowest(x)).max(row)
    const first = left(x.eq(value).where(position, n - 1), n - 1).min(row)
    found.push({ value, index: first })
  }
  // not `cat`: its padding puts a condition into each reduction, which hinders common-subexpression elimination
  const rank = iota(x.arena, k)
  const inOrder = (each: ReadonlyArray<Tensor>): Tensor =>
    each.reduce((others, own, i) => rank.eq(i).where(own, others), each[0]!.expand([...x.shape.slice(0, -1), k]))
  return {
    values: inOrder(found.map(({ value }) => value)),
    indices: inOrder(found.map(({ index }) => index)).cast(DType.u32)
  }
}

// Longer rows are strip-mined, for parallelism both within a piece and across pieces.
const longRow = 4096
const piece = 1024
const fewestPieces = 32

/**
 * The index of the largest element of the last axis (`u32`), of equal ones the first. NaN is never the largest: a row of NaN alone
 * gives the row's length.
 */
export const argmax = (x: Tensor): Tensor => {
  const n = x.dim(-1)
  if (typeof n !== "number") {
    return fail("argmax", "a last axis of fixed size", `shape ${Shape.print(x.shape)}`, "slice it to a fixed size")
  }
  const size = n <= longRow ? n : piece
  const step = n <= longRow ? n : piece * fewestPieces
  const whole = Math.ceil(n / step) * step
  const position = iota(x.arena, whole).cast(DType.i32)
  const padded = whole === n
    ? x
    : position.lt(n).where(x.pad(x.shape.map((_, i) => [0, i === x.rank - 1 ? whole - n : 0])), lowest(x))
  const cut = (y: Tensor): Tensor => y.reshape([...x.shape.slice(0, -1), whole / size, size])
  const largest = cut(padded).max(-1).max({ axis: -1, keepDims: true })
  return cut(padded.eq(largest).where(position, n)).min(-1).min(-1).cast(DType.u32)
}

/** Elements of `a` where the condition holds, of `b` elsewhere. */
export const where = (condition: Tensor, a: Operand, b: Operand): Tensor => condition.where(a, b)
