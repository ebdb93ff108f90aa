/** Rows added where an index says, on every device: what plain loops give. */
import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { availableAdapter } from "@tg/runtime-webgpu/Testing"
import { Device } from "@tg/runtime/Device"
import * as Program from "@tg/tensor/Program"
import { fromFixed, scatterAdd, toFixed } from "@tg/tensor/Scatter"
import { buffer, full } from "@tg/tensor/Tensor"
import { TensorError } from "@tg/tensor/TensorError"
import { Effect } from "effect"
import { Jit } from "../src/Jit.ts"
import * as Devices from "./support/devices.ts"
import { upload } from "./support/upload.ts"

interface Case {
  readonly rows: number
  readonly columns: number
  readonly count: number
  readonly order: "rows" | "any"
  readonly kind: "i32" | "f32" | "fixed"
}

const cases: ReadonlyArray<Case> = (["any", "rows"] as const).flatMap((order) =>
  (["i32", "f32", "fixed"] as const).flatMap((kind) =>
    ([[3, 5, 40], [1, 1, 100], [70, 8, 9]] as const).map(([rows, columns, count]) => ({
      rows,
      columns,
      count,
      order,
      kind
    }))
  )
)

/** Sixteenths: their sums are exact in any order, in floats and in fixed point. Two rows that are named do not exist. */
const contentsOf = ({ columns, count, kind, rows }: Case) => {
  const whole = (i: number): number => (i * 37) % 201 - 100
  const start = Array.from({ length: rows * columns }, (_, i) => whole(i + 3))
  const index = Array.from(
    { length: count },
    (_, i) => i === count - 1 ? rows : i === count - 2 ? -(2 ** 31) : (i * i + 5 * i) % rows
  )
  const value = Array.from({ length: count * columns }, (_, i) => whole(i) / (kind === "i32" ? 1 : 16))
  const expected = [...start]
  index.forEach((row, k) => {
    if (row < 0 || row >= rows) return
    // the program adds twice each value
    for (let j = 0; j < columns; j++) expected[row * columns + j]! += 2 * value[k * columns + j]!
  })
  return { start, index, value, expected }
}

const run = Effect.fn(function*(tested: Case) {
  const { columns, count, kind, order, rows } = tested
  const { expected, index: named, start, value: given } = contentsOf(tested)
  const arena = new Arena()
  const dtype = kind === "i32" ? DType.i32 : DType.f32
  const out = buffer(arena, 0, { shape: [rows, columns], dtype })
  const index = buffer(arena, 1, { shape: [count], dtype: DType.i32 })
  const stored = buffer(arena, 2, { shape: [count, columns], dtype })
  const value = stored.add(stored)
  const sum = kind === "fixed"
    ? fromFixed(scatterAdd(toFixed(out, 8), { index, value: toFixed(value, 8), order }), 8)
    : scatterAdd(out, { index: order === "any" ? index.bitcast(DType.u32) : index, value, order })
  const typed = kind === "i32" ? Int32Array : Float32Array
  const device = yield* Device
  const contents = [typed.from(start), Int32Array.from(named), typed.from(given)]
  const buffers = yield* upload(contents.entries())
  const { plan, run } = yield* (yield* Jit).prepare(Program.make([Program.assign(out, sum)]).sink, buffers)
  yield* run({})
  const bytes = yield* device.read(buffers.get(0)!, 0)
  const found = [...new typed(bytes.slice().buffer)].slice(0, rows * columns)
  assert.deepStrictEqual(found, expected, JSON.stringify(tested))
  // the initial value, the rows with what computes them, and the result
  assert.isAtMost(plan.launches.length, 3)
}, Effect.scoped)

const all = Effect.forEach(cases, run, { discard: true })
const hasWebGpu = (await availableAdapter()) !== undefined

describe("scatterAdd adds rows where the index says, and nothing for a row that is not there", () => {
  it.live("on wasm", () => all.pipe(Effect.provide(Devices.wasm())))
  it.live("on threads of wasm", () => all.pipe(Effect.provide(Devices.wasmThreads)))
  it.live("on the reference device", () => all.pipe(Effect.provide(Devices.reference)))
  it.live.skipIf(!hasWebGpu)("on WebGPU", () => all.pipe(Effect.provide(Devices.webgpu())))

  it("refuses what does not fit", () => {
    const arena = new Arena()
    const [out, value] = [3, 4].map((n, id) => buffer(arena, id, { shape: [n, 2], dtype: DType.f32 }))
    const words = buffer(arena, 2, { shape: [4, 2], dtype: DType.u32 })
    const index = buffer(arena, 3, { shape: [4], dtype: DType.u32 })
    const refused = (value_: typeof words, index_: typeof words, what: string): void => {
      assert.throws(() => scatterAdd(out!, { index: index_, value: value_ }), TensorError, what)
    }
    refused(words, index, "asked for rows of f32 [2]; found u32 [2]")
    refused(value!, value!, "an i32 or u32 index for each of the rows of [4, 2]")
    assert.throws(() => scatterAdd(full(arena, [], 0), { index, value: value! }), TensorError, "asked for rows of i32")
  })
})
