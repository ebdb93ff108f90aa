/** Attention of several sequences in a step, by a reader that reads each one's rows and by one that hides those of the others. */
import { assert } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import { evaluate } from "@tg/core-uop/EvaluateTensor"
import { type Reader, whole } from "@tg/model-parts/Attention"
import { scalar, type Tensor } from "@tg/tensor/Tensor"

/** Asserts that both are equal, and of this shape. */
export const assertEachAsHidden = (
  { each, ...masking }: Reader,
  { cache, query, sequence, shape, weights }: {
    readonly query: Tensor
    readonly cache: Tensor
    /** Tokens of each. */
    readonly sequence: number
    readonly shape: ReadonlyArray<number>
    /** What else is read: words of floats. */
    readonly weights?: Tensor | undefined
  }
): void => {
  const input = { order: "tokens", startPos: scalar(query.arena, 0), sequence } as const
  assert.isDefined(each)
  for (const window of [undefined, 2]) {
    const roots = [{ ...masking, each }, masking].map((by) => whole(by, { ...input, window }, query, cache))
    const buffers = new Map(
      [query, cache, ...weights === undefined ? [] : [weights]].map(({ dtype, node, shape }, seed) => {
        const size = shape.reduce<number>((n, d) => n * Number(d), 1)
        const values = Float32Array.from({ length: size }, (_, i) => Math.sin(i * (i + seed + 1)))
        return [node, dtype === DType.u32 ? new Uint32Array(values.buffer) : values]
      })
    )
    const [own, hidden] = evaluate(roots.map(({ node }) => node), { buffers, vars: {} })
    assert.deepStrictEqual(own!.shape, shape)
    // hidden positions have weights of exactly 0; a sum of the others and of zeros is rounded alike
    own!.data.forEach((x, i) => assert.closeTo(x, hidden!.data[i]!, 1e-6, `element ${i}`))
  }
}
