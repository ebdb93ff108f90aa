import * as DType from "@tg/core-uop/DType"
import { scalar } from "@tg/core-uop/EvaluateOps"
import * as Expr from "@tg/core-uop/Expr"
import { elementwise, type Op } from "@tg/core-uop/Op"
import { toposort, type UOp } from "@tg/core-uop/UOp"
import { assert, describe, it } from "@effect/vitest"
import { type Data, execute } from "./support/execute.ts"
import { kernel, type LinearBuilder } from "./support/linear.ts"

/** Small, large, negative and special bit patterns: as i32, u32 and f32. */
const patterns = Uint32Array.from([
  0,
  1,
  2,
  7,
  31,
  255,
  0x7fffffff,
  0x80000000,
  0xffffffff,
  0xfffffff9,
  0x3f800000,
  0xbf800000,
  0x7f800000,
  0xff800000,
  0x7fc00000,
  0x42f6e979,
  0xc2f6e979,
  0x00000100,
  0x4b000001,
  0x12345678
])
const elements = patterns.length
const types = [DType.i32, DType.u32, DType.f32]
const views = (bits: Uint32Array): ReadonlyArray<Data> => [
  new Int32Array(bits.slice().buffer),
  bits.slice(),
  new Float32Array(bits.slice().buffer)
]

const integerOps: ReadonlyArray<Op> = ["ADD", "SUB", "MUL", "MAX", "MIN", "AND", "OR", "XOR", "FLOORDIV", "FLOORMOD"]
const floatOps: ReadonlyArray<Op> = ["ADD", "SUB", "MUL", "FDIV", "MAX", "MIN"]
const comparisons: ReadonlyArray<Op> = ["CMPLT", "CMPEQ", "CMPNE"]

/** Expressions that grow from loads, each new node using earlier ones, so that values are shared. */
const grow = (b: LinearBuilder, leaves: ReadonlyArray<UOp>, random: (n: number) => number): ReadonlyArray<UOp> => {
  const values = [...leaves]
  const conditions: Array<UOp> = []
  const pick = (dtype?: DType.DType): UOp => {
    const fitting = values.filter((v) => dtype === undefined || v.dtype.scalar === dtype.scalar)
    return fitting[random(fitting.length)]!
  }
  const choose = <A>(list: ReadonlyArray<A>): A => list[random(list.length)]!
  for (let step = 0; step < 25; step++) {
    const a = pick()
    const c = pick(a.dtype)
    const float = DType.isFloat(a.dtype)
    switch (random(8)) {
      case 0:
        conditions.push(Expr.alu(choose(comparisons), a, c))
        break
      case 1:
        if (conditions.length > 1) {
          conditions.push(Expr.alu(choose(["AND", "OR", "XOR", "CMPEQ"]), choose(conditions), choose(conditions)))
        }
        break
      case 2:
        if (conditions.length > 0) values.push(Expr.where(choose(conditions), a, c))
        break
      case 3:
        values.push(random(2) === 0 ? Expr.cast(a, choose(types)) : Expr.bitcast(a, choose(types)))
        break
      case 4: {
        const amount = random(2) === 0 ? Expr.like(a, random(32)) : Expr.and(c, 31)
        if (!float) values.push(Expr.alu(choose(["SHL", "SHR"]), a, amount))
        if (a.dtype.scalar === "u32") values.push(Expr.alu("DOT4I8", a, c))
        break
      }
      case 5:
        if (!float) {
          values.push(Expr.alu(choose(["FLOORDIV", "FLOORMOD"]), a, Expr.like(a, choose([1, 2, 3, 8, 10, 64]))))
        } else values.push(Expr.alu(choose(["SQRT", "TRUNC", "NEG"]), a))
        break
      case 6:
        if (conditions.length > 0) values.push(Expr.cast(choose(conditions), choose(types)))
        break
      default:
        values.push(Expr.alu(choose(float ? floatOps : integerOps), a, c))
    }
    if (random(3) === 0) b.add(values[values.length - 1]!)
  }
  return types.map((dtype) => values.filter((v) => v.dtype.scalar === dtype.scalar).at(-1)!)
}

/** The value of an expression for one element, by the reference's meaning of each operation. */
const evaluate = (root: UOp, inputs: ReadonlyArray<Data>, element: number): number => {
  const values = new Map<UOp, number>()
  for (const node of toposort(root)) {
    if (node.op === "CONST") values.set(node, Number(node.arg))
    else if (node.op === "STACK") values.set(node, values.get(node.src[0]!)!)
    else if (node.op === "LOAD") {
      values.set(node, inputs[(node.src[0]!.src[0]!.arg as { slot: number }).slot - 3]![element]!)
    } else if (elementwise.has(node.op) && node.src.every((s) => values.has(s))) {
      const [x, y, z] = node.src.map((s) => values.get(s)!)
      const result = scalar(node.op, node.src[node.src.length - 1]!.dtype, node.dtype)(x!, y!, z!)
      const type = node.dtype.scalar
      values.set(
        node,
        type === "f32" ? Math.fround(result) : type === "i32" ? result | 0 : type === "u32" ? result >>> 0 : result
      )
    }
  }
  return values.get(root)!
}

describe.each([1, 4] as const)("random expressions, %i lanes", (lanes) => {
  it.each(Array.from({ length: 40 }, (_, i) => i + 1))("seed %i", (seed) => {
    let state = seed * 0x9e3779b1
    const random = (n: number): number => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0
      return Math.floor(state / 2 ** 32 * n)
    }
    let results: ReadonlyArray<UOp> = []
    const linear = kernel((b) => {
      const outputs = types.map((t, i) => b.param(i, t))
      const inputs = types.map((t, i) => b.param(3 + i, t))
      b.loop(elements / lanes, "GLOBAL", (r) => {
        const at = lanes === 1 ? r : Expr.mul(r, lanes)
        results = grow(b, inputs.map((p) => b.load(p, at, { lanes })), random)
        results.forEach((value, i) => b.store(outputs[i]!, at, value))
      })
    })
    const shuffled = patterns.map((_, i) => patterns[(i * 7 + seed) % elements]!)
    const inputs = views(patterns).map((d, i) => i === 1 ? shuffled : d)
    const outputs = execute(linear, [...views(new Uint32Array(elements)), ...inputs]).slice(0, 3)
    for (const [i, root] of results.entries()) {
      const expected = Array.from({ length: elements }, (_, e) => evaluate(root, inputs, e))
      assert.deepStrictEqual([...outputs[i]!], expected, `output ${i}`)
    }
  })
})
