import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { Arena } from "@tg/core-uop/UOp"
import * as Nn from "../Nn.ts"
import * as Program from "../Program.ts"
import type { RandomInput, RandomOutput, RandomProgram, Step } from "../Random.ts"
import { scatterAdd } from "../Scatter.ts"
import { buffer, full, iota, scalar, type Tensor, variable } from "../Tensor.ts"
import { generator } from "./generator.ts"

/** A value with its error analysis: magnitudes are at most `bound`, the rounding error is at most about `error`. */
interface Known {
  readonly x: Tensor
  readonly bound: number
  readonly error: number
}

/** Relative error of one float operation: devices may fuse and reorder, so a few units in the last place. */
const unit = 2 ** -22
/** WGSL's accuracy of transcendental functions: exp2 and log2 a few ulp more, sin 2^-11 absolute; with a margin of two. */
const coarse = 2 ** -19
const sinError = 2 ** -10

/** Half the spacing of halves, relative. */
const halves = 2 ** -11
/** Values with more elements are dropped, to keep tests fast. */
const maxElements = 3000

export const build = (steps: ReadonlyArray<Step>): RandomProgram => new Builder().build(steps)

class Builder {
  private readonly arena = new Arena()
  private readonly values: Array<Known> = []
  private readonly inputs: Array<RandomInput> = []
  private readonly outputs: Array<RandomOutput> = []
  private readonly effects: Array<Tensor> = []
  private readonly used = new Set<Tensor>()
  private readonly vars: Readonly<Record<string, number>> = { rows: 3, at: 2 }
  private readonly rows = variable(this.arena, "rows", 1, 5)
  private readonly at = variable(this.arena, "at", 0, 4)
  private buffers = 0

  build(steps: ReadonlyArray<Step>): RandomProgram {
    this.input(DType.f32, [4, 6], 11)
    steps.forEach((step) => this.step(step))
    // all values may have been used: there is always an output
    const unused = this.values.filter((v) => !this.used.has(v.x)).slice(-6)
    const results = unused.length > 0 ? unused : this.values.slice(-1)
    for (const value of results) this.output(value)
    const program = Program.make(this.effects)
    return {
      steps,
      program,
      inputs: this.inputs.filter(({ id }) => program.buffers.some((b) => b.id === id)),
      outputs: this.outputs,
      vars: Object.fromEntries(program.vars.map(({ name }) => [name, this.vars[name]!]))
    }
  }

  private sizes(shape: Shape.Shape): ReadonlyArray<number> {
    return shape.map((d) => typeof d === "number" ? d : this.vars["rows"]!)
  }

  private output(value: Known): void {
    const x = value.x.dtype === DType.bool ? value.x.cast(DType.u32) : value.x
    const id = this.buffers++
    const out = buffer(this.arena, id, { shape: x.shape, dtype: x.dtype, label: `out${id}` })
    this.effects.push(Program.assign(out, x))
    const tolerance = DType.isFloat(x.dtype) ? value.error * 4 + 1e-30 : 0
    this.outputs.push({ id, dtype: x.dtype, shape: this.sizes(x.shape), capacity: x.shape.map(Shape.maxOf), tolerance })
  }

  private push(x: Tensor, bound: number, error: number): void {
    if (Shape.maxElements(x.shape) > maxElements || x.rank > 5) return
    // rescale what grows, so that nothing overflows
    if (!DType.isFloat(x.dtype) || bound <= 64) {
      this.values.push({ x, bound, error })
      return
    }
    const scale = 2 ** -Math.ceil(Math.log2(bound / 16))
    this.values.push({ x: x.mul(scale), bound: bound * scale, error: error * scale })
  }

  private input(dtype: DType.DType, shape: Shape.Shape, seed: number): void {
    const id = this.buffers++
    const count = Shape.maxElements(shape)
    const next = generator(seed)
    const data = dtype === DType.f32
      ? Float32Array.from({ length: count }, () => (next() % 4001 - 2000) / 1000)
      : dtype === DType.i32
      ? Int32Array.from({ length: count }, () => next() % 8 === 0 ? next() | 0 : next() % 41 - 20)
      : Uint32Array.from({ length: count }, () => next() % 4 === 0 ? next() : next() % 30)
    this.inputs.push({ id, dtype, shape: this.sizes(shape), capacity: shape.map(Shape.maxOf), data })
    this.values.push({ x: buffer(this.arena, id, { shape, dtype, label: `in${id}` }), bound: 2, error: 0 })
  }

