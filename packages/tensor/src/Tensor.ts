import * as Bounds from "@tg/core-uop/Bounds"
import * as DType from "@tg/core-uop/DType"
import type { Op, ReduceOp } from "@tg/core-uop/Op"
import * as Shape from "@tg/core-uop/Shape"
import type { Arena, UOp } from "@tg/core-uop/UOp"
import * as node from "./internal/node.ts"
import { fail } from "./TensorError.ts"

/** An operand of an elementwise operation: numbers and booleans become constants of the tensor's dtype. */
export type Operand = Tensor | number | boolean

/** An offset or a size along an axis: a number, a symbolic index, or a tensor that holds one. */
export type Extent = Shape.Dim | Tensor

/** Where along an axis, and how much. */
export interface Window {
  readonly start: Extent
  readonly size: Extent
}

/** Which axes to combine, and whether they stay with size 1. */
export interface ReduceOptions {
  readonly axis?: number | ReadonlyArray<number>
  readonly keepDims?: boolean
}

const log2e = Math.LOG2E
const ln2 = Math.LN2

/**
 * A lazy value of the tensor program: a node with a dtype and a shape. Immutable; methods build further nodes. Elementwise
 * operations broadcast (aligned at the right) and need operands of one dtype.
 */
export class Tensor {
  readonly node: UOp

  constructor(node: UOp) {
    this.node = node
  }

  get arena(): Arena {
    return this.node.arena
  }
  get dtype(): DType.DType {
    return this.node.dtype
  }
  get shape(): Shape.Shape {
    return Shape.of(this.node)
  }
  get rank(): number {
    return this.shape.length
  }
  /** The size of an axis; negative axes count from the end. */
  dim(axis: number): Shape.Dim {
    return this.shape[node.axisOf("dim", axis, this.rank)]!
  }

  /** Names the model line this value came from, for profiles, kernel names and errors. */
  label(name: string): Tensor {
    this.arena.label(this.node, name)
    return this
  }

  // ---- elementwise
  private lift(x: Operand): UOp {
    return x instanceof Tensor ? x.node : node.full(this.arena, [], x, this.dtype)
  }
  private binary(op: Op, x: Operand): Tensor {
    return new Tensor(node.elementwise(op, this.node, this.lift(x)))
  }
  private unary(op: Op): Tensor {
    return new Tensor(node.elementwise(op, this.node))
  }

