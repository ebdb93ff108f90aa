import { evaluate } from "@tg/core-uop/EvaluateTensor"
import * as Spec from "@tg/core-uop/Spec"
import { Arena, type UOp } from "@tg/core-uop/UOp"
import * as Program from "@tg/tensor/Program"
import { buffer, type Tensor } from "@tg/tensor/Tensor"
import * as DType from "@tg/core-uop/DType"
import { expect } from "vitest"

type Storage = Float32Array | Int32Array | Uint32Array

/** A program under test: buffers with contents, and the values of tensors over them. */
export class Bench {
  readonly arena = new Arena()
  readonly buffers = new Map<UOp, Storage>()
  readonly vars: Record<string, number> = {}
  private ids = 0

  private input(data: Storage, shape: ReadonlyArray<number | UOp>, dtype: DType.DType): Tensor {
    const x = buffer(this.arena, this.ids++, { shape, dtype })
    this.buffers.set(x.node, data)
    return x
  }
  f32(data: ReadonlyArray<number>, shape: ReadonlyArray<number | UOp> = [data.length]): Tensor {
    return this.input(Float32Array.from(data), shape, DType.f32)
  }
  i32(data: ReadonlyArray<number>, shape: ReadonlyArray<number | UOp> = [data.length]): Tensor {
    return this.input(Int32Array.from(data), shape, DType.i32)
  }
  u32(data: ReadonlyArray<number>, shape: ReadonlyArray<number | UOp> = [data.length]): Tensor {
    return this.input(Uint32Array.from(data), shape, DType.u32)
  }

  /** The elements of x in row-major order; its graph must be well formed. */
  values(x: Tensor): ReadonlyArray<number> {
    const target = x.dtype === DType.bool || x.dtype === DType.index ? x.cast(DType.u32) : x
    const out = buffer(this.arena, this.ids++, { shape: target.shape, dtype: target.dtype })
    expect(Spec.check("tensor", Program.sink([Program.assign(out, target)]))).toEqual([])
    const [value] = evaluate([x.node], { buffers: this.buffers, vars: this.vars })
    return Array.from(value!.data)
  }
}
