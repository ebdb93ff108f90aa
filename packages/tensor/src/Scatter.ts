/**
 * `target[index[i], ..] += value[i, ..]`, as hand-written kernels. The tensor language only gathers: in it a scatter-add compares each
 * row of the target with each index.
 */
import * as DType from "@tg/core-uop/DType"
import type { Data } from "@tg/core-uop/EvaluateOps"
import * as Shape from "@tg/core-uop/Shape"
import { custom, type CustomKernel, type CustomSource } from "./Program.ts"
import type { Tensor } from "./Tensor.ts"
import { fail } from "./TensorError.ts"

/**
 * How additions to one element are kept from racing. `atomic`: integers by `atomicAdd`, floats by compare-and-swap, in no fixed order,
 * so the last bits of floats differ from run to run. `columns`: a thread accumulates a column in the order of `index`, so results
 * are the same in every run.
 */
export type Manner = "atomic" | "columns"

interface Size {
  /** Rows of the target. */
  readonly rows: number
  /** Elements of a row. */
  readonly columns: number
  /** Rows that are added. */
  readonly count: number
  readonly isFloat: boolean
}

/** Workgroups along the first axis, and threads of each. */
const [widest, threads] = [65535, 64]

/** Threads as a grid of workgroups. */
const gridOf = (wanted: number): readonly [number, number, number] => {
  const groups = Math.ceil(wanted / threads)
  return [Math.min(groups, widest), Math.ceil(groups / widest), 1]
}

const wgslOf = (element: string, value: string, wanted: number, body: ReadonlyArray<string>): CustomSource => ({
  text: [
    `@group(0) @binding(0) var<storage, read_write> out: array<${element}>;`,
    "@group(0) @binding(1) var<storage, read> named: array<u32>;",
    `@group(0) @binding(2) var<storage, read> value: array<${value}>;`,
    `@compute @workgroup_size(${threads})`,
    "fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {",
    `  let i = (group.y * ${widest}u + group.x) * ${threads}u + local.x;`,
    `  if (i >= ${wanted}u) { return; }`,
    ...body.map((line) => `  ${line}`),
    "}"
  ].join("\n"),
  workgroup: [threads, 1, 1],
  grid: gridOf(wanted)
})

/** A thread for each element that is added. */
const atomicWgsl = ({ columns, count, isFloat, rows }: Size): CustomSource =>
  wgslOf("atomic<u32>", isFloat ? "f32" : "u32", count * columns, [
    `let row = named[i / ${columns}u];`,
    `if (row >= ${rows}u) { return; }`,
    `let at = row * ${columns}u + i % ${columns}u;`,
    ...isFloat
      ? [
        "var old = atomicLoad(&out[at]);",
        "loop {",
        "  let swapped = atomicCompareExchangeWeak(&out[at], old, bitcast<u32>(bitcast<f32>(old) + value[i]));",
        "  if (swapped.exchanged) { break; }",
        "  old = swapped.old_value;",
        "}"
      ]
      : ["atomicAdd(&out[at], value[i]);"]
  ])

/** A thread for each column. */
const columnsWgsl = ({ columns, count, isFloat, rows }: Size): CustomSource => {
  const type = isFloat ? "f32" : "u32"
  return wgslOf(type, type, columns, [
    `for (var k = 0u; k < ${count}u; k++) {`,
    "  let row = named[k];",
    `  if (row < ${rows}u) { out[row * ${columns}u + i] += value[k * ${columns}u + i]; }`,
    "}"
  ])
}

/** `run` with loops over the rows that are added, `$k`, and over a part of the columns, whose addresses are `$to`, `$v`. */
const wasmOf = (
  { columns, rows }: Size,
  add: string,
  part: { readonly rows: readonly [string, string]; readonly columns: readonly [string, string] },
  iterations: number
): CustomSource => ({
  text: `
(func (export "run") (param $from i32) (param $until i32) (param $out i32) (param $index i32) (param $value i32)
  (local $k i32) (local $row i32) (local $to i32) (local $v i32) (local $end i32) (local $old i32) (local $seen i32)
  (local.set $k ${part.rows[0]})
  (block $done (loop $rows
    (br_if $done (i32.ge_s (local.get $k) ${part.rows[1]}))
    (local.set $row (i32.load (i32.add (local.get $index) (i32.shl (local.get $k) (i32.const 2)))))
    (if (i32.lt_u (local.get $row) (i32.const ${rows})) (then
      (local.set $to (i32.add (local.get $out)
        (i32.shl (i32.add (i32.mul (local.get $row) (i32.const ${columns})) ${part.columns[0]}) (i32.const 2))))
      (local.set $v (i32.add (local.get $value)
        (i32.shl (i32.add (i32.mul (local.get $k) (i32.const ${columns})) ${part.columns[0]}) (i32.const 2))))
      (local.set $end (i32.add (local.get $v)
        (i32.shl (i32.sub ${part.columns[1]} ${part.columns[0]}) (i32.const 2))))
      (block $stop (loop $each
        (br_if $stop (i32.ge_u (local.get $v) (local.get $end)))
        ${add}
        (local.set $to (i32.add (local.get $to) (i32.const 4)))
        (local.set $v (i32.add (local.get $v) (i32.const 4)))
        (br $each)))))
    (local.set $k (i32.add (local.get $k) (i32.const 1)))
    (br $rows))))`,
  grid: [iterations, 1, 1]
})

