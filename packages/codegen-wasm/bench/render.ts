/**
 * What must not get slower: rendering a kernel of about 3000 instructions, and the code of a matrix-vector product
 * against the same loop in plain JavaScript. Run: `node bench/render.ts`.
 */
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import type { UOp } from "@tg/core-uop/UOp"
import { kernel } from "../test/support/linear.ts"
import * as Wasm from "../src/Wasm.ts"

const rows = 2048
const columns = 2048
const { assembler } = Wasm

/** `unroll` rows at a time, a vector of partial sums each. */
const matvec = (unroll: number): UOp =>
  kernel((b) => {
    const [out, w, x] = [b.param(0), b.param(1, DType.f32, rows * columns), b.param(2)]
    const nothing = Expr.splat(b.add(Expr.constant(b.arena, DType.f32, 0)), 4)
    b.add(nothing)
    b.loop(rows / unroll, "GLOBAL", (block) => {
      const start = b.add(Expr.mul(block, unroll * columns))
      const sums = Array.from({ length: unroll }, () => b.register(nothing))
      b.loop(columns / 4, "REDUCE", (k) => {
        const at = Expr.mul(k, 4)
        const v = b.load(x, at, { lanes: 4 })
        for (const [i, sum] of sums.entries()) {
          b.accumulate("ADD", sum, Expr.mul(b.load(w, Expr.add(Expr.add(start, at), i * columns), { lanes: 4 }), v))
        }
      })
      for (const [i, sum] of sums.entries()) {
        const total = [1, 2, 3].reduce((t, l) => Expr.add(t, Expr.lane(sum, l)), Expr.lane(sum, 0))
        b.store(out, Expr.add(Expr.mul(block, unroll), i), total)
      }
    })
  })

const best = (repeat: number, f: () => void): number => {
  let millis = Infinity
  for (let i = 0; i < repeat; i++) {
    const start = performance.now()
    f()
    millis = Math.min(millis, performance.now() - start)
  }
  return millis
}

const large = matvec(256)
console.log(
  `render, ${large.src.length} instructions: text ${best(20, () => void Wasm.text("large", large)).toFixed(2)} ms, ` +
    `with assembly ${best(20, () => void Wasm.render("large", large, assembler)).toFixed(2)} ms`
)

const memory = new WebAssembly.Memory({
  initial: Math.ceil((rows * columns + rows + columns) * 4 / 65536) + 1,
  maximum: 65536,
  shared: true
})
const pointers = [0, rows * 4 + columns * 4, rows * 4]
const w = new Float32Array(memory.buffer, pointers[1]!, rows * columns).fill(0.5)
const x = new Float32Array(memory.buffer, pointers[2]!, columns).fill(2)
const y = new Float32Array(rows)
const report = (name: string, millis: number): void =>
  console.log(`${name}: ${millis.toFixed(3)} ms, ${(rows * columns * 4 / millis / 1e6).toFixed(1)} GB/s`)

report(
  "matvec 2048 x 2048, JavaScript",
  best(20, () => {
    for (let r = 0; r < rows; r++) {
      let sum = 0
      for (let k = 0; k < columns; k++) sum += w[r * columns + k]! * x[k]!
      y[r] = sum
    }
  })
)
for (const unroll of [1, 2, 4, 8]) {
  const program = Wasm.render("matvec", matvec(unroll), assembler)
  if ("_tag" in program) throw new Error(program.message)
  const { instance } = await WebAssembly.instantiate(program.code as Uint8Array<ArrayBuffer>, { env: { memory } })
  const { run } = instance.exports as { readonly run: (...p: ReadonlyArray<number>) => void }
  report(`matvec 2048 x 2048, wasm, ${unroll} rows`, best(60, () => run(0, rows / unroll, ...pointers)))
}
