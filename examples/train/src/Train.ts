/** Training: batches go in, the loss falls, weights come out. */
import { Jit } from "@tg/jit/Jit"
import type { Model } from "@tg/model-parts/Family"
import { Device } from "@tg/runtime/Device"
import { Effect, Schema } from "effect"
import { initial, turns } from "./Model.ts"
import { additions, batchOf, random, sequenceLength } from "./Problems.ts"
import * as Step from "./Step.ts"

/** What to learn, and for how long. Equal settings give equal losses on a device. */
export interface Settings {
  /** Digits of the numbers that are added: 1 or 2. */
  readonly digits: number
  readonly steps: number
  /** Problems of a step. Their tokens are a multiple of 64, the positions of a piece of the cache. */
  readonly sequences: number
  /** The largest rate of learning. */
  readonly rate: number
  readonly seed: number
}

/** A step that is done. */
export interface Done {
  readonly step: number
  readonly loss: number
}

/** What came of it. */
export interface Trained {
  readonly losses: ReadonlyArray<number>
  /** By the names of the file. */
  readonly weights: ReadonlyMap<string, Float32Array>
}

/** Settings that cannot be trained with, or a loss that is no number any more. */
export class TrainError extends Schema.TaggedError<TrainError>()("TrainError", { message: Schema.String }) {}

/** AdamW as this example uses it. */
export const optimiser: Step.AdamW = { keep: [0.9, 0.95], epsilon: 1e-8, decay: 0.01 }

/** The rate rises over the first steps, and falls to a twentieth like a cosine. */
export const rateAt = (step: number, { rate, steps }: Pick<Settings, "rate" | "steps">): number => {
  const warm = Math.min(1, step / Math.min(50, steps / 4))
  return rate * warm * (0.05 + 0.95 * (1 + Math.cos(Math.PI * step / steps)) / 2)
}

const bytesOf = ({ buffer, byteLength, byteOffset }: ArrayBufferView): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

const checked = ({ digits, sequences, steps }: Settings): TrainError | undefined => {
  if (!Number.isInteger(digits) || digits < 1 || digits > 2) {
    return new TrainError({ message: `train: asked for numbers of ${digits} digits; use 1 or 2` })
  }
  const tokens = sequences * sequenceLength(digits)
  if (!Number.isInteger(tokens) || tokens % 64 !== 0 || tokens < 64) {
    return new TrainError({
      message: `train: ${sequences} problems of ${sequenceLength(digits)} tokens are ${tokens}; use a multiple of 16`
    })
  }
  return Number.isInteger(steps) && steps > 0
    ? undefined
    : new TrainError({ message: `train: asked for ${steps} steps; use 1 or more` })
}

/** The step of a model, compiled and bound to memory of the device, with everything in it that does not change. */
const prepare = Effect.fn("Train.prepare")(function*(model: Model, { digits, seed, sequences }: Settings) {
  const device = yield* Device
  const length = sequenceLength(digits)
  const { ids, program } = Step.make(model, { sequences, length, optimiser })
  const buffers = new Map(
    yield* Effect.forEach(program.buffers, ({ id, label, shape }) => {
      const bytes = 4 * shape.reduce<number>((n, d) => n * Number(d), 1)
      return Effect.map(device.allocate(bytes, label ?? `buffer ${id}`), (made) => [id, made] as const)
    })
  )
  const write = (id: number, data: ArrayBufferView) => device.write(buffers.get(id)!, bytesOf(data))
  const read = (id: number) =>
    Effect.map(device.read(buffers.get(id)!, 0), (bytes) => new Float32Array(bytes.slice().buffer))
  for (const buffer of buffers.values()) yield* device.write(buffer, new Uint8Array(buffer.bytes))
  const { all } = model.weights
  const start = initial(seed)
  for (const [i, { name }] of all.entries()) yield* write(ids.weights[i]!, start.get(name)!)
  const positions = Array.from({ length: sequences * length }, (_, i) => i % length)
  yield* write(ids.positions, model.inputsAt(positions, new Map())[0]!)
  const { run } = yield* (yield* Jit).prepare(program.sink, buffers)
  return { ids, length, read, run: run({}), write }
})

/** Trains from random weights. `onStep` is told of every step. */
export const train = Effect.fn("Train.train")(function*(
  model: Model,
  settings: Settings,
  onStep: (done: Done) => Effect.Effect<void> = () => Effect.void
) {
  const wrong = checked(settings)
  if (wrong !== undefined) return yield* wrong
  const { ids, length, read, run, write } = yield* prepare(model, settings)
  const { learnt } = additions(settings.digits, settings.seed)
  const next = random(settings.seed + 1)
  const losses: Array<number> = []
  for (let step = 1; step <= settings.steps; step++) {
    const chosen = Array.from({ length: settings.sequences }, () => learnt[Math.floor(next() * learnt.length)]!)
    const batch = batchOf(chosen, turns, length)
    yield* write(ids.tokens, batch.tokens)
    yield* write(ids.targets, batch.targets)
    yield* write(ids.counts, batch.counts)
    yield* write(ids.rates, Step.ratesOf(rateAt(step, settings), step, optimiser))
    yield* run
    const loss = (yield* read(ids.loss))[0]!
    if (!Number.isFinite(loss)) {
      return yield* new TrainError({ message: `train: the loss of step ${step} is ${loss}; use a smaller rate` })
    }
    losses.push(loss)
    yield* onStep({ step, loss })
  }
  const weights = new Map<string, Float32Array>()
  for (const [i, { layout, name }] of model.weights.all.entries()) {
    const size = layout.shape.reduce((a, b) => a * b, 1)
    weights.set(name, (yield* read(ids.weights[i]!)).slice(0, size))
  }
  const trained: Trained = { losses, weights }
  return trained
}, Effect.scoped)
