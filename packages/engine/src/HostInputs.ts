/** What the host computes for each position of a step, on the device. */
import type { Model } from "@tg/model-parts/Family"
import { bufferOf, Device, type DeviceBuffer, type DeviceError } from "@tg/runtime/Device"
import { Effect } from "effect"
import * as Loader from "./Loader.ts"
import { inputId } from "./StepProgram.ts"

/** The buffers of a session's inputs. */
export interface HostInputs {
  /** Buffers by their ids in step programs. */
  readonly bound: ReadonlyArray<readonly [number, DeviceBuffer]>
  /** Puts the values of these positions there. */
  readonly write: (positions: ReadonlyArray<number>) => Effect.Effect<void, DeviceError>
}

/**
 * Buffers for up to `most` positions at a time. Weights that the host reads are read from the device before the first
 * step: until then they may not be loaded.
 */
export const make = Effect.fnUntraced(function*(
  { hostWeights, inputs, inputsAt }: Pick<Model, "hostWeights" | "inputs" | "inputsAt">,
  weights: Loader.Tensors,
  most: number
) {
  const device = yield* Device
  const buffers = yield* Effect.forEach(
    inputs,
    ({ label, row }) => device.allocate(4 * most * row.reduce((n, d) => n * d, 1), label)
  )
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
  const made: HostInputs = {
    bound: buffers.map((buffer, i) => [inputId(i), buffer] as const),
    write: Effect.fnUntraced(function*(positions: ReadonlyArray<number>) {
      host ??= yield* read
      const values = inputsAt(positions, host)
      for (const [i, buffer] of buffers.entries()) {
        const { buffer: memory, byteLength, byteOffset } = values[i]!
        yield* device.write(buffer, new Uint8Array(memory, byteOffset, byteLength))
      }
    })
  }
  return made
})
