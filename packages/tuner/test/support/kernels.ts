import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { Arena, type UOp } from "@tg/core-uop/UOp"

const param = (arena: Arena, slot: number, dtype: DType.DType, length: number): UOp =>
  arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })

const sink = (arena: Arena, store: UOp, ...ranges: ReadonlyArray<UOp>): UOp =>
  arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, ...ranges])])

/** A product with its loops from `range`, its output and weights in two slots from `slot`, and `x` in slot 2. */
const productEnd = (
  arena: Arena,
  [rows, columns]: readonly [number, number],
  { range, slot }: { readonly range: number; readonly slot: number }
): UOp => {
  const [row, k] = [Expr.range(arena, rows, range, "GLOBAL"), Expr.range(arena, columns, range + 1, "REDUCE")]
  const w = Expr.load(
    Expr.element(param(arena, slot + 1, DType.f32, rows * columns), Expr.add(Expr.mul(row, columns), k))
  )
  const x = Expr.load(Expr.element(param(arena, 2, DType.f32, columns), k))
  const sum = Expr.reduce("ADD", Expr.mul(w, x), [k])
  const store = Expr.store(Expr.element(param(arena, slot, DType.f32, rows), row), sum)
  return arena.make("END", DType.none, [store, row])
}

/** r0 < rows, r1 < columns: `out[r0] = sum over r1 of w[r0, r1] * x[r1]` */
export const product = (rows: number, columns: number, arena = new Arena()): UOp =>
  arena.make("SINK", DType.none, [productEnd(arena, [rows, columns], { range: 0, slot: 0 })])

/** Products of different rows with one `x`, joined: the outputs are slots 0, 3, 5 and so on. */
export const products = (allRows: ReadonlyArray<number>, columns: number, arena = new Arena()): UOp =>
  arena.make(
    "SINK",
    DType.none,
    allRows.map((rows, i) => productEnd(arena, [rows, columns], { range: 2 * i, slot: i === 0 ? 0 : 2 * i + 1 }))
  )

/** r0 < 2, r1 < 8, r2 < 16: rows of `w[5, 8, 16]` that `chosen[2]` names, times `x[16]`; the words of `w` are halves, two each. */
export const chosenRows = (arena = new Arena()): UOp => {
  const [pick, row] = [Expr.range(arena, 2, 0, "GLOBAL"), Expr.range(arena, 8, 1, "GLOBAL")]
  const k = Expr.range(arena, 16, 2, "REDUCE")
  const chosen = Expr.cast(Expr.load(Expr.element(param(arena, 1, DType.u32, 2), pick)), DType.index)
  const at = Expr.add(Expr.add(Expr.mul(chosen, 128), Expr.mul(row, 16)), k)
  const word = Expr.load(Expr.element(param(arena, 2, DType.u32, 5 * 128), at))
  const w = Expr.alu("HALF_TO_FLOAT", Expr.and(word, 0xffff))
  const x = Expr.load(Expr.element(param(arena, 3, DType.f32, 16), k))
  const sum = Expr.reduce("ADD", Expr.mul(w, x), [k])
  const out = Expr.element(param(arena, 0, DType.f32, 16), Expr.add(Expr.mul(pick, 8), row))
  return sink(arena, Expr.store(out, sum), pick, row)
}

/** r0 < n of at most 64: `out[r0] = x[r0] + 1` */
export const symbolic = (arena = new Arena()): UOp => {
  const i = Expr.range(arena, Expr.variable(arena, "n", 1, 64), 0, "GLOBAL")
  const x = Expr.load(Expr.element(param(arena, 1, DType.f32, 64), i))
  return sink(arena, Expr.store(Expr.element(param(arena, 0, DType.f32, 64), i), Expr.add(x, 1)), i)
}

/** `chosenRows` of one row, which is first put into workgroup memory: `out[r1] = sum over r2 of w[m, r1, r2] * x[r2]`, `m = max x`. */
export const pickedRows = (arena = new Arena()): UOp => {
  const [group, row] = [Expr.range(arena, 2, 0, "GLOBAL"), Expr.range(arena, 8, 1, "GLOBAL")]
  const [j, k] = [Expr.range(arena, 16, 2, "REDUCE"), Expr.range(arena, 16, 3, "REDUCE")]
  const memory = arena.make("LOCAL", DType.f32, [group], { id: 0, length: 1 })
  const x = (at: UOp): UOp => Expr.load(Expr.element(param(arena, 2, DType.f32, 16), at))
  const place = Expr.element(memory, Expr.int(arena, 0))
  const stage = arena.make("END", DType.none, [Expr.store(place, Expr.reduce("MAX", x(j), [j])), group])
  const picked = Expr.cast(Expr.cast(Expr.load(place), DType.u32), DType.index)
  const at = Expr.add(Expr.add(Expr.mul(picked, 128), Expr.mul(row, 16)), k)
  const w = Expr.load(Expr.element(param(arena, 1, DType.f32, 256), at))
  const out = Expr.element(param(arena, 0, DType.f32, 16), Expr.add(Expr.mul(group, 8), row))
  const store = Expr.store(out, Expr.reduce("ADD", Expr.mul(w, x(k)), [k]))
  return arena.make("SINK", DType.none, [stage, arena.make("END", DType.none, [store, group, row])])
}
