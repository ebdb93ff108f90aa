// How fast the simplifier is on a graph of about 20 000 index nodes: `node bench/simplify.ts`
import { DType, Expr, UOp } from "@tg/core-uop"
import * as GraphRewrite from "../src/GraphRewrite.ts"
import * as Symbolic from "../src/Symbolic.ts"

/** Views of views, as reshapes and permutes of a kernel's buffers produce them. */
const kernel = (arena: UOp.Arena, loads: number, id: number): UOp.UOp => {
  const r = [16, 8, 32, 4].map((size, i) => Expr.range(arena, size, id * 8 + i, i < 2 ? "GLOBAL" : "REDUCE"))
  const out = arena.make("PARAM", DType.f32, [Expr.int(arena, 4096)], { slot: 0 })
  const x = arena.make("PARAM", DType.f32, [Expr.int(arena, 1 << 20)], { slot: 1 })
  let value: UOp.UOp | undefined
  for (let i = 0; i < loads; i++) {
    const flat = Expr.add(
      Expr.mul(Expr.add(Expr.mul(r[0]!, 8), r[1]!), 128),
      Expr.add(Expr.mul(r[2]!, 4), Expr.add(r[3]!, i))
    )
    const a = Expr.floormod(Expr.floordiv(flat, 64), 4)
    const b = Expr.floordiv(flat, 256)
    const c = Expr.floormod(flat, 64)
    const at = Expr.add(Expr.mul(a, 64 * 64), Expr.add(Expr.mul(b, 64), Expr.sub(c, -i)))
    const gate = Expr.and(Expr.lt(flat, 4000 + i), Expr.not(Expr.lt(Expr.add(r[2]!, i), 2)))
    const load = Expr.load(Expr.element(x, at, gate))
    value = value === undefined ? load : Expr.add(value, Expr.mul(load, Expr.constant(arena, DType.f32, 1)))
  }
  const sum = Expr.reduce("ADD", value!, [r[2]!, r[3]!])
  const store = Expr.store(Expr.element(out, Expr.add(Expr.mul(r[0]!, 8), r[1]!)), sum)
  return arena.make("END", DType.none, [store, r[0]!, r[1]!])
}

const best = (runs: number, prepare: () => () => void): number => {
  let result = Infinity
  for (let i = 0; i < runs; i++) {
    const body = prepare()
    const start = performance.now()
    body()
    result = Math.min(result, performance.now() - start)
  }
  return result
}

const graph = (): UOp.UOp => {
  const arena = new UOp.Arena()
  return arena.make("SINK", DType.none, Array.from({ length: 20 }, (_, i) => kernel(arena, 48, i)))
}

const size = UOp.toposort(graph()).length
const cold = best(7, () => {
  const root = graph()
  return () => Symbolic.simplify(root)
})
const done = Symbolic.simplify(graph())
const settled = UOp.toposort(done).length
const quiet = best(7, () => () => {
  GraphRewrite.graphRewrite(done, Symbolic.usual.matcher, { context: { simplify: (x) => x } })
})
let fired = 0
Symbolic.simplify(graph(), { trace: () => fired++ })
console.log(
  `${size} nodes, ${settled} afterwards, ${fired} rewrites: ${cold.toFixed(1)} ms, ${
    (size / cold / 1000).toFixed(2)
  } Mnodes/s`
)
console.log(
  `nothing to do: ${settled} nodes in ${quiet.toFixed(2)} ms, ${(settled / quiet / 1000).toFixed(2)} Mnodes/s`
)

const long = (): UOp.UOp => {
  const arena = new UOp.Arena()
  let sum: UOp.UOp = Expr.int(arena, 0)
  for (let i = 0; i < 741; i++) {
    const r = Expr.range(arena, 16, i, "LOOP")
    sum = Expr.add(sum, Expr.mul(Expr.floormod(Expr.add(r, i), 5), 7))
  }
  return sum
}
const chain = best(3, () => {
  const root = long()
  return () => Symbolic.simplify(root)
})
console.log(`a sum of 741 remainders: ${chain.toFixed(1)} ms`)