  add(x: Operand): Tensor {
    return this.binary("ADD", x)
  }
  sub(x: Operand): Tensor {
    return this.binary("SUB", x)
  }
  mul(x: Operand): Tensor {
    return this.binary("MUL", x)
  }
  /** Division of floats; integers divide with `floordiv`. */
  div(x: Operand): Tensor {
    return this.binary("FDIV", x)
  }
  floordiv(x: Operand): Tensor {
    return this.binary("FLOORDIV", x)
  }
  /** The remainder of `floordiv`; it has the sign of the divisor. */
  mod(x: Operand): Tensor {
    return this.binary("FLOORMOD", x)
  }
  /** The larger of two values (`maximum` over an axis is `max`). */
  maximum(x: Operand): Tensor {
    return this.binary("MAX", x)
  }
  minimum(x: Operand): Tensor {
    return this.binary("MIN", x)
  }
  and(x: Operand): Tensor {
    return this.binary("AND", x)
  }
  or(x: Operand): Tensor {
    return this.binary("OR", x)
  }
  xor(x: Operand): Tensor {
    return this.binary("XOR", x)
  }
  /** Complement: logical for booleans, bitwise for integers. */
  not(): Tensor {
    return this.xor(this.dtype === DType.bool ? true : this.dtype === DType.u32 ? 2 ** 32 - 1 : -1)
  }
  shl(x: Operand): Tensor {
    return this.binary("SHL", x)
  }
  /** Logical for `u32`, arithmetic for `i32`. */
  shr(x: Operand): Tensor {
    return this.binary("SHR", x)
  }
  /** The sum of products of the four signed bytes in each word, as `i32`. Both are `u32`. */
  dot4I8(x: Operand): Tensor {
    if (this.dtype !== DType.u32) return fail("dot4I8", "words of four bytes (u32)", DType.print(this.dtype), "pack it")
    return this.binary("DOT4I8", x)
  }
  lt(x: Operand): Tensor {
    return this.binary("CMPLT", x)
  }
  gt(x: Operand): Tensor {
    return new Tensor(node.elementwise("CMPLT", this.lift(x), this.node))
  }
  /** Less or equal; false when either is NaN. */
  le(x: Operand): Tensor {
    return DType.isFloat(this.dtype) ? this.lt(x).or(this.eq(x)) : this.gt(x).not()
  }
  /** Greater or equal; false when either is NaN. */
  ge(x: Operand): Tensor {
    return DType.isFloat(this.dtype) ? this.gt(x).or(this.eq(x)) : this.lt(x).not()
  }
  eq(x: Operand): Tensor {
    return this.binary("CMPEQ", x)
  }
  ne(x: Operand): Tensor {
    return this.binary("CMPNE", x)
  }
  /** This tensor is the condition (bool): elements of `a` where it is true, of `b` elsewhere. One of them is a tensor. */
  where(a: Operand, b: Operand): Tensor {
    if (this.dtype !== DType.bool) {
      return fail("where", "a bool condition", DType.print(this.dtype), "compare it first, for example ne(0)")
    }
    const like = a instanceof Tensor ? a : b
    if (!(like instanceof Tensor)) {
      return fail("where", "a tensor for one branch", `the constants ${a} and ${b}`, "make one with full")
    }
    return new Tensor(node.elementwise("WHERE", this.node, like.lift(a), like.lift(b)))
  }
  neg(): Tensor {
    return this.unary("NEG")
  }
  abs(): Tensor {
    return this.maximum(this.neg())
  }
  relu(): Tensor {
    return this.maximum(0)
  }
  sqrt(): Tensor {
    return this.unary("SQRT")
  }
  rsqrt(): Tensor {
    return this.sqrt().reciprocal()
  }
  reciprocal(): Tensor {
    return new Tensor(node.elementwise("FDIV", this.lift(1), this.node))
  }
  exp2(): Tensor {
    return this.unary("EXP2")
  }
  exp(): Tensor {
    return this.mul(log2e).exp2()
  }
  log2(): Tensor {
    return this.unary("LOG2")
  }
  log(): Tensor {
    return this.log2().mul(ln2)
  }
  sin(): Tensor {
    return this.unary("SIN")
  }
  /** Rounds toward zero. */
  trunc(): Tensor {
    return this.unary("TRUNC")
  }
  sigmoid(): Tensor {
    return this.neg().exp().add(1).reciprocal()
  }
  silu(): Tensor {
    return this.div(this.neg().exp().add(1))
  }
  /** Converts the value. Float to integer truncates toward zero; bool gives 0 or 1; to bool is `ne(0)`. */
  cast(dtype: DType.DType): Tensor {
    if (dtype === this.dtype) return this
    if (this.node.op === "CONST" && DType.isInteger(this.dtype) && DType.isFloat(dtype)) {
      return new Tensor(node.full(this.arena, this.shape, Number(this.node.arg), dtype))
    }
    return new Tensor(this.arena.make("CAST", dtype, [this.node]))
  }
  /** Reinterprets the 32 bits. */
  bitcast(dtype: DType.DType): Tensor {
    if (!DType.isStorable(this.dtype) || !DType.isStorable(dtype)) {
      return fail("bitcast", DType.print(dtype), DType.print(this.dtype), "only i32, u32 and f32 have bits")
    }
    return dtype === this.dtype ? this : new Tensor(this.arena.make("BITCAST", dtype, [this.node]))
  }
  /** The IEEE half in the low 16 bits of each word, exactly. */
  halfToFloat(): Tensor {
    return this.and(0xffff).unary("HALF_TO_FLOAT")
  }
  /** The nearest half (ties to even) as the low 16 bits of a word. */
  floatToHalf(): Tensor {
    return this.unary("FLOAT_TO_HALF")
  }