  /** An earlier value that satisfies the condition; recent ones are preferred. */
  private pick(number: number, accept: (x: Tensor) => boolean): Known | undefined {
    const fitting = this.values.filter((v) => accept(v.x))
    if (fitting.length === 0) return undefined
    const back = Math.min(number % fitting.length, (number >>> 8) % fitting.length)
    return fitting[fitting.length - 1 - back]
  }

  private use(...values: ReadonlyArray<Known>): void {
    for (const v of values) this.used.add(v.x)
  }

  /** A second operand that broadcasts with the first (which does with itself). */
  private partner(number: number, first: Tensor): Known {
    return this.pick(number, (y) => y.dtype === first.dtype && broadcasts(first.shape, y.shape))!
  }

  private float(number: number): Known | undefined {
    return this.pick(number, (x) => x.dtype === DType.f32)
  }

  private integer(number: number): Known | undefined {
    return this.pick(number, (x) => x.dtype === DType.i32 || x.dtype === DType.u32)
  }

  private step({ kind, picks: [a = 0, b = 0, c = 0, d = 0] }: Step): void {
    const shape: Shape.Shape = a % 3 === 0
      ? [this.rows.node, 2 + b % 4]
      : a % 3 === 1
      ? [2 + b % 5]
      : [1 + b % 3, 1, 2 + c % 7]
    switch (kind) {
      case "inputFloat":
        return this.input(DType.f32, shape, d)
      case "inputInt":
        return this.input(DType.i32, shape, d)
      case "inputUint":
        return this.input(DType.u32, shape, d)
      case "inputTall":
        return this.input(DType.f32, [32 + a % 40, 3 + b % 4], d)
      case "floordiv":
      case "mod":
      case "bits":
      case "shift":
      case "compare":
      case "select":
      case "toFloat":
      case "topK":
      case "gather":
        return this.integers(kind, [a, b, c, d])
      case "reshape":
      case "permute":
      case "expand":
      case "pad":
      case "shrink":
      case "slide":
      case "flip":
      case "cat":
        return this.move(kind, [a, b, c])
      case "reduce":
      case "largest":
        return this.reduction(kind, [a, b, c])
      case "matmul":
      case "linear":
      case "softmax":
      case "norm":
        return this.compound(kind, a, b)
      case "store":
        return this.store(a)
      case "scatter":
        return this.scatter([a, b, c])
      case "call":
        return this.callBlock(a, b)
      default:
        return this.floats(kind, [a, b])
    }
  }

