import * as DType from "@tg/core-uop/DType"
import * as Int8 from "@tg/tensor/Int8"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"
import type { Build } from "./programs.ts"

/** Sixteen quants of four bits in two words and one scale a block: `[rows, blocks, 16]`. */
export const dequantised = (b: Build, rows: number, blocks: number): Tensor.Tensor => {
  const shift = Tensor.iota(b.arena, 8).cast(DType.u32).mul(4)
  const words = b.u32(rows, blocks, 2).unsqueeze(-1)
  const quants = words.shr(shift).and(15).cast(DType.f32).sub(8).reshape([rows, blocks, 16])
  const scale = b.u32(rows, blocks).and(0xffff).halfToFloat()
  return quants.mul(scale.unsqueeze(-1))
}

const mlp = (b: Build, x: Tensor.Tensor): Tensor.Tensor => {
  const [gate, up, down] = [b.f32(24, 8), b.f32(24, 8), b.f32(8, 24)]
  return Nn.linear(Nn.linear(x, gate).silu().mul(Nn.linear(x, up)), down)
}

const attention = (b: Build): Tensor.Tensor => {
  const [q, k, v] = [b.f32(2, 3, 8), b.f32(2, 5, 8), b.f32(2, 5, 8)]
  return Nn.matmul(Nn.softmax(Nn.matmul(q, k.transpose()).mul(0.125)), v)
}

/** Typical graphs, by what they are. Each returns the effects of one program. */
export const graphs: Readonly<Record<string, (b: Build) => ReadonlyArray<Tensor.Tensor>>> = {
  "elementwise chain": (b) => [b.out(b.f32(4, 8).add(b.f32(8)).mul(2).exp())],
  "views only": (b) => [b.out(b.f32(4, 8).transpose().reshape([2, 16]).flip(1))],
  "sum of an expression": (b) => [b.out(b.f32(4, 8).mul(b.f32(4, 8)).sum(1))],
  "mean, then elementwise work at the same place": (b) => [b.out(b.f32(4, 8).mean(1).add(1).sqrt())],
  "two reductions of one value": (b) => {
    const x = b.f32(4, 8)
    return [b.out(x.sum(1).div(x.max(1).add(20)))]
  },
  "a reduction of a reduction": (b) => [b.out(b.f32(4, 8).sum(1).mul(2).max(0))],
  "a reduction of a broadcast reduction": (b) => {
    const x = b.f32(4, 8)
    return [b.out(x.sub(x.mean({ axis: 1, keepDims: true })).abs().sum(1))]
  },
  softmax: (b) => [b.out(Nn.softmax(b.f32(4, 8)))],
  rmsNorm: (b) => [b.out(Nn.rmsNorm(b.f32(4, 8), b.f32(8), 1e-5))],
  linear: (b) => [b.out(Nn.linear(b.f32(4, 8), b.f32(16, 8)))],
  "linear with a dequantised weight": (b) => {
    const x = b.f32(1, 64)
    return [b.out(Nn.linear(x, dequantised(b, 12, 4)))]
  },
  "a norm, then products with activations of 8 bits": (b) => {
    const x = Int8.quantise(Nn.rmsNorm(b.f32(1, 64), b.f32(64), 1e-5)).contiguous()
    const rows = (n: number) => ({ words: b.u32(n, 2, 2, 4), scale: b.f32(n, 2, 1), zero: 8, minimum: b.f32(n, 2, 1) })
    return [b.out(Int8.contract(x, rows(12))), b.out(Int8.contract(x, rows(4)))]
  },
  "rmsNorm, then linear": (b) => [b.out(Nn.linear(Nn.rmsNorm(b.f32(4, 8), b.f32(8), 1e-5), b.f32(16, 8)))],
  "mlp with silu": (b) => [b.out(mlp(b, b.f32(4, 8)))],
  "residual around an mlp": (b) => {
    const x = b.f32(4, 8)
    return [b.out(x.add(mlp(b, Nn.rmsNorm(x, b.f32(8), 1e-5))))]
  },
  attention: (b) => [b.out(attention(b))],
  "top 2 of 8": (b) => {
    const { indices, values } = Nn.topK(b.f32(3, 8), 2)
    return [b.out(values), b.out(indices)]
  },
  "gather of rows": (b) => [b.out(b.f32(11, 4).gather(b.u32(3)))],
  "gather of computed rows": (b) => [b.out(b.f32(11, 4).exp().gather(b.u32(3)))],
  "linear with a gathered weight": (b) => {
    const [w, expert, x] = [b.f32(11, 6, 8), b.u32(2), b.f32(1, 8)]
    return [b.out(Nn.contract(x, w.gather(expert), 1))]
  },
  "a cheap value of two outputs": (b) => {
    const y = b.f32(4, 8).mul(2)
    return [b.out(y.add(1)), b.out(y.sub(1))]
  },
  "a sum of two outputs": (b) => {
    const y = b.f32(4, 8).sum(1)
    return [b.out(y.add(1)), b.out(y.sub(1))]
  },
  "a sum used twice in one kernel": (b) => {
    const y = b.f32(4, 8).sum(1)
    return [b.out(y.mul(y).add(y))]
  },
  "cat and pad": (b) => [b.out(Nn.cat([b.f32(2, 3), b.f32(4, 3)], 0).pad([[1, 1], [0, 2]]))],
  "an explicit copy": (b) => [b.out(b.f32(4, 8).mul(2).contiguous().add(1))],
  "a write and a read after it": (b) => {
    const [cache, row] = [b.f32(8, 4), b.f32(1, 4)]
    const at = Tensor.variable(b.arena, "at", 0, 7)
    const write = Program.assign(cache.slice(0, at, 1), row.mul(2))
    return [b.out(Program.after(cache, [write]).sum(0))]
  },
  "a sum over a symbolic axis": (b) => {
    const n = Tensor.variable(b.arena, "n", 1, 8)
    return [b.out(b.f32(8, 4).slice(0, 0, n).sum(0))]
  }
}
