/** What the host computes for each position, on the device: once for a whole context. */
import type { Model } from "@tg/model-parts/Family"
import { bufferOf, Device, type DeviceBuffer, type DeviceError } from "@tg/runtime/Device"
import { Effect } from "effect"
import * as Loader from "./Loader.ts"
import { cacheRows, inputId } from "./StepProgram.ts"

/** A model as far as the host computes for it. */
export type Source = Pick<Model, "hostWeights" | "inputs" | "inputsAt">

/** Inputs of all positions of a context. */
export interface Tables {
  /** Buffers by their ids in step programs. */
  readonly bound: ReadonlyArray<readonly [number, DeviceBuffer]>
  /** Sees to it that the rows of the first so many positions are there. They stay, so as a rule nothing is to be done. */
  readonly reach: (positions: number) => Effect.Effect<void, DeviceError>
}

/** Bytes of an input for so many positions. */
const bytesOf = ({ row }: Source["inputs"][number], positions: number): number =>
  4 * positions * row.reduce((n, d) => n * d, 1)

/**
 * Buffers with room for so many positions, and what puts values there, at a row. Weights that the host reads are read from the
 * device before the first step: until then they may not be loaded.
 */
const writing = Effect.fnUntraced(function*(
  { hostWeights, inputs, inputsAt }: Source,
  weights: Loader.Tensors,
  most: number
) {
  const device = yield* Device
  const buffers = yield* Effect.forEach(inputs, (input) => device.allocate(bytesOf(input, most), input.label))
  let host: ReadonlyMap<string, Float32Array> | undefined = hostWeights.length === 0 ? new Map() : undefined
  const read = Effect.map(
    Effect.forEach(hostWeights, ({ layout, name }) => {
      const own = weights.get(name)!
      return Effect.map(
        device.read(bufferOf(own), Loader.offsetOf(own), 4 * layout.words),
        // the values of F32 lie in their order, before what fills up the last words
        (bytes) => [name, new Float32Array(bytes.slice().buffer, 0, layout.shape.at(-1)!)] as const
      )
    }),
    (entries) => new Map(entries)
  )
  return {
    bound: buffers.map((buffer, i) => [inputId(i), buffer] as const),
    writeAt: Effect.fnUntraced(function*(positions: ReadonlyArray<number>, row: number) {
      host ??= yield* read
      const values = inputsAt(positions, host)
      for (const [i, buffer] of buffers.entries()) {
        const { buffer: memory, byteLength, byteOffset } = values[i]!
        yield* device.write(buffer, new Uint8Array(memory, byteOffset, byteLength), bytesOf(inputs[i]!, row))
      }
    })
  }
})

/** Positions whose rows are computed together. */
const tableRows = 256

/** Buffers for all positions of a context. Rows are computed when the first of them is reached, many at a time. */
export const tables = (source: Source, weights: Loader.Tensors, context: number) =>
  Effect.map(writing(source, weights, cacheRows(context)), ({ bound, writeAt }): Tables => {
    const rows = cacheRows(context)
    let known = source.inputs.length === 0 ? rows : 0
    return {
      bound,
      reach: Effect.fnUntraced(function*(positions: number) {
        while (known < Math.min(positions, rows)) {
          const count = Math.min(tableRows, rows - known)
          yield* writeAt(Array.from({ length: count }, (_, i) => known + i), known)
          known += count
        }
      })
    }
  })
