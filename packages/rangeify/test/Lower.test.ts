import { assert, describe, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Print from "@tg/core-uop/Print"
import { Arena } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import { lower, storageType } from "../src/Lower.ts"
import { kernels } from "../src/Rangeify.ts"
import { Build, runSchedule, runTensor, scheduled } from "./support/programs.ts"

/** What each operation of the tensor stage may do, on small integers: every kernel is exact. */
const values: Readonly<Record<string, (b: Build) => Tensor.Tensor>> = {
  reshape: (b) => b.f32(4, 6).reshape([2, 3, 4]),
  expand: (b) => b.f32(4, 1).expand([4, 5]),
  permute: (b) => b.f32(2, 3, 4).permute([2, 0, 1]),
  "permute, then reshape": (b) => b.f32(2, 3, 4).permute([2, 0, 1]).reshape([-1]),
  "pad on both sides": (b) => b.f32(3, 4).pad([[1, 2], [0, 1]]),
  "pad of a pad of a view": (b) => b.f32(3, 4).transpose().pad([[1, 0], [0, 2]]).flip(0).pad([[0, 1], [1, 0]]),
  "pad of booleans": (b) => b.f32(4).gt(0).pad([[1, 1]]),
  shrink: (b) => b.f32(5, 6).shrink([{ start: 1, size: 3 }, { start: 2, size: 2 }]),
  flip: (b) => b.f32(3, 4).flip(0, 1),
  gather: (b) => b.f32(11, 3).gather(b.u32(2, 2)),
  "gather of a padded table": (b) => b.f32(9, 3).pad([[1, 1], [0, 0]]).gather(b.u32(5)),
  cat: (b) => Nn.cat([b.f32(2, 3), b.f32(1, 3), b.f32(3, 3)], 0),
  iota: (b) => Tensor.iota(b.arena, 7).cast(DType.f32).mul(b.f32(7)),
  "a constant": (b) => Tensor.full(b.arena, [2, 3], 1.5),
  "a symbolic number": (b) => Tensor.variable(b.arena, "n", 1, 8).cast(DType.i32),
  "sum of one axis": (b) => b.f32(3, 4, 5).sum(1),
  "sum of all": (b) => b.f32(3, 4).sum(),
  "product of an axis of size 1": (b) => b.f32(3, 1).prod(1),
  "largest of a padded axis": (b) => b.f32(3, 4).sub(10).pad([[0, 0], [0, 2]]).max(1),
  "sum of an axis of size 0": (b) => Tensor.zeros(b.arena, [3, 0]).sum(1),
  "a symbolic window": (b) => b.f32(9, 2).slice(0, Tensor.variable(b.arena, "at", 0, 4), 3),
  "a window of symbolic size": (b) => b.f32(8, 2).slice(0, 0, Tensor.variable(b.arena, "n", 1, 8)),
  "flip of a symbolic axis": (b) => b.f32(8, 2).slice(0, 0, Tensor.variable(b.arena, "n", 1, 8)).flip(0),
  "booleans through a temporary": (b) => b.u32(4).gt(2).contiguous().where(b.f32(4), 1),
  "an index through a temporary": (b) => Tensor.iota(b.arena, 6).mul(2).contiguous().cast(DType.i32)
}

describe("Lower", () => {
  for (const [name, make] of Object.entries(values)) {
    it(`${name}`, () => {
      const b = new Build()
      const { sink } = Program.make([b.out(make(b))])
      for (const n of [1, 3, 8]) {
        const vars = { n, at: n % 5 }
        assert.deepStrictEqual(runSchedule(sink, scheduled(sink), vars), runTensor(sink, vars))
      }
    })
  }

  it("binds each buffer once, the output first", () => {
    const b = new Build()
    const x = b.f32(4, 4)
    const lowered = lower(new Arena(), b.out(x.add(x.transpose()).mul(b.f32(4))).node, {
      stored: new Set(),
      staged: new Set()
    })
    assert.deepStrictEqual(lowered.storage.map((s) => s.arg), [{ id: 2 }, { id: 0 }, { id: 1 }])
    assert.deepStrictEqual(lowered.sizes, [4, 4])
  })

  it("reads padded elements under a gate, and gives zero outside", () => {
    const b = new Build()
    const [kernel] = kernels(scheduled(Program.make([b.out(b.f32(4).pad([[2, 0]]))]).sink))
    assert.strictEqual(
      Print.expression(kernel!.ast.src[0]!.src[0]!),
      "store(p0[r0], ((r0 < 2) ? 0 : p1[(r0 + -2) if ((r0 < 2) ^ true)]))"
    )
  })

  it("widens what memory cannot hold to 32 bits", () => {
    assert.strictEqual(storageType(DType.bool), DType.u32)
    assert.strictEqual(storageType(DType.index), DType.i32)
    assert.strictEqual(storageType(DType.f32), DType.f32)
  })

  it("keeps the model's labels on the nodes they became", () => {
    const b = new Build()
    const [kernel] = kernels(scheduled(Program.make([b.out(b.f32(4).mul(2).label("ffn_gate"))]).sink))
    assert.strictEqual(kernel!.name, "ffn_gate_4")
    assert.strictEqual(kernel!.ast.arena.labelOf(kernel!.ast.src[0]!.src[0]!.src[1]!), "ffn_gate")
  })
})
