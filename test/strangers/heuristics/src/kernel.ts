import { DType, Expr, UOp } from "@tg/core-uop"

/** `out[i] = sum over k of w[i * columns + k] * x[k]`: one kernel, written by hand. */
export const matvec = (rows: number, columns: number): UOp.UOp => {
  const arena = new UOp.Arena()
  const param = (slot: number, length: number) => arena.make("PARAM", DType.f32, [Expr.int(arena, length)], { slot })
  const i = Expr.range(arena, rows, 0, "GLOBAL")
  const k = Expr.range(arena, columns, 1, "REDUCE")
  const w = Expr.load(Expr.element(param(1, rows * columns), Expr.add(Expr.mul(i, columns), k)))
  const x = Expr.load(Expr.element(param(2, columns), k))
  const sum = Expr.reduce("ADD", Expr.mul(w, x), [k])
  const store = Expr.store(Expr.element(param(0, rows), i), sum)
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, i])], { name: "matvec" })
}
