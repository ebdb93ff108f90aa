/**
 * Sums of rows that an index names: as comparisons, in the order of the rows, in any order, where a device may add atomically, and in fixed point:
 *
 *     node bench/atomics.ts [wasm|webgpu|reference] [RUNS]
 *
 * The gradient of an embedding, the sum over the experts of each token of a prompt, and that of a token with the products that are summed. Of each, the time of a launch: the least of
 * several measurements of `RUNS` launches, less that of a program that writes zeros alone (and copies them, where sums are copied).
 */
import * as DType from "../packages/core-uop/src/DType.ts"
import { Arena } from "../packages/core-uop/src/UOp.ts"
import { Jit } from "../packages/jit/src/Jit.ts"
import { choices, layer } from "../packages/node/src/Devices.ts"
import { Device } from "../packages/runtime/src/Device.ts"
import * as Program from "../packages/tensor/src/Program.ts"
import { fromFixed, scatterAdd, toFixed } from "../packages/tensor/src/Scatter.ts"
import { buffer, iota, type Tensor, zeros } from "../packages/tensor/src/Tensor.ts"
import { Effect } from "effect"

const [chosen = "wasm", given = "20"] = process.argv.slice(2)
const kind = choices.find((choice) => choice === chosen)
if (kind === undefined) throw new Error(`${chosen}: use one of ${choices.join(", ")}`)
const runs = Number(given)

/** Rows `value [count, columns]`, of which several are added to each of `rows`. */
interface Sizes {
  readonly rows: number
  readonly columns: number
  readonly count: number
  /** Rows that are added to each, where `place` says which: the experts of a token. */
  readonly used?: number
  /** Terms of a product that each value is; it is stored in a buffer if it is not said. */
  readonly inner?: number
}

interface Storage {
  readonly out: Tensor
  readonly index: Tensor
  readonly value: Tensor
  /** Where the rows of each sum lie, `[rows, used]`: what the counting sort of prompts leaves. */
  readonly place: Tensor
  /** Terms of the values, `[count, columns, inner]`. */
  readonly terms: Tensor
}

type Way = (storage: Storage, sizes: Sizes) => Tensor

const added = (order: "rows" | "any"): Way => ({ index, out, value }, { columns, rows }) =>
  Program.assign(out, scatterAdd(zeros(out.arena, [rows, columns]), { index, value, order }))

const ways: Readonly<Record<string, Way>> = {
  "compared with each row, summed": ({ index, out, value }, { rows }) => {
    const row = iota(out.arena, rows).cast(DType.i32).reshape([rows, 1, 1])
    return Program.assign(out, index.unsqueeze(-1).eq(row).where(value, 0).sum(1))
  },
  "any order": added("any"),
  "fixed point": ({ index, out, value }, { columns, rows }) =>
    Program.assign(
      out,
      fromFixed(scatterAdd(zeros(out.arena, [rows, columns], DType.i32), { index, value: toFixed(value, 20) }), 20)
    ),
  "in the order of the rows": added("rows"),
  "rows by place, summed": ({ out, place, value }) => Program.assign(out, value.gather(place).sum(1)),
  "inside of the product": ({ out, terms }) => Program.assign(out, terms.sum({ axis: [0, 2] }).unsqueeze(0))
}

const nothing: Way = ({ out }, { columns, rows }) => Program.assign(out, zeros(out.arena, [rows, columns]))

/** What sums in memory of their own do beside adding. */
const copied: Way = ({ out }, { columns, rows }) => Program.assign(out, zeros(out.arena, [rows, columns]).contiguous())

const programOf = (way: Way, sizes: Sizes): Program.TensorProgram => {
  const { columns, count, inner, rows, used = 1 } = sizes
  const arena = new Arena()
  const floats = (id: number, shape: ReadonlyArray<number>): Tensor => buffer(arena, id, { shape, dtype: DType.f32 })
  const terms = floats(4, [count, 1, inner ?? 1]).mul(floats(5, [count, columns, inner ?? 1]))
  return Program.make([way({
    out: floats(0, [rows, columns]),
    index: buffer(arena, 1, { shape: [count], dtype: DType.i32 }),
    value: inner === undefined ? floats(2, [count, columns]) : terms.sum(-1),
    place: buffer(arena, 3, { shape: [rows, used], dtype: DType.i32 }),
    terms
  }, sizes)])
}

