import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import * as Wasm from "../../src/Wasm.ts"
import { kernel } from "./linear.ts"

export const f32 = (n: number, f: (i: number) => number): Float32Array =>
  Float32Array.from({ length: n }, (_, i) => f(i))
export const i32 = (n: number, f: (i: number) => number): Int32Array => Int32Array.from({ length: n }, (_, i) => f(i))
export const u32 = (n: number, f: (i: number) => number): Uint32Array => Uint32Array.from({ length: n }, (_, i) => f(i))
/** Numbers from -8 to 8. */
export const noise = (i: number): number => ((Math.imul(i + 1, 0x9e3779b1) >>> 8) / 2 ** 23 - 1) * 8

/** out[i] = f(in[i], ...) for each element, scalar or four at a time. */
export const map = (
  lanes: DType.Lanes,
  count: number,
  types: ReadonlyArray<DType.DType>,
  out: DType.DType,
  f: (...x: ReadonlyArray<UOp>) => UOp
): UOp =>
  kernel((b) => {
    const target = b.param(0, out)
    const inputs = types.map((t, i) => b.param(i + 1, t))
    b.loop(count / lanes, "GLOBAL", (r) => {
      const at = lanes === 1 ? r : Expr.mul(r, lanes)
      b.store(target, at, f(...inputs.map((p) => b.load(p, at, { lanes }))))
    })
  })

/** The text of a module. */
export const text = (linear: UOp): string => {
  const result = Wasm.text("test", linear)
  if (typeof result !== "string") throw new Error(result.message)
  return result
}

/** out = w x, four columns at a time. */
export const matvec = (rows: number, columns: number): UOp =>
  kernel((b) => {
    const out = b.param(0)
    const w = b.param(1)
    const x = b.param(2)
    b.loop(rows, "GLOBAL", (row) => {
      const start = b.add(Expr.mul(row, columns))
      const sum = b.register(Expr.like(b.add(Expr.splat(Expr.constant(b.arena, DType.f32, 0), 4)), 0))
      b.loop(columns / 4, "REDUCE", (k) => {
        const at = Expr.mul(k, 4)
        const a = b.load(w, Expr.add(start, at), { lanes: 4 })
        b.accumulate("ADD", sum, Expr.mul(a, b.load(x, at, { lanes: 4 })))
      })
      const total = [1, 2, 3].reduce((t, i) => Expr.add(t, Expr.lane(sum, i)), Expr.lane(sum, 0))
      b.store(out, row, total)
    })
  })
