/** Kernels that apply the operations every renderer renders (`Op.mandatory`) to pairs of numbers. */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { Arena, UOp } from "@tg/core-uop/UOp"

/** The types of which a kernel is made. */
export const dtypes = ["f32", "i32", "u32"] as const
export type Scalar = typeof dtypes[number]

type Operation = (a: UOp, b: UOp) => UOp

const { add, and, bitcast, cast, eq, fdiv, floordiv, floormod, lt, mul, ne, or, shl, shr, sub, where, xor } = Expr

/** Operations that all types have. Of booleans: equality, and what logic makes of them. */
const common = (dtype: DType.DType): ReadonlyArray<Operation> => [
  add,
  sub,
  mul,
  (a, b) => cast(lt(a, b), dtype),
  (a, b) => cast(eq(a, b), dtype),
  (a, b) => cast(ne(a, b), dtype),
  (a, b) => where(lt(a, b), a, b),
  (a, b) => where(xor(lt(a, b), or(eq(a, b), and(ne(a, b), lt(b, a)))), a, b)
]

const integer: ReadonlyArray<Operation> = [
  and,
  or,
  xor,
  (a, b) => shl(a, and(b, 31)),
  (a, b) => shr(a, and(b, 31)),
  (a, b) => floordiv(a, or(and(b, 1023), 1)),
  (a, b) => floormod(a, or(and(b, 1023), 1)),
  // a power of two is another path through the compiler
  (a) => floordiv(a, 8),
  (a) => floormod(a, 8),
  (a) => cast(cast(and(a, 0xffff), DType.f32), a.dtype)
]

const own: Readonly<Record<Scalar, ReadonlyArray<Operation>>> = {
  f32: [
    fdiv,
    (a) => Expr.alu("SQRT", mul(a, a)),
    (a) => Expr.alu("TRUNC", a),
    (a) => cast(cast(a, DType.i32), DType.f32),
    (a) => cast(cast(mul(a, a), DType.u32), DType.f32),
    (a) => bitcast(and(bitcast(a, DType.u32), 0xff800000), DType.f32)
  ],
  i32: [...integer, (a) => cast(cast(a, DType.u32), DType.i32), (a, b) => floordiv(a, sub(and(b, 1023), 1024))],
  u32: [...integer, (a) => bitcast(shr(bitcast(a, DType.i32), 1), DType.u32)]
}

/** Pairs of numbers: signs, zeros, halves, and the ends of the type, but no division by 0 and no NaN. */
export const inputs: Readonly<Record<Scalar, readonly [ReadonlyArray<number>, ReadonlyArray<number>]>> = {
  f32: [[0, 1.5, -1.5, 3, -7.75, 1000.25, 2 ** -20, -65535], [2, -0.25, 3, 3, -7.75, 7, 12345, 0.5]],
  i32: [[0, 1, -1, 7, -7, 2 ** 31 - 1, -(2 ** 31), 123456789], [3, -3, 5, 7, 2, 31, 17, -987654321]],
  u32: [[0, 1, 7, 2 ** 31, 2 ** 32 - 1, 2 ** 32 - 7, 123456789, 99], [3, 2, 7, 31, 2 ** 32 - 1, 5, 4000000000, 99]]
}

const operationsOf = (scalar: Scalar): ReadonlyArray<Operation> => [...common(DType.make(scalar)), ...own[scalar]]

/** Results that the kernel of a type writes. */
export const count = (scalar: Scalar): number => operationsOf(scalar).length * inputs[scalar][0].length

/** `operations_f32`: slot 0[k n + i] = operation k of slot 1[i] and slot 2[i], for n pairs. */
export const operations = (scalar: Scalar) => (arena: Arena): UOp => {
  const dtype = DType.make(scalar)
  const list = operationsOf(scalar)
  const n = inputs[scalar][0].length
  const param = (slot: number, length: number): UOp => arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
  const at = Expr.range(arena, list.length * n, 0, "GLOBAL")
  const [k, i] = [floordiv(at, n), floormod(at, n)]
  const [a, b] = [1, 2].map((slot) => Expr.load(Expr.element(param(slot, n), i)))
  const results = list.map((operation) => operation(a!, b!))
  const chosen = results.reduceRight((others, result, number) => where(eq(k, number), result, others))
  const out = Expr.element(param(0, list.length * n), at)
  const end = arena.make("END", DType.none, [Expr.store(out, chosen), at])
  return arena.make("SINK", DType.none, [end], { name: `operations_${scalar}` })
}