const wasmAtomicInteger = "(drop (i32.atomic.rmw.add (local.get $to) (i32.load (local.get $v))))"

/** Compare-and-swap until no other thread has written in between. */
const wasmAtomicFloat = `(local.set $old (i32.atomic.load (local.get $to)))
        (block $kept (loop $again
          (local.set $seen (i32.atomic.rmw.cmpxchg (local.get $to) (local.get $old)
            (i32.reinterpret_f32 (f32.add (f32.reinterpret_i32 (local.get $old)) (f32.load (local.get $v))))))
          (br_if $kept (i32.eq (local.get $seen) (local.get $old)))
          (local.set $old (local.get $seen))
          (br $again)))`

const wasmPlain = (isFloat: boolean): string => {
  const type = isFloat ? "f32" : "i32"
  return `(${type}.store (local.get $to) (${type}.add (${type}.load (local.get $to)) (${type}.load (local.get $v))))`
}

const wasmSource = (size: Size, manner: Manner): CustomSource => {
  const { columns, count, isFloat } = size
  const own = ["(local.get $from)", "(local.get $until)"] as const
  const all = (n: number) => ["(i32.const 0)", `(i32.const ${n})`] as const
  return manner === "atomic"
    ? wasmOf(size, isFloat ? wasmAtomicFloat : wasmAtomicInteger, { rows: own, columns: all(columns) }, count)
    : wasmOf(size, wasmPlain(isFloat), { rows: all(count), columns: own }, columns)
}

/** One addition after the other. */
const reference = (rows: number, columns: number) => ([out, index, value]: ReadonlyArray<Data>): void => {
  const words = new Uint32Array(index!.buffer, index!.byteOffset, index!.length)
  words.forEach((row, k) => {
    if (row >= rows) return
    for (let j = 0; j < columns; j++) out![row * columns + j]! += value![k * columns + j]!
  })
}

const kernelOf = (size: Size, manner: Manner): CustomKernel => {
  const { columns, count, rows } = size
  return {
    name: `scatter_add_${manner}_${rows}_${columns}_${count}`,
    writes: [0],
    sources: {
      wgsl: manner === "atomic" ? atomicWgsl(size) : columnsWgsl(size),
      wasm: wasmSource(size, manner)
    },
    // bytes: indices, values, and the target's elements read and written
    cost: { bytes: 4 * count * (1 + 3 * columns), flops: count * columns },
    reference: reference(rows, columns)
  }
}

const numbers = (what: string, shape: Shape.Shape): ReadonlyArray<number> =>
  shape.map((d) =>
    typeof d === "number" ? d : fail("scatterAdd", `${what} of a known size`, Shape.print(shape), "pad it")
  )

/**
 * Adds rows of `value [n, ..]` to the rows of `target [rows, ..]`, a buffer or a parameter, that `index [n]` names; the result is an
 * effect. An index of no row adds nothing. Sizes are numbers.
 */
export const scatterAdd = (
  target: Tensor,
  { by, index, value }: { readonly index: Tensor; readonly value: Tensor; readonly by: Manner }
): Tensor => {
  const [rows = 0, ...row] = numbers("a target", target.shape)
  const [count = 0, ...own] = numbers("values", value.shape)
  const isInteger = index.dtype === DType.i32 || index.dtype === DType.u32
  if (!isInteger || index.rank !== 1 || index.dim(0) !== count) {
    const found = `${DType.print(index.dtype)} ${Shape.print(index.shape)}`
    return fail("scatterAdd", `an i32 or u32 index for each of ${count} values`, found, "cast or reshape it")
  }
  if (target.dtype !== value.dtype || !Shape.equal(row, own)) {
    const wanted = `rows of ${DType.print(target.dtype)} ${Shape.print(row)}`
    return fail("scatterAdd", wanted, `${DType.print(value.dtype)} ${Shape.print(own)}`, "cast or reshape the values")
  }
  const columns = row.reduce((n, d) => n * d, 1)
  return custom(kernelOf({ rows, columns, count, isFloat: target.dtype === DType.f32 }, by), [target, index, value])
}

/** Fixed point with `bits` fractional bits: sums are associative, so the same in every order. Overflows from 2^(31 - bits) on. */
export const toFixed = (x: Tensor, bits: number): Tensor => {
  const scaled = x.mul(2 ** bits)
  return scaled.lt(0).where(scaled.sub(0.5), scaled.add(0.5)).cast(DType.i32)
}

/** The floats of `toFixed`. */
export const fromFixed = (x: Tensor, bits: number): Tensor => x.cast(DType.f32).mul(2 ** -bits)
