import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import * as Nn from "@tg/tensor/Nn"
import * as Program from "@tg/tensor/Program"
import * as Tensor from "@tg/tensor/Tensor"

const width = 8
const hidden = 16
/** Of each element between blocks: together more than phases tell each other. */
const copies = 2 ** 14

/**
 * A chain of `count` equal blocks, each with its own weights: `x + down(silu(up(norm(x))))`. Buffer 0 is x, 1 the result. Between groups of
 * so many blocks that are apart stands a value that is too large for another phase to read: no launch is part of two. `remembers`: what the first block computes is added to the result.
 * `isPadded` says which blocks have rows of `down` twice as long, of which the first half is used.
 */
export const blocks = (
  count: number,
  { apart = count, isPadded = (_: number): boolean => false, remembers = false } = {}
): Program.TensorProgram => {
  const arena = new Arena()
  let next = 0
  const buffer = (...shape: ReadonlyArray<number>): Tensor.Tensor =>
    Tensor.buffer(arena, next++, { shape, dtype: DType.f32 })
  const [input, out] = [buffer(1, width), buffer(1, width)]
  let x = input
  let first: Tensor.Tensor | undefined
  for (let i = 0; i < count; i++) {
    const row = isPadded(i) ? 2 * hidden : hidden
    const weights = [buffer(width), buffer(hidden, width), buffer(width, row)]
    x = Program.call(isPadded(i) ? "padded" : "block", [x, ...weights], (y, norm, up, down) => [
      y!.add(
        Nn.linear(
          Nn.linear(Nn.rmsNorm(y!, norm!, 1e-5), up!).silu(),
          down!.shrink([undefined, { start: 0, size: hidden }])
        )
      )
    ])[0]!
    first ??= x
    if ((i + 1) % apart === 0 && i + 1 < count) {
      x = x.reshape([1, width, 1]).expand([1, width, copies]).contiguous().max(2)
    }
  }
  return Program.make([Program.assign(out, remembers ? x.add(first!) : x)])
}

/** Contents of each buffer of a program, by its id. */
export const filled = ({ buffers }: Program.TensorProgram): ReadonlyMap<number, Float32Array> =>
  new Map(buffers.map(({ id, shape }) => [id, contents(id, shape.reduce<number>((n, size) => n * Number(size), 1))]))

/** Contents of a buffer: small numbers that differ between buffers and elements. */
export const contents = (id: number, elements: number): Float32Array =>
  Float32Array.from({ length: elements }, (_, i) => ((i * 7 + id * 5) % 13 - 6) / 16)
