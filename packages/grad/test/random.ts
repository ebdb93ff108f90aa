/** Random tensor programs as functions of one float, and the values of their graphs in double precision. */
import * as DType from "@tg/core-uop/DType"
import * as EvaluateTensor from "@tg/core-uop/EvaluateTensor"
import type { UOp } from "@tg/core-uop/UOp"
import { argOf, toposort } from "@tg/core-uop/UOp"
import { buildProgram, type RandomProgram, randomSteps } from "@tg/tensor/Random"
import { full, iota, Tensor } from "@tg/tensor/Tensor"

/** A random program whose float outputs are weighed and summed. */
export interface Case {
  readonly random: RandomProgram
  readonly loss: Tensor
  /** The buffers of floats that it reads. */
  readonly inputs: ReadonlyArray<Tensor>
}

export type Contents = ReadonlyMap<UOp, EvaluateTensor.Value["data"]>

/** Rounding to halves is left out: its steps are all that a difference would see. */
export const randomCase = (seed: number, size: number): Case => {
  const random = buildProgram(randomSteps(seed, size).filter(({ kind }) => kind !== "half"))
  const { arena, sink } = random.program
  const weighed = sink.src.map((store) => new Tensor(store.src[1]!)).filter(({ dtype }) => dtype === DType.f32)
    .map((x, i) =>
      x.shape.reduce<Tensor>((y, dim, axis) => {
        const number = iota(arena, dim).cast(DType.f32).reshape([dim, ...x.shape.slice(axis + 1).map(() => 1)])
        return y.mul(number.mul(0.7 + axis).add(i + 1).sin())
      }, x).sum()
    )
  const loss = weighed.reduce((a, b) => a.add(b), full(arena, [], 0))
  const floats = new Set(random.inputs.filter(({ dtype }) => dtype === DType.f32).map(({ id }) => id))
  const inputs = toposort(loss.node).filter((node) => node.op === "BUFFER" && floats.has(argOf(node, "BUFFER").id))
  return { random, loss, inputs: inputs.map((node) => new Tensor(node)) }
}

/** Numbers from -1 to 1, equal for equal seeds. */
export const noise = (seed: number): () => number => {
  let state = seed * 2654435761 >>> 0
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 31 - 1
  }
}

/** What lies in the buffers; floats are moved a little, so that no two are equal. */
export const contentsOf = ({ loss, random }: Case, seed: number): Contents => {
  const next = noise(seed)
  const data = new Map(random.inputs.map((input) => [input.id, input]))
  return new Map(
    toposort(loss.node).filter(({ op }) => op === "BUFFER").map((node) => {
      const input = data.get(argOf(node, "BUFFER").id)!
      return [node, input.dtype === DType.f32 ? Float64Array.from(input.data, (x) => x + 0.01 * next()) : input.data]
    })
  )
}

/** Values of the roots in double precision. Effects happen to copies. */
export const evaluate = (
  roots: ReadonlyArray<Tensor>,
  contents: Contents,
  vars: Readonly<Record<string, number>>
): ReadonlyArray<EvaluateTensor.Value["data"]> =>
  EvaluateTensor.evaluate(roots.map(({ node }) => node), {
    buffers: new Map([...contents].map(([node, data]) => [node, data.slice()])),
    vars,
    float64: true
  }).map((value) => value!.data)
