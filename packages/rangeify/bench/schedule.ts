/**
 * Times the schedule of a chain of blocks: attention over a cache and a gated MLP, once as calls of one body, once inlined.
 * Run: node packages/rangeify/bench/schedule.ts [blocks]
 */
import * as DType from "@tg/core-uop/DType"
import { Arena, key, toposort } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { planMemory } from "../src/Memory.ts"
import { kernels, RangeifyError, schedule } from "../src/Rangeify.ts"

const count = Number(process.argv[2] ?? 30)
const [width, heads, context, hidden] = [256, 4, 512, 768]
const size = width / heads

type Block = (...args: ReadonlyArray<Tensor.Tensor>) => ReadonlyArray<Tensor.Tensor>

/** One token through attention and MLP; the cache row of the token is written, the whole cache read. */
const block: Block = (x, keys, values, at, norm1, wq, wk, wv, wo, norm2, gate, up, down) => {
  const y = Nn.rmsNorm(x!, norm1!, 1e-6)
  const rows = (state: Tensor.Tensor, w: Tensor.Tensor) =>
    Program.assign(state.slice(0, at!, 1), Nn.linear(y, w).reshape([1, heads, size]))
  const written = [rows(keys!, wk!), rows(values!, wv!)]
  const [k, v] = [Program.after(keys!, [written[0]!]), Program.after(values!, [written[1]!])]
  const q = Nn.linear(y, wq!).reshape([heads, 1, size])
  const scores = Nn.matmul(q, k.permute([1, 2, 0])).mul(size ** -0.5)
  const visible = Tensor.iota(x!.arena, context).le(at!)
  const mixed = Nn.matmul(Nn.softmax(visible.where(scores, -1e30)), v.permute([1, 0, 2])).reshape([1, width])
  const z = x!.add(Nn.linear(mixed, wo!))
  const n = Nn.rmsNorm(z, norm2!, 1e-6)
  return [z.add(Nn.linear(Nn.linear(n, gate!).silu().mul(Nn.linear(n, up!)), down!)), ...written]
}

const build = (apply: (args: ReadonlyArray<Tensor.Tensor>) => ReadonlyArray<Tensor.Tensor>) => {
  const arena = new Arena()
  let next = 0
  const buffer = (...shape: ReadonlyArray<number>) => Tensor.buffer(arena, next++, { shape, dtype: DType.f32 })
  const at = Tensor.variable(arena, "at", 0, context - 1)
  const [input, out] = [buffer(1, width), buffer(1, width)]
  let x = input
  const effects: Array<Tensor.Tensor> = []
  for (let i = 0; i < count; i++) {
    const caches = [buffer(context, heads, size), buffer(context, heads, size)]
    const square = [1, 2, 3, 4].map(() => buffer(width, width))
    const mlp = [buffer(width), buffer(hidden, width), buffer(hidden, width), buffer(width, hidden)]
    const [y, ...written] = apply([x, ...caches, at, buffer(width), ...square, ...mlp])
    effects.push(...written)
    x = y!
  }
  return Program.make([...effects, Program.assign(out, x)]).sink
}

const measure = (name: string, apply: Parameters<typeof build>[0]): void => {
  const times: Array<number> = []
  let text = ""
  for (let run = 0; run < 7; run++) {
    const sink = build(apply)
    const start = performance.now()
    const made = schedule(sink, { maxStorageBuffers: 8 })
    if (made instanceof RangeifyError) throw made
    const memory = planMemory(made)
    times.push(performance.now() - start)
    const different = new Set(kernels(made).map((k) => key(k.ast))).size
    const bytes = memory.blocks.reduce((a, b) => a + b, 0)
    text = `${toposort(sink).length} nodes, ${made.steps.length} kernels, ${different} different, ` +
      `${memory.blocks.length} blocks of ${bytes} bytes`
  }
  const [first, ...others] = times
  others.sort((a, b) => a - b)
  console.log(
    `${count} blocks ${name}: ${text}: ${first!.toFixed(0)} ms cold, then ${others[0]!.toFixed(0)} to ${
      others.at(-1)!.toFixed(0)
    } ms`
  )
}

measure("as calls", (args) => Program.call("block", args, block))
measure("inlined", (args) => block(...args))