  private floats(
    kind: "add" | "mul" | "sub" | "div" | "maximum" | "exp2" | "log2" | "sqrt" | "sin" | "silu" | "half",
    [a, b]: readonly [number, number]
  ): void {
    if (a % 4 === 0 && (kind === "add" || kind === "mul" || kind === "sub" || kind === "maximum")) {
      const x = this.integer(a >>> 2)
      if (x === undefined) return
      const y = this.partner(b, x.x)
      this.use(x, y)
      return this.push(x.x[kind](y.x), 0, 0)
    }
    const x = this.float(a >>> 2)
    if (x === undefined) return
    const y = this.partner(b, x.x)
    switch (kind) {
      case "add":
      case "sub":
      case "maximum":
        this.use(x, y)
        return this.push(x.x[kind](y.x), x.bound + y.bound, x.error + y.error + unit * (x.bound + y.bound))
      case "mul":
        this.use(x, y)
        return this.push(
          x.x.mul(y.x),
          x.bound * y.bound,
          x.error * y.bound + y.error * x.bound + unit * x.bound * y.bound
        )
      case "div":
        // the denominator is at least 1
        this.use(x, y)
        return this.push(x.x.div(y.x.abs().add(1)), x.bound, x.error + x.bound * (y.error + unit * (y.bound + 4)))
      case "exp2": {
        const scale = 2 / Math.max(2, x.bound)
        this.use(x)
        return this.push(x.x.mul(scale).exp2(), 4, 4 * (x.error + coarse))
      }
      case "log2":
        this.use(x)
        return this.push(x.x.abs().add(1).log2(), Math.log2(x.bound + 1), 2 * x.error + unit * x.bound + coarse)
      case "sqrt":
        this.use(x)
        return this.push(
          x.x.mul(x.x).add(0.25).sqrt(),
          x.bound + 1,
          2 * x.bound * (x.error + unit * (x.bound + 1)) + unit
        )
      case "sin":
        this.use(x)
        return this.push(x.x.mul(3 / Math.max(3, x.bound)).sin(), 1, x.error + sinError)
      case "silu":
        this.use(x)
        return this.push(x.x.mul(4 / Math.max(4, x.bound)).silu(), 4, 2 * x.error + 32 * coarse)
      case "half":
        // rounding to half may flip to the neighbour when the value is not exact
        this.use(x)
        return this.push(
          x.x.floatToHalf().halfToFloat(),
          x.bound * 1.01,
          x.error === 0 ? 0 : x.error + 2 * halves * x.bound
        )
    }
  }

  private integers(
    kind: "floordiv" | "mod" | "bits" | "shift" | "compare" | "select" | "toFloat" | "topK" | "gather",
    [a, b, c, d]: readonly [number, number, number, number]
  ): void {
    if (kind === "gather") return this.gather(a, b)
    const x = this.integer(a)
    if (x === undefined) return
    const y = this.partner(b, x.x)
    this.use(x)
    switch (kind) {
      case "floordiv":
        return this.push(x.x.floordiv(1 + b % 9), 0, 0)
      case "mod":
        return this.push(x.x.mod(1 + b % 9), 0, 0)
      case "shift":
        return this.push(b % 2 === 0 ? x.x.shl(c % 32) : x.x.shr(c % 32), 0, 0)
      case "bits":
        if (c % 5 === 4 && x.x.dtype === DType.u32) return this.push(x.x.dot4I8(y.x), 0, 0)
        return this.push(x.x[(["and", "or", "xor"] as const)[c % 3]!](y.x), 0, 0)
      case "compare":
        return this.push(x.x[(["lt", "gt", "le", "ge", "eq", "ne"] as const)[c % 6]!](y.x), 0, 0)
      case "select": {
        const p = this.pick(c, (v) => v.dtype !== DType.bool && broadcasts(v.shape, x.x.shape))
        if (p === undefined) return
        const q = this.partner(d, p.x)
        if (!broadcasts(q.x.shape, x.x.shape)) return
        this.use(p, q)
        return this.push(x.x.lt(b % 9).where(p.x, q.x), Math.max(p.bound, q.bound), Math.max(p.error, q.error))
      }
      case "toFloat":
        return b % 3 === 0
          ? this.push(x.x.mod(17).cast(x.x.dtype === DType.i32 ? DType.u32 : DType.i32), 0, 0)
          : this.push(x.x.mod(17).cast(DType.f32).mul(0.25).add(0.125), 5, 0)
      case "topK": {
        const n = x.x.rank > 0 ? x.x.dim(-1) : 0
        if (typeof n !== "number" || n === 0 || n * Shape.maxElements(x.x.shape) > maxElements) return
        const top = Nn.topK(x.x, 1 + b % Math.min(n, 4))
        return this.push(c % 2 === 0 ? top.values : top.indices, 0, 0)
      }
    }
  }

  private gather(a: number, b: number): void {
    const table = this.pick(a, (x) => x.rank > 0 && x.dtype !== DType.bool && typeof x.dim(0) === "number")
    const index = this.pick(b, (x) => x.dtype === DType.u32 && x.rank < 3)
    if (table === undefined || index === undefined || table.x.rank + index.x.rank > 5) return
    this.use(table, index)
    this.push(table.x.gather(index.x.mod(Number(table.x.dim(0)))), table.bound, table.error)
  }

