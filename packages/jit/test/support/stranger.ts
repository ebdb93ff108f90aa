/** One block of a decoder with grouped queries, as a text book has it: a token in, the stream out. */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor, variable } from "@tg/tensor/Tensor"

export interface Sizes {
  readonly context: number
  readonly heads: number
  readonly keyHeads: number
  readonly size: number
  readonly width: number
}

/** (a, b) -> (a cos - b sin, b cos + a sin) of the halves of each head. */
const rotated = (x: Tensor, angles: Tensor): Tensor => {
  const half = Number(x.dim(-1)) / 2
  const [a, b] = [x.slice(-1, 0, half), x.slice(-1, half, half)]
  const [cos, sin] = [angles.slice(0, 0, 1), angles.slice(0, 1, 1)]
  return Nn.cat([a.mul(cos).sub(b.mul(sin)), b.mul(cos).add(a.mul(sin))], -1)
}

export const model = ({ context, heads, keyHeads, size, width }: Sizes) => {
  const arena = new Arena()
  const embedding = heads * size
  const buffers: Array<Tensor> = []
  const storage = (shape: ReadonlyArray<number>, label: string): Tensor => {
    const made = buffer(arena, buffers.length, { shape, dtype: DType.f32, label })
    buffers.push(made)
    return made
  }
  const start = variable(arena, "start", 0, context - 1)
  const [x, out] = [storage([1, embedding], "x"), storage([1, embedding], "out")]
  const angles = storage([2, size / 2], "angles")
  const [keys, values] = [storage([context, keyHeads, size], "keys"), storage([context, keyHeads, size], "values")]
  const norm = (y: Tensor, label: string): Tensor => Nn.rmsNorm(y, storage([embedding], label), 1e-5)
  const linear = (y: Tensor, rows: number, label: string): Tensor =>
    Nn.linear(y, storage([rows, Number(y.dim(-1))], label)).label(label)

  const y = norm(x, "norm")
  const query = rotated(linear(y, embedding, "q").reshape([heads, size]), angles)
  const key = rotated(linear(y, keyHeads * size, "k").reshape([keyHeads, size]), angles)
  const value = linear(y, keyHeads * size, "v")
  const wrote = [[keys, key], [values, value]].map(([cache, row]) =>
    Program.assign(cache!.slice(0, start, 1), row!.reshape([1, keyHeads, size]))
  )
  // [G, S, size]: what stands up to this token
  const seen = (cache: Tensor, i: number): Tensor =>
    Program.after(cache, [wrote[i]!]).slice(0, 0, start.add(1)).permute([1, 0, 2])
  const q = query.reshape([keyHeads, heads / keyHeads, 1, size])
  const scores = q.mul(seen(keys, 0).unsqueeze(1)).sum(-1).mul(size ** -0.5)
  const mixed = Nn.softmax(scores).unsqueeze(-1).mul(seen(values, 1).unsqueeze(1)).sum(-2).label("attention")
  const middle = x.add(linear(mixed.reshape([1, embedding]), embedding, "o"))

  const z = norm(middle, "norm_2")
  const inner = linear(z, width, "gate").silu().mul(linear(z, width, "up"))
  const program = Program.make([Program.assign(out, middle.add(linear(inner, embedding, "down")))])
  return { program, sink: program.sink, out, buffers }
}
