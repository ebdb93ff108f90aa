import * as DType from "@tg/core-uop/DType"
import { evaluateKernel } from "@tg/core-uop/EvaluateKernel"
import { evaluateLinear } from "@tg/core-uop/EvaluateLinear"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, toposort, type UOp } from "@tg/core-uop/UOp"

const param = (arena: Arena, slot: number, length: number): UOp =>
  arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })

const sink = (arena: Arena, store: UOp, ...ranges: ReadonlyArray<UOp>): UOp =>
  arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, ...ranges])])

/** r0 < 6, r1 < 8: `out[r0, r1] = x[r0, r1] * 2 + y[r1]` */
export const elementwise = (arena = new Arena()): UOp => {
  const [i, j] = [Expr.range(arena, 6, 0, "GLOBAL"), Expr.range(arena, 8, 1, "GLOBAL")]
  const at = Expr.add(Expr.mul(i, 8), j)
  const x = Expr.load(Expr.element(param(arena, 1, 48), at))
  const y = Expr.load(Expr.element(param(arena, 2, 8), j))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 48), at), Expr.add(Expr.mul(x, 2), y)), i, j)
}

/** r0 < 6, r1 < 32: `out[r0] = sum(x[r0, r1])` */
export const sums = (arena = new Arena()): UOp => {
  const [i, k] = [Expr.range(arena, 6, 0, "GLOBAL"), Expr.range(arena, 32, 1, "REDUCE")]
  const x = Expr.load(Expr.element(param(arena, 1, 192), Expr.add(Expr.mul(i, 32), k)))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 6), i), Expr.reduce("ADD", x, [k])), i)
}

/** r0 < 4, r1 < 16, r2 < 32: `out[r0] = max(x[r0, r1]) + sum(x[r0, r2 % 16])` */
export const twoReductions = (arena = new Arena()): UOp => {
  const i = Expr.range(arena, 4, 0, "GLOBAL")
  const [k, l] = [Expr.range(arena, 16, 1, "REDUCE"), Expr.range(arena, 32, 2, "REDUCE")]
  const x = (at: UOp): UOp => Expr.load(Expr.element(param(arena, 1, 64), Expr.add(Expr.mul(i, 16), at)))
  const value = Expr.add(Expr.reduce("MAX", x(k), [k]), Expr.reduce("ADD", x(Expr.floormod(l, 16)), [l]))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 4), i), value), i)
}

/**
 * r0 < 4, r1, r2, r3 < 16, with x of r0: `out[r0] = sum(x[r1] + a) + sum(x[r1] + b)`, `a = max(x[r2])`, `b = max(x[r3] + a)`.
 * Both sums are over r1; the second needs `b`, which crosses the workgroup when the first does.
 */
export const waitingSums = (arena = new Arena()): UOp => {
  const i = Expr.range(arena, 4, 0, "GLOBAL")
  const [k, l, m] = [1, 2, 3].map((id) => Expr.range(arena, 16, id, "REDUCE")) as [UOp, UOp, UOp]
  const x = (at: UOp): UOp => Expr.load(Expr.element(param(arena, 1, 64), Expr.add(Expr.mul(i, 16), at)))
  const a = Expr.reduce("MAX", x(l), [l])
  const b = Expr.reduce("MAX", Expr.add(x(m), a), [m])
  const value = Expr.add(Expr.reduce("ADD", Expr.add(x(k), a), [k]), Expr.reduce("ADD", Expr.add(x(k), b), [k]))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 4), i), value), i)
}

/** r0 < 4, r1 < 12, r2 < 8: `out[r0] = sum(x[r0, r1]) * min(y[r0, r2])` */
export const twoLengths = (arena = new Arena()): UOp => {
  const i = Expr.range(arena, 4, 0, "GLOBAL")
  const [k, l] = [Expr.range(arena, 12, 1, "REDUCE"), Expr.range(arena, 8, 2, "REDUCE")]
  const x = Expr.load(Expr.element(param(arena, 1, 48), Expr.add(Expr.mul(i, 12), k)))
  const y = Expr.load(Expr.element(param(arena, 2, 32), Expr.add(Expr.mul(i, 8), l)))
  const value = Expr.mul(Expr.reduce("ADD", x, [k]), Expr.reduce("MIN", y, [l]))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 4), i), value), i)
}