/** Each row of a sum of `used` lies anywhere; without `used` indices are any. */
const contentsOf = ({ columns, count, inner = 1, rows, used }: Sizes): ReadonlyArray<Float32Array | Int32Array> => {
  const shuffled = Int32Array.from({ length: count }, (_, i) => (i * 7919) % count)
  const index = Int32Array.from(
    { length: count },
    (_, i) => used === undefined ? (i * i * 31 + i) % rows : Math.floor(shuffled[i]! / used)
  )
  const place = new Int32Array(rows * (used ?? 1))
  if (used !== undefined) shuffled.forEach((at, i) => place[at] = i)
  return [
    new Float32Array(rows * columns),
    index,
    Float32Array.from({ length: count * columns }, (_, i) => Math.sin(i)),
    place,
    Float32Array.from({ length: count * inner }, (_, i) => Math.cos(i)),
    Float32Array.from({ length: count * columns * inner }, (_, i) => Math.sin(i) / 16)
  ]
}

/** Microseconds of a run, and the sum that it leaves. */
const measured = Effect.fn(function*(way: Way, sizes: Sizes) {
  const device = yield* Device
  const buffers = new Map(
    yield* Effect.forEach(contentsOf(sizes), (data, id) =>
      Effect.gen(function*() {
        const made = yield* device.allocate(data.byteLength, `buffer ${id}`)
        yield* device.write(made, new Uint8Array(data.buffer))
        return [id, made] as const
      }))
  )
  const program = programOf(way, sizes)
  const { plan, run } = yield* (yield* Jit).prepare(program.sink, buffers)
  const out = buffers.get(0)!
  const settle = device.read(out, 0, 4)
  let least = Infinity
  for (let i = 0; i < 7; i++) {
    yield* settle
    const start = performance.now()
    for (let k = 0; k < runs; k++) yield* run({})
    yield* settle
    least = Math.min(least, 1000 * (performance.now() - start) / runs)
  }
  const bytes = yield* device.read(out, 0)
  return { micros: least, out: new Float32Array(bytes.slice().buffer), launches: plan.launches.length }
}, Effect.scoped)

const tasks: ReadonlyArray<readonly [string, Sizes, ReadonlyArray<string>]> = [
  [
    "embedding of examples/train: 768 tokens, 268 x 64",
    { rows: 268, columns: 64, count: 768 },
    Object.keys(ways).slice(0, 4)
  ],
  ["embedding: 512 tokens, 4096 x 256", { rows: 4096, columns: 256, count: 512 }, Object.keys(ways).slice(0, 4)],
  [
    "experts: 512 tokens of 4, 256 wide",
    { rows: 512, columns: 256, count: 2048, used: 4 },
    Object.keys(ways).slice(1, 5)
  ],
  [
    "experts of a token: the last products of 4, 2048 x 512",
    { rows: 1, columns: 2048, count: 4, used: 4, inner: 512 },
    Object.keys(ways).slice(1)
  ]
]

const show = Effect.gen(function*() {
  console.log(`| ${chosen} | way | launches | us |\n| --- | --- | ---: | ---: |`)
  for (const [name, sizes, tried] of tasks) {
    const [idle, moved] = [yield* measured(nothing, sizes), yield* measured(copied, sizes)]
    let expected: Float32Array | undefined
    for (const way of tried) {
      const { launches, micros, out } = yield* measured(ways[way]!, sizes)
      expected ??= out
      const off = out.reduce((most, x, i) => Math.max(most, Math.abs(x - expected![i]!)), 0)
      // fixed point has steps of 2^-20; floats are added in other orders
      if (!(off < 1e-4)) throw new Error(`${name}, ${way}: ${off} away from the first way`)
      console.log(
        `| ${name} | ${way} | ${launches} | ${Math.max(0, micros - (launches > 1 ? moved : idle).micros).toFixed(1)} |`
      )
    }
  }
})

await Effect.runPromise(show.pipe(Effect.provide(layer(kind)), Effect.scoped))
