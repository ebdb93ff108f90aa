/**
 * Times expansion and linearisation of a 4-bit dequantising matrix-vector product (blocks of 32 with one half scale).
 * Run: node packages/devectorize/bench/lower.ts [rows] [columns]
 */
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import * as DType from "@tg/core-uop/DType"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise } from "@tg/core-uop/Op"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Opt from "@tg/postrange/Opt"
import { apply, IllegalOpt } from "@tg/postrange/Postrange"
import { devectorize, DevectorizeError } from "../src/Devectorize.ts"
import { linearize } from "../src/Linearize.ts"

const rows = Number(process.argv[2] ?? 2048)
const columns = Number(process.argv[3] ?? 2048)

/** r0 < rows; r1 < columns / 32, r2 < 4, r3 < 8: the eight values of a word, the four words of a block. */
const matvec = (): UOp => {
  const arena = new Arena()
  const param = (slot: number, dtype: DType.DType, length: number): UOp =>
    arena.make("PARAM", dtype, [Expr.int(arena, length)], { slot })
  const blocks = columns / 32
  const row = Expr.range(arena, rows, 0, "GLOBAL")
  const [block, word, value] = [blocks, 4, 8].map((size, i) => Expr.range(arena, size, i + 1, "REDUCE")) as [
    UOp,
    UOp,
    UOp
  ]
  const first = Expr.add(Expr.mul(row, blocks), block)
  const at = Expr.add(Expr.mul(first, 4), word)
  const packed = Expr.load(Expr.element(param(1, DType.u32, rows * columns / 8), at))
  const nibble = Expr.and(Expr.shr(packed, Expr.mul(Expr.cast(value, DType.u32), 4)), 15)
  const half = Expr.and(Expr.load(Expr.element(param(2, DType.u32, rows * blocks), first)), 0xffff)
  const weight = Expr.mul(Expr.sub(Expr.cast(nibble, DType.f32), 8), Expr.alu("HALF_TO_FLOAT", half))
  const column = Expr.add(Expr.add(Expr.mul(block, 32), Expr.mul(word, 8)), value)
  const x = Expr.load(Expr.element(param(3, DType.f32, columns), column))
  const sum = Expr.reduce("ADD", Expr.mul(weight, x), [block, word, value])
  const store = Expr.store(Expr.element(param(0, DType.f32, rows), row), sum)
  return arena.make("SINK", DType.none, [arena.make("END", DType.none, [store, row])])
}

const measure = (name: string, hasGrid: boolean, opts: ReadonlyArray<Opt.Opt>): void => {
  const caps = { target: "wgsl", hasGrid, lanes: [1, 4], ops: elementwise, subgroupSize: undefined } as const
  const profile = DeviceProfile.webgpuDefault
  const times: Array<number> = []
  let instructions = 0
  for (let run = 0; run < 20; run++) {
    const opted = apply("matvec", matvec(), opts, profile)
    if (opted instanceof IllegalOpt) throw opted
    const start = performance.now()
    const expanded = devectorize("matvec", opted, caps, profile)
    if (expanded instanceof DevectorizeError) throw expanded
    instructions = linearize(expanded, caps).src.length
    times.push(performance.now() - start)
  }
  const [first, ...others] = times
  others.sort((a, b) => a - b)
  console.log(
    `${rows} x ${columns}, ${name}: ${instructions} instructions, ${first!.toFixed(1)} ms cold, ` +
      `median ${others[9]!.toFixed(1)} ms, ${others[0]!.toFixed(1)} to ${others.at(-1)!.toFixed(1)}`
  )
}

measure("16 threads a row", true, [Opt.unroll(3, 4), Opt.group(1, 16), Opt.unroll(3, 2)])
measure("one thread, two words at once", false, [Opt.unroll(3, 4), Opt.unroll(3, 2), Opt.unroll(2, 2)])
measure("one thread, four rows, a block at once", false, [
  Opt.unroll(3, 4),
  Opt.unroll(3, 2),
  Opt.unroll(2, 4),
  Opt.upcast(0, 4)
])