  // ---- movement
  /** The same elements under another shape; one size may be -1. A symbolic axis stays whole. */
  reshape(shape: Shape.Shape): Tensor {
    return new Tensor(node.reshapeTo(this.node, node.reshapeShape(this.node, shape)))
  }
  /** Broadcasts axes of size 1, and missing leading ones, to `shape`. */
  expand(shape: Shape.Shape): Tensor {
    return new Tensor(node.broadcastTo("expand", this.node, shape.map(node.dim)))
  }
  /** Axis i of the result is axis `order[i]` of this. */
  permute(order: ReadonlyArray<number>): Tensor {
    const axes = order.map((axis) => node.axisOf("permute", axis, this.rank))
    if (axes.length !== this.rank || new Set(axes).size !== this.rank) {
      return fail("permute", `order [${order.join()}]`, `a tensor of rank ${this.rank}`, "name every axis once")
    }
    if (axes.every((axis, i) => axis === i)) return this
    return new Tensor(this.arena.make("PERMUTE", this.dtype, [this.node], axes))
  }
  /** Exchanges two axes. */
  transpose(a = -2, b = -1): Tensor {
    const order = this.shape.map((_, axis) => axis)
    const from = node.axisOf("transpose", a, this.rank)
    const to = node.axisOf("transpose", b, this.rank)
    order[from] = to
    order[to] = from
    return this.permute(order)
  }
  /** Inserts an axis of size 1. */
  unsqueeze(axis: number): Tensor {
    const at = node.axisOf("unsqueeze", axis, this.rank + 1)
    return this.reshape([...this.shape.slice(0, at), 1, ...this.shape.slice(at)])
  }
  /** Removes an axis of size 1. */
  squeeze(axis: number): Tensor {
    const at = node.axisOf("squeeze", axis, this.rank)
    if (this.shape[at] !== 1) {
      return fail("squeeze", `axis ${axis}`, `shape ${Shape.print(this.shape)}`, "only axes of size 1 can go")
    }
    return this.reshape(this.shape.filter((_, i) => i !== at))
  }
  /** Surrounds with zeros (false for bools): one `[before, after]` per axis. */
  pad(amounts: ReadonlyArray<readonly [number, number]>): Tensor {
    if (amounts.length !== this.rank || amounts.flat().some((n) => n < 0)) {
      return fail("pad", JSON.stringify(amounts), `rank ${this.rank}`, "give a non-negative pair for each axis")
    }
    this.shape.forEach((d, axis) => {
      const [lo, hi] = amounts[axis]!
      if (lo + hi > 0 && typeof d !== "number") {
        fail("pad", `axis ${axis} by ${lo} and ${hi}`, "a symbolic axis", "pad only axes of a fixed size")
      }
    })
    if (amounts.every(([lo, hi]) => lo === 0 && hi === 0)) return this
    const sizes = amounts.flatMap(([lo, hi]) => [lo, hi])
    return new Tensor(this.arena.make("PAD", this.dtype, [this.node, ...node.toNodes(this.arena, sizes)]))
  }
  /** A box: one window per axis, `undefined` for all of it. Starts and sizes may be symbolic. */
  shrink(windows: ReadonlyArray<Window | undefined>): Tensor {
    if (windows.length !== this.rank) {
      return fail("shrink", `${windows.length} windows`, `rank ${this.rank}`, "give one window for each axis")
    }
    const resolved = windows.map((w, axis): readonly [Shape.Dim, Shape.Dim] => {
      const whole = this.shape[axis]!
      if (w === undefined) return [0, whole]
      const start = extent(w.start)
      const size = extent(w.size)
      if (least(start) < 0 || least(size) < 0 || least(start) + least(size) > Shape.maxOf(whole)) {
        return fail(
          "shrink",
          `start ${least(start)}, size ${least(size)}`,
          `axis ${axis} of ${Shape.print(this.shape)}`,
          "stay inside of the axis"
        )
      }
      return [start, size]
    })
    if (resolved.every(([start, size], axis) => start === 0 && size === this.shape[axis])) return this
    return new Tensor(this.arena.make("SHRINK", this.dtype, [this.node, ...node.toNodes(this.arena, resolved.flat())]))
  }
  /** Part of one axis. */
  slice(axis: number, start: Extent, size: Extent): Tensor {
    const at = node.axisOf("slice", axis, this.rank)
    return this.shrink(this.shape.map((_, i) => i === at ? { start, size } : undefined))
  }
  /** Reverses axes. */
  flip(...axes: ReadonlyArray<number>): Tensor {
    if (axes.length === 0) return this
    const sorted = axes.map((axis) => node.axisOf("flip", axis, this.rank)).toSorted((a, b) => a - b)
    return new Tensor(this.arena.make("FLIP", this.dtype, [this.node], sorted))
  }
  /** Tiles this tensor `count` times along an axis. */
  repeat(axis: number, count: number): Tensor {
    const at = node.axisOf("repeat", axis, this.rank)
    const d = this.shape[at]!
    if (typeof d !== "number") return fail("repeat", `axis ${axis}`, "a symbolic axis", "use unsqueeze and expand")
    const before = this.shape.slice(0, at)
    const after = this.shape.slice(at)
    return this.unsqueeze(at).expand([...before, count, ...after]).reshape([...before, count * d, ...after.slice(1)])
  }
  /** Rows of this (axis 0) by their numbers: shape `index.shape ++ this.shape[1:]`. Numbers must be in range. */
  gather(index: Tensor): Tensor {
    if (!DType.isInteger(index.dtype) || this.rank === 0) {
      return fail(
        "gather",
        "rows by an integer tensor",
        `${DType.print(index.dtype)} into rank ${this.rank}`,
        "cast it"
      )
    }
    return new Tensor(this.arena.make("GATHER", this.dtype, [this.node, index.node]))
  }
  /**
   * Materialises this value: it is stored, row-major, and never fused into its readers. Where a kernel stages values for it, one workgroup computes
   * the whole of the axis `together`.
   */
  contiguous({ together }: { readonly together?: number | undefined } = {}): Tensor {
    return new Tensor(
      this.arena.make("CONTIGUOUS", this.dtype, [this.node], together === undefined ? undefined : { together })
    )
  }