  /** Adds the rows of a value to rows of a sum, of which one number in a few names none. */
  private scatter([a, b, c]: readonly [number, number, number]): void {
    const value = this.pick(a, (x) => x.rank > 0 && x.rank < 4 && DType.isStorable(x.dtype))
    if (value === undefined) return
    const { x } = value
    const rows = 1 + c % 5
    const count = Shape.maxOf(x.dim(0))
    const index = this.pick(b, (y) => y.dtype === DType.u32 && y.rank === 1 && y.dim(0) === x.dim(0))
    const number = index?.x ?? iota(this.arena, x.dim(0)).cast(DType.u32).mul(7)
    this.use(value, ...index === undefined ? [] : [index])
    const initial = full(this.arena, [rows, ...x.shape.slice(1)], 1, x.dtype)
    const order = (["rows", "any"] as const)[(c >>> 4) % 2]!
    const bound = 1 + count * value.bound
    this.push(
      scatterAdd(initial, { index: number.mod(rows + 1), value: x, order }),
      bound,
      count * (value.error + unit * bound)
    )
  }

  private move(
    kind: "reshape" | "permute" | "expand" | "pad" | "shrink" | "slide" | "flip" | "cat",
    [a, b, c]: readonly [number, number, number]
  ): void {
    const v = this.pick(a, (x) => x.rank > 0)
    if (v === undefined) return
    const { bound, error, x } = v
    const axis = b % x.rank
    const size = x.dim(axis)
    const keep = (result: Tensor): void => {
      this.use(v)
      this.push(result, bound, error)
    }
    switch (kind) {
      case "permute":
        return keep(x.transpose(axis, c % x.rank))
      case "flip":
        return keep(x.flip(axis))
      case "expand":
        return x.rank < 4 ? keep(x.unsqueeze(axis).expand(x.shape.toSpliced(axis, 0, 1 + c % 3))) : undefined
      case "cat": {
        const y = this.pick(c, (o) =>
          o.dtype === x.dtype && o.rank === x.rank && typeof o.dim(axis) === "number" &&
          o.shape.every((d, i) => i === axis || d === x.shape[i]))
        if (typeof size !== "number" || y === undefined || size > 64) return
        this.use(v, y)
        return this.push(Nn.cat([x, y.x], axis), Math.max(bound, y.bound), Math.max(error, y.error))
      }
    }
    if (typeof size !== "number") return kind === "reshape" && x.rank > 1 ? keep(x.unsqueeze(axis)) : undefined
    switch (kind) {
      case "reshape": {
        const numeric = x.shape.every((d) => typeof d === "number")
        if (numeric && c % 3 === 0) return keep(x.reshape([-1]))
        const part = [4, 3, 2].find((n) => size % n === 0 && size > n)
        return part === undefined || x.rank > 3
          ? undefined
          : keep(x.reshape(x.shape.toSpliced(axis, 1, size / part, part)))
      }
      case "pad":
        return size < 64 ? keep(x.pad(x.shape.map((_, i) => i === axis ? [c % 3, (c >>> 3) % 3] : [0, 0]))) : undefined
      case "shrink": {
        const start = c % size
        return keep(x.slice(axis, start, 1 + (c >>> 8) % (size - start)))
      }
      case "slide":
        // a window of symbolic place, or of symbolic place and size
        if (size < 9) return
        return keep(c % 2 === 0 ? x.slice(axis, this.at, 4) : x.slice(axis, this.at, this.rows))
    }
  }

