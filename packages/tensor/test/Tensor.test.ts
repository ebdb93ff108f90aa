import * as DType from "@tg/core-uop/DType"
import { argmax, cat, linear, matmul, rmsNorm, softmax, stack, topK } from "@tg/tensor/Nn"
import { full, iota, scalar, variable } from "@tg/tensor/Tensor"
import { TensorError } from "@tg/tensor/TensorError"
import { describe, expect, it } from "vitest"
import { Bench } from "./evaluate.ts"

/** Float results of a few operations in f32: a few units in the last place. */
const near = (found: ReadonlyArray<number>, expected: ReadonlyArray<number>): void => {
  expect(found.length).toBe(expected.length)
  found.forEach((x, i) =>
    expect(Math.abs(x - expected[i]!)).toBeLessThanOrEqual(1e-6 * Math.max(1, Math.abs(expected[i]!)))
  )
}

describe("elementwise", () => {
  it("broadcasts from the right and lifts numbers", () => {
    const b = new Bench()
    const x = b.f32([1, 2, 3, 4, 5, 6], [2, 3])
    expect(b.values(x.add(b.f32([10, 20, 30])))).toEqual([11, 22, 33, 14, 25, 36])
    expect(b.values(x.mul(b.f32([2, -1], [2, 1])))).toEqual([2, 4, 6, -4, -5, -6])
    expect(b.values(x.sub(1).div(2))).toEqual([0, 0.5, 1, 1.5, 2, 2.5])
    expect(b.values(b.f32([7], []).add(x))).toEqual([8, 9, 10, 11, 12, 13])
  })

  it("gives constants the shape of the other operand", () => {
    const b = new Bench()
    const sum = b.f32([1, 2, 3, 4, 5, 6], [2, 3]).add(1)
    expect(sum.node.src[1]!.op).toBe("CONST")
    expect(sum.node.src[1]!.src.map((s) => s.arg)).toEqual([2, 3])
  })

  it("compares, and NaN is unequal to everything", () => {
    const b = new Bench()
    const x = b.f32([1, 2, NaN])
    const two = full(b.arena, [3], 2)
    expect(b.values(x.lt(two))).toEqual([1, 0, 0])
    expect(b.values(x.le(two))).toEqual([1, 1, 0])
    expect(b.values(x.ge(two))).toEqual([0, 1, 0])
    expect(b.values(x.gt(two))).toEqual([0, 0, 0])
    expect(b.values(x.eq(2))).toEqual([0, 1, 0])
    expect(b.values(x.ne(2))).toEqual([1, 0, 1])
    const i = b.i32([-5, 0, 5])
    expect(b.values(i.le(0))).toEqual([1, 1, 0])
    expect(b.values(i.ge(0))).toEqual([0, 1, 1])
  })

  it("computes with integers as machines do", () => {
    const b = new Bench()
    const x = b.i32([-7, 7, 2 ** 31 - 1])
    expect(b.values(x.floordiv(2))).toEqual([-4, 3, 2 ** 30 - 1])
    expect(b.values(x.mod(4))).toEqual([1, 3, 3])
    expect(b.values(x.add(1))).toEqual([-6, 8, -(2 ** 31)])
    expect(b.values(x.shr(1))).toEqual([-4, 3, 2 ** 30 - 1])
    const u = b.u32([0xfffffff0, 3])
    expect(b.values(u.shr(4))).toEqual([0x0fffffff, 0])
    expect(b.values(u.not())).toEqual([15, 0xfffffffc])
    expect(b.values(u.and(0xff).or(0x100).xor(1))).toEqual([0x1f1, 0x102])
    expect(b.values(x.abs().neg())).toEqual([-7, -7, -(2 ** 31 - 1)])
  })

  it("selects, casts and reinterprets", () => {
    const b = new Bench()
    const x = b.f32([-1.5, 2.5])
    expect(b.values(x.lt(0).where(x.neg(), 0))).toEqual([1.5, 0])
    expect(b.values(x.cast(DType.i32))).toEqual([-1, 2])
    expect(b.values(x.bitcast(DType.u32))).toEqual([0xbfc00000, 0x40200000])
    expect(b.values(b.u32([0x3c00, 0xffff3c00, 0x0001]).halfToFloat())).toEqual([1, 1, 2 ** -24])
    expect(b.values(b.f32([1, 65504, 2 ** -24]).floatToHalf())).toEqual([0x3c00, 0x7bff, 1])
  })

  it("computes the usual functions", () => {
    const b = new Bench()
    const x = b.f32([0.25, 1, 4])
    near(b.values(x.sqrt()), [0.5, 1, 2])
    near(b.values(x.rsqrt()), [2, 1, 0.5])
    near(b.values(x.exp()), [Math.exp(0.25), Math.E, Math.exp(4)])
    near(b.values(x.log()), [Math.log(0.25), 0, Math.log(4)])
    near(b.values(x.sin()), [Math.sin(0.25), Math.sin(1), Math.sin(4)])
    near(b.values(x.sigmoid()), [0.25, 1, 4].map((v) => 1 / (1 + Math.exp(-v))))
    near(b.values(x.neg().silu()), [0.25, 1, 4].map((v) => -v / (1 + Math.exp(v))))
    expect(b.values(x.sub(1).relu())).toEqual([0, 0, 3])
    expect(b.values(b.f32([-1.7, 1.7]).trunc())).toEqual([-1, 1])
    expect(b.values(x.maximum(1).minimum(2))).toEqual([1, 1, 2])
  })
})