  // ---- reduction
  private reduce(op: ReduceOp, options: ReduceOptions | number | undefined): Tensor {
    const { axis, keepDims = false } = typeof options === "number" ? { axis: options } : options ?? {}
    const given = axis === undefined ? this.shape.map((_, i) => i) : typeof axis === "number" ? [axis] : axis
    const axes = [...new Set(given.map((a) => node.axisOf(op, a, this.rank)))].toSorted((a, b) => a - b)
    if (axes.length === 0) return this
    const result = new Tensor(this.arena.make("REDUCE", this.dtype, [this.node], { op, axes }))
    return keepDims ? result.reshape(this.shape.map((d, i) => axes.includes(i) ? 1 : d)) : result
  }
  /** Sum over an axis, several (`{ axis: [..] }`), or all. */
  sum(options?: ReduceOptions | number): Tensor {
    return this.reduce("ADD", options)
  }
  prod(options?: ReduceOptions | number): Tensor {
    return this.reduce("MUL", options)
  }
  /** Largest element over an axis (`maximum` compares two tensors). */
  max(options?: ReduceOptions | number): Tensor {
    return this.reduce("MAX", options)
  }
  min(options?: ReduceOptions | number): Tensor {
    return this.reduce("MIN", options)
  }
  mean(options?: ReduceOptions | number): Tensor {
    const axis = typeof options === "number" ? options : options?.axis
    const axes = axis === undefined ? this.shape.map((_, i) => i) : typeof axis === "number" ? [axis] : axis
    const sizes = axes.map((a) => this.dim(a))
    const fixed = sizes.reduce<number>((n, d) => typeof d === "number" ? n * d : n, 1)
    const symbolic = sizes.filter((d) => typeof d !== "number").map((d) => scalar(this.arena, d).cast(this.dtype))
    return symbolic.reduce((mean, count) => mean.div(count), this.sum(options).div(fixed))
  }
}

const extent = (x: Extent): Shape.Dim => node.dim(x instanceof Tensor ? x.node : x)

const least = (d: Shape.Dim): number => typeof d === "number" ? d : Bounds.of(d).min

/** Every element is `value`. */
export const full = (
  arena: Arena,
  shape: Shape.Shape,
  value: number | boolean,
  dtype: DType.DType = DType.f32
): Tensor => new Tensor(node.full(arena, shape.map(node.dim), value, dtype))

export const zeros = (arena: Arena, shape: Shape.Shape, dtype: DType.DType = DType.f32): Tensor =>
  full(arena, shape, 0, dtype)

/** 0, 1, .. n-1 as `index` (cast it to compute with it or to store it). */
export const iota = (arena: Arena, n: Extent): Tensor =>
  new Tensor(arena.make("IOTA", DType.index, [Shape.toUOp(arena, extent(n))]))

/** A symbolic integer or a size as a tensor of rank 0, dtype `index`. */
export const scalar = (arena: Arena, value: Shape.Dim): Tensor => new Tensor(Shape.toUOp(arena, value))

/** A symbolic integer with inclusive bounds: an offset, or the size of an axis (`.node`). */
export const variable = (arena: Arena, name: string, min: number, max: number): Tensor =>
  new Tensor(arena.make("VAR", DType.index, [], { name, min, max }))

/** Storage that the host owns, known to it by `id`. */
export const buffer = (
  arena: Arena,
  id: number,
  options: { readonly shape: Shape.Shape; readonly dtype: DType.DType; readonly label?: string }
): Tensor => {
  const made = storage(arena, "BUFFER", { id }, options)
  return options.label === undefined ? made : made.label(options.label)
}

/** An argument of a function body (`Program.call` makes them). */
export const param = (
  arena: Arena,
  slot: number,
  options: { readonly shape: Shape.Shape; readonly dtype: DType.DType }
): Tensor => storage(arena, "PARAM", { slot }, options)

const storage = (
  arena: Arena,
  op: "BUFFER" | "PARAM",
  arg: { readonly [key: string]: number },
  options: { readonly shape: Shape.Shape; readonly dtype: DType.DType }
): Tensor => {
  if (!DType.isStorable(options.dtype)) {
    return fail(op.toLowerCase(), "storage", DType.print(options.dtype), "store i32, u32 or f32; cast or pack others")
  }
  return new Tensor(arena.make(op, options.dtype, node.toNodes(arena, options.shape.map(node.dim)), arg))
}