  private reduction(kind: "reduce" | "largest", [a, b, c]: readonly [number, number, number]): void {
    const v = this.pick(a, (x) => x.rank > 0 && x.dtype !== DType.bool)
    if (v === undefined) return
    const { bound, error, x } = v
    const axis = b % x.rank
    const count = Shape.maxOf(x.dim(axis))
    const options = { axis: c % 4 === 0 && x.rank > 1 ? [axis, (axis + 1) % x.rank] : [axis], keepDims: c % 2 === 0 }
    const total = options.axis.reduce((n, i) => n * Shape.maxOf(x.dim(i)), 1)
    this.use(v)
    if (kind === "largest") return this.push(c % 3 === 0 ? x.min(options) : x.max(options), bound, error)
    if (!DType.isFloat(x.dtype)) return this.push(c % 3 === 0 ? x.prod(axis) : x.sum(options), 0, 0)
    if (c % 5 === 0 && count <= 8) {
      // factors of at most 1.5 keep a product within 1.5^8
      const tame = x.mul(1.5 / Math.max(1.5, bound))
      return this.push(tame.prod(axis), 26, 26 * count * (error + unit))
    }
    if (c % 7 === 0) return this.push(x.mean(options), bound, error + unit * total * bound)
    return this.push(x.sum(options), total * bound, total * (error + unit * total * bound))
  }

  private compound(kind: "matmul" | "linear" | "softmax" | "norm", a: number, b: number): void {
    const v = this.pick(a, (x) => x.dtype === DType.f32 && x.rank > 0 && x.rank < 4)
    if (v === undefined) return
    const { bound, error, x } = v
    const k = Shape.maxOf(x.dim(-1))
    if (kind === "softmax") {
      this.use(v)
      return this.push(Nn.softmax(x.mul(4 / Math.max(4, bound))), 1, 4 * (error + unit * (8 + k)) + 8 * coarse)
    }
    if (kind === "norm") {
      this.use(v)
      const weight = full(this.arena, [x.dim(-1)], 0.5)
      return this.push(
        Nn.rmsNorm(x, weight, 0.25),
        0.5 * Math.sqrt(k),
        (error + unit * bound) * (2 + 8 * bound * bound)
      )
    }
    const fits = (y: Tensor): boolean =>
      y.dtype === DType.f32 && y.rank === 2 && y.dim(kind === "linear" ? 1 : 0) === x.dim(-1)
    const w = this.pick(b, fits)
    if (w === undefined || (kind === "matmul" && x.rank < 2)) return
    this.use(v, w)
    const size = k * bound * w.bound
    if (Shape.maxElements(x.shape) * Shape.maxElements(w.x.shape) > 8 * maxElements) return
    this.push(
      kind === "linear" ? Nn.linear(x, w.x) : Nn.matmul(x, w.x),
      size,
      k * (error * w.bound + w.error * bound) + unit * k * size
    )
  }

  /** Writes rows in the middle of a buffer with contents, and reads all of it afterwards. */
  private store(a: number): void {
    const v = this.pick(a, (x) =>
      x.rank === 2 && DType.isStorable(x.dtype) && x.dim(0) === this.rows.node &&
      typeof x.dim(1) === "number")
    if (v === undefined) return
    this.use(v)
    this.input(v.x.dtype, [10, v.x.dim(1)], a)
    const state = this.values.pop()!
    const written = Program.assign(state.x.slice(0, this.at, this.rows), v.x)
    this.push(Program.after(state.x, [written]), Math.max(2, v.bound), v.error)
  }

  /** Two calls of one body, the second over the result of the first, with a symbolic argument. */
  private callBlock(a: number, b: number): void {
    const v = this.float(a)
    if (v === undefined || v.x.rank === 0) return
    this.use(v)
    const weight = full(this.arena, v.x.shape, 0.5)
    const block = (x: Tensor): Tensor =>
      Program.call("block", [x, weight, scalar(this.arena, this.at.node)], (p, w, at) => [
        p!.mul(w!).add(at!.cast(DType.f32).mul(0.25)).add(iota(this.arena, p!.dim(-1)).cast(DType.f32).mul(0.125))
      ])[0]!
    const size = v.bound + 1 + 0.125 * Shape.maxOf(v.x.dim(-1))
    const once = block(v.x)
    this.push(b % 2 === 0 ? block(once) : once, size * 2, v.error + 4 * unit * size)
  }
}

const broadcasts = (a: Shape.Shape, b: Shape.Shape): boolean => {
  const rank = Math.max(a.length, b.length)
  for (let i = 1; i <= rank; i++) {
    const p = a[a.length - i] ?? 1
    const q = b[b.length - i] ?? 1
    if (p !== q && p !== 1 && q !== 1) return false
  }
  return true
}
