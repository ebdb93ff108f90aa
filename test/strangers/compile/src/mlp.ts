import { DType, UOp } from "@tg/core-uop"
import { Nn, Program, Tensor } from "@tg/tensor"

/** `y = softmax(silu(x wᵀ))`, 4 rows of 64. */
export const mlp = (): Program.TensorProgram => {
  const arena = new UOp.Arena()
  const buffer = (id: number, label: string, ...shape: ReadonlyArray<number>) =>
    Tensor.buffer(arena, id, { shape, dtype: DType.f32, label })
  const y = buffer(2, "y", 4, 96)
  const hidden = Nn.linear(buffer(0, "x", 4, 64), buffer(1, "w", 96, 64)).silu()
  return Program.make([Program.assign(y, Nn.softmax(hidden))])
}
