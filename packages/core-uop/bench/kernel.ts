/**
 * Times the kernel evaluator on a 4-bit dequantising matrix-vector product (blocks of 32 with one half scale).
 * Run: node packages/core-uop/bench/kernel.ts [rows] [columns]
 */
import * as DType from "../src/DType.ts"
import { evaluateKernel } from "../src/EvaluateKernel.ts"
import * as Expr from "../src/Expr.ts"
import { Arena, toposort, type UOp } from "../src/UOp.ts"

const rows = Number(process.argv[2] ?? 500)
const columns = Number(process.argv[3] ?? 512)
const tokens = Number(process.argv[4] ?? 1)

const arena = new Arena()
const param = (slot: number, dtype: DType.DType, length: number): UOp =>
  arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })

const out = param(0, DType.f32, tokens * rows)
const quants = param(1, DType.u32, rows * columns / 8)
const scales = param(2, DType.u32, rows * columns / 64)
const x = param(3, DType.f32, tokens * columns)
const t = Expr.range(arena, tokens, 0, "GLOBAL")
const n = Expr.range(arena, rows, 1, "GLOBAL")
const k = Expr.range(arena, columns, 2, "REDUCE")
const at = Expr.add(Expr.mul(n, columns), k)
const word = Expr.load(Expr.element(quants, Expr.floordiv(at, 8)))
const shift = Expr.cast(Expr.mul(Expr.floormod(at, 8), 4), DType.u32)
const nibble = Expr.and(Expr.alu("SHR", word, shift), 15)
const pair = Expr.load(Expr.element(scales, Expr.floordiv(at, 64)))
const half = Expr.alu("SHR", pair, Expr.cast(Expr.mul(Expr.floormod(Expr.floordiv(at, 32), 2), 16), DType.u32))
const scale = Expr.alu("HALF_TO_FLOAT", Expr.and(half, 0xffff))
const weight = Expr.mul(Expr.sub(Expr.cast(nibble, DType.f32), 8), scale)
const sum = Expr.reduce("ADD", Expr.mul(weight, Expr.load(Expr.element(x, Expr.add(Expr.mul(t, columns), k)))), [k])
const store = Expr.store(Expr.element(out, Expr.add(Expr.mul(t, rows), n)), sum)
const kernel = arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, t, n])], { name: "matvec" })

const buffers = [
  new Float32Array(tokens * rows),
  Uint32Array.from({ length: rows * columns / 8 }, (_, i) => Math.imul(i + 1, 0x9e3779b1) >>> 0),
  new Uint32Array(rows * columns / 64).fill(0x3c003800),
  Float32Array.from({ length: tokens * columns }, (_, i) => Math.sin(i))
]
for (const block of [2 ** 12, 2 ** 13, 2 ** 14, 2 ** 15, 2 ** 16, 2 ** 18, 2 ** 20]) {
  const times: Array<number> = []
  for (let i = 0; i < 10; i++) {
    const start = performance.now()
    evaluateKernel(kernel, buffers, {}, { blockElements: block })
    times.push(performance.now() - start)
  }
  times.sort((a, b) => a - b)
  console.log(
    `${tokens} x ${rows} x ${columns}, ${toposort(kernel).length} nodes, blocks of ${block}: ` +
      `median ${times[5]!.toFixed(1)} ms, ${times[0]!.toFixed(1)} to ${times[9]!.toFixed(1)}`
  )
}