describe("movement", () => {
  it("reshapes, permutes and expands", () => {
    const b = new Bench()
    const x = b.i32([0, 1, 2, 3, 4, 5], [2, 3])
    expect(x.reshape([-1, 2]).shape).toEqual([3, 2])
    expect(b.values(x.transpose())).toEqual([0, 3, 1, 4, 2, 5])
    expect(b.values(x.reshape([1, 2, 3]).permute([2, 0, 1]).reshape([6]))).toEqual([0, 3, 1, 4, 2, 5])
    expect(b.values(x.slice(1, 1, 1).expand([2, 2]))).toEqual([1, 1, 4, 4])
    expect(b.values(b.i32([1, 2]).expand([2, 2]))).toEqual([1, 2, 1, 2])
    expect(x.unsqueeze(-1).shape).toEqual([2, 3, 1])
    expect(x.unsqueeze(0).squeeze(0).node).toBe(x.node)
  })

  it("pads, slices, flips, repeats and joins", () => {
    const b = new Bench()
    const x = b.i32([1, 2, 3, 4], [2, 2])
    expect(b.values(x.pad([[0, 1], [1, 0]]))).toEqual([0, 1, 2, 0, 3, 4, 0, 0, 0])
    expect(b.values(x.shrink([{ start: 1, size: 1 }, undefined]))).toEqual([3, 4])
    expect(b.values(x.flip(1))).toEqual([2, 1, 4, 3])
    expect(b.values(x.repeat(1, 2))).toEqual([1, 2, 1, 2, 3, 4, 3, 4])
    expect(b.values(cat([x, b.i32([9, 8], [2, 1]), x], 1))).toEqual([1, 2, 9, 1, 2, 3, 4, 8, 3, 4])
    expect(b.values(cat([b.f32([-0]), b.f32([1])], 0)).map((v) => 1 / v)).toEqual([-Infinity, 1])
    expect(b.values(stack([b.i32([1, 2]), b.i32([3, 4])], 1))).toEqual([1, 3, 2, 4])
    expect(b.values(x.gather(b.u32([1, 0, 1])))).toEqual([3, 4, 1, 2, 3, 4])
  })

  it("keeps symbolic axes whole", () => {
    const b = new Bench()
    const rows = variable(b.arena, "rows", 1, 4)
    const at = variable(b.arena, "at", 0, 3)
    b.vars["rows"] = 2
    b.vars["at"] = 1
    const x = b.f32([1, 2, 3, 4, 5, 6, 7, 8], [rows.node, 2])
    expect(b.values(x.add(b.f32([10, 20])))).toEqual([11, 22, 13, 24])
    expect(b.values(x.sum(0))).toEqual([4, 6])
    expect(b.values(x.mean(0))).toEqual([2, 3])
    expect(b.values(x.reshape([rows.node, 1, -1]).transpose(0, 2))).toEqual([1, 3, 2, 4])
    const table = b.f32([0, 1, 2, 3, 4, 5, 6, 7])
    expect(b.values(table.slice(0, at, rows))).toEqual([1, 2])
    expect(b.values(table.slice(0, 0, at.add(rows)))).toEqual([0, 1, 2])
    expect(b.values(iota(b.arena, rows).cast(DType.f32).mul(at.cast(DType.f32)).unsqueeze(1).expand([rows.node, 2])))
      .toEqual([0, 0, 1, 1])
    expect(x.reshape([-1, 1, 2]).shape).toEqual([rows.node, 1, 2])
    expect(b.values(scalar(b.arena, rows.node).cast(DType.f32))).toEqual([2])
  })
})