/** r0 < 4, r1 < 8 outside r2 < 8: `out[r0] = sum over r1 of max over r2 of x[r0, r1, r2]` */
export const nested = (arena = new Arena()): UOp => {
  const i = Expr.range(arena, 4, 0, "GLOBAL")
  const [k, l] = [Expr.range(arena, 8, 1, "REDUCE"), Expr.range(arena, 8, 2, "REDUCE")]
  const at = Expr.add(Expr.add(Expr.mul(i, 64), Expr.mul(k, 8)), l)
  const inner = Expr.reduce("MAX", Expr.load(Expr.element(param(arena, 1, 256), at)), [l])
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 4), i), Expr.reduce("ADD", inner, [k])), i)
}

/** r0 < n, r1 < m: `out[r0] = sum(x[r0, r1])` with n, m <= 8 */
export const symbolic = (arena = new Arena()): UOp => {
  const [n, m] = [Expr.variable(arena, "n", 1, 8), Expr.variable(arena, "m", 1, 8)]
  const [i, k] = [Expr.range(arena, n, 0, "GLOBAL"), Expr.range(arena, m, 1, "REDUCE")]
  const x = Expr.load(Expr.element(param(arena, 1, 64), Expr.add(Expr.mul(i, 8), k)))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 8), i), Expr.reduce("ADD", x, [k])), i)
}

/** r0 < 4, r1 < 3: `out[r0] = max over r1 of x[r0]`: the value is the same in every iteration */
export const constantReduction = (arena = new Arena()): UOp => {
  const [i, k] = [Expr.range(arena, 4, 0, "GLOBAL"), Expr.range(arena, 3, 1, "REDUCE")]
  const x = Expr.load(Expr.element(param(arena, 1, 4), i))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 4), i), Expr.reduce("MAX", x, [k])), i)
}

/** r0 < 4, r1 < 2, r2 < 8: `out[r0, r1] = sum(x[r2] * (r1 < 1 ? 1 : y[r0, r2]))`: the first column needs no r0 */
export const unevenCopies = (arena = new Arena()): UOp => {
  const [i, j] = [Expr.range(arena, 4, 0, "GLOBAL"), Expr.range(arena, 2, 1, "GLOBAL")]
  const k = Expr.range(arena, 8, 2, "REDUCE")
  const x = Expr.load(Expr.element(param(arena, 1, 8), k))
  const y = Expr.load(Expr.element(param(arena, 2, 32), Expr.add(Expr.mul(i, 8), k)))
  const value = Expr.reduce("ADD", Expr.mul(x, Expr.where(Expr.lt(j, 1), Expr.like(y, 1), y)), [k])
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 8), Expr.add(Expr.mul(i, 2), j)), value), i, j)
}

/** r0 < 8: `out[r0] = x[r0 + shift if r0 < last]`, shifted and cut off */
export const window = (shift: number, last: number, arena = new Arena()): UOp => {
  const i = Expr.range(arena, 8, 0, "GLOBAL")
  const gate = last < 8 ? Expr.lt(i, last) : undefined
  const x = Expr.load(Expr.element(param(arena, 1, 16), Expr.add(i, shift), gate))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, 8), i), x), i)
}

/** Inputs whose sums are exact, by slot; the output is filled with NaN. */
const inputs = (kernel: UOp): ReadonlyArray<Float32Array> => {
  const lengths = new Map(
    toposort(kernel).filter((n) => n.op === "PARAM").map((
      n
    ) => [(n.arg as { slot: number }).slot, Number(n.src[0]!.arg)])
  )
  return [...lengths].sort(([a], [b]) => a - b).map(([slot, length]) =>
    Float32Array.from({ length }, (_, i) => slot === 0 ? NaN : (i * 13 + slot * 7) % 29 - 14)
  )
}

const vars = { n: 5, m: 3 }

/** What a kernel (stages kernel to expanded) stores. */
export const run = (kernel: UOp): Float32Array => {
  const buffers = inputs(kernel)
  evaluateKernel(kernel, buffers, vars, { checkWrites: true })
  return buffers[0]!
}

/** What a linear kernel stores; `like` has the same arguments. */
export const runLinear = (linear: UOp, like: UOp): Float32Array => {
  const buffers = inputs(like)
  evaluateLinear(linear, buffers, vars)
  return buffers[0]!
}