describe("reductions and products", () => {
  it("reduces over any axes", () => {
    const b = new Bench()
    const x = b.f32([1, 2, 3, 4, 5, 6], [2, 3])
    expect(b.values(x.sum())).toEqual([21])
    expect(b.values(x.sum({ axis: [0], keepDims: true }))).toEqual([5, 7, 9])
    expect(x.sum({ axis: -1, keepDims: true }).shape).toEqual([2, 1])
    expect(b.values(x.prod(1))).toEqual([6, 120])
    expect(b.values(x.max(0))).toEqual([4, 5, 6])
    expect(b.values(x.min(1))).toEqual([1, 4])
    expect(b.values(x.mean())).toEqual([3.5])
    expect(b.values(b.i32([1, 5, 3]).max())).toEqual([5])
  })

  it("multiplies matrices", () => {
    const b = new Bench()
    const x = b.f32([1, 2, 3, 4, 5, 6], [2, 3])
    const w = b.f32([1, 0, 2, -1, 1, 0], [2, 3])
    expect(b.values(linear(x, w))).toEqual([7, 1, 16, 1])
    expect(b.values(matmul(x, w.transpose()))).toEqual([7, 1, 16, 1])
    const spread = b.f32([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 4])
    expect(b.values(linear(b.f32([1, 1, 1, 1, 2, 2, 2, 2]), spread))).toEqual([10 + 52])
    const batch = b.f32([1, 2, 3, 4, 5, 6, 7, 8], [2, 2, 2])
    expect(b.values(matmul(batch, b.f32([0, 1, 1, 0], [2, 2])))).toEqual([2, 1, 4, 3, 6, 5, 8, 7])
  })

  it("normalises", () => {
    const b = new Bench()
    const x = b.f32([1000, 1001, 1002, -5, 0, 5], [2, 3])
    const e = (v: ReadonlyArray<number>) => {
      const top = Math.max(...v)
      const parts = v.map((t) => Math.exp(t - top))
      const total = parts.reduce((a, c) => a + c)
      return parts.map((t) => t / total)
    }
    near(b.values(softmax(x)), [...e([1000, 1001, 1002]), ...e([-5, 0, 5])])
    const r = 1 / Math.sqrt((9 + 16) / 2 + 0.5)
    near(b.values(rmsNorm(b.f32([3, 4]), b.f32([1, 2]), 0.5)), [3 * r, 8 * r])
  })

  it("finds the largest, the earlier of equal ones first", () => {
    const b = new Bench()
    const top = topK(b.f32([3, 9, 3, 7, -1, -1, -2, -Infinity], [2, 4]), 3)
    expect(b.values(top.values)).toEqual([9, 7, 3, -1, -1, -2])
    expect(b.values(top.indices)).toEqual([1, 3, 0, 0, 1, 2])
    // whole numbers too, the least of them among the chosen
    const whole = topK(b.u32([0, 5, 0], [1, 3]), 3)
    expect(b.values(whole.indices)).toEqual([1, 0, 2])
  })

  it("finds where the largest of a long row is, whatever its length", () => {
    const b = new Bench()
    const where = (length: number, row: (i: number) => number): ReadonlyArray<number> =>
      b.values(argmax(b.f32(Array.from({ length }, (_, i) => row(i)), [1, length])))
    for (const length of [7, 4096, 4097, 5000]) {
      for (const at of [0, 1023, length - 1].filter((i) => i < length)) {
        expect(where(length, (i) => i === at ? -1 : -2 - i % 3)).toEqual([at])
      }
      expect(where(length, (i) => i % 5 === 3 ? 4 : NaN)).toEqual([3])
      expect(where(length, () => NaN)).toEqual([length])
    }
  })
})

describe("errors say what was asked, found and to do", () => {
  const b = new Bench()
  const x = b.f32([1, 2, 3, 4, 5, 6], [2, 3])
  const rows = variable(b.arena, "rows", 1, 4)
  const wrong: ReadonlyArray<readonly [string, () => unknown, RegExp]> = [
    ["shapes that do not broadcast", () => x.add(b.f32([1, 2])), /ADD.*\[2, 3\] and \[2\]/],
    ["mixed dtypes", () => x.add(b.i32([1, 2, 3])), /one dtype.*f32 and i32.*cast/],
    ["reshape to other sizes", () => x.reshape([4]), /reshape.*\[4\].*\[2, 3\]/],
    ["cutting a symbolic axis", () => b.f32([0, 0, 0, 0], [rows.node]).reshape([2, -1]), /symbolic/],
    ["an axis that is not there", () => x.sum(2), /axis 2.*rank 2/],
    ["a slice outside", () => x.slice(1, 2, 2), /shrink.*stay inside/],
    ["padding a symbolic axis", () => b.f32([0, 0, 0, 0], [rows.node]).pad([[1, 0]]), /symbolic/],
    ["matmul of other sizes", () => matmul(x, x), /\[2, 3\] x \[2, 3\]/],
    ["linear of other sizes", () => linear(x, b.f32([1, 2])), /linear/],
    ["joining other shapes", () => cat([x, b.f32([1])], 0), /cat/],
    ["a condition that is not bool", () => x.where(x, 0), /bool/],
    ["squeezing a long axis", () => x.squeeze(0), /size 1/],
    ["topK of too many", () => topK(x, 4), /topK/]
  ]
  for (const [name, act, message] of wrong) {
    it(name, () => {
      let error: unknown
      try {
        act()
      } catch (e) {
        error = e
      }
      expect(error).toBeInstanceOf(TensorError)
      expect((error as TensorError).message).toMatch(message)
    })
  }
})
