/** The oracle's models, through the layers that `--device` gives, against the logits recorded for them. */
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import type { Restrictions } from "@tg/core-uop/DeviceLimits"
import type { ActivationPolicy } from "@tg/engine/ActivationPolicy"
import { Engine, fromModel } from "@tg/engine/Engine"
import { type ByteSource, fromBytes } from "@tg/gguf/ByteSource"
import type { Store } from "@tg/tuner/Store"
import { Effect, Layer, Stream } from "effect"
import * as Devices from "../../../src/Devices.ts"
import { open } from "./open.ts"

const vectors = new URL("../../../../../test/vectors/", import.meta.url)

/** A file of a model. */
const fileOf = (name: string, file: string): URL =>
  new URL(`${name.startsWith("c") ? "oracle" : "oracle-families"}/${file}`, vectors)

/** Storage of the cache. */
export type Cache = "f16" | "f32"

/** The names of the models with latent attention. */
export const names = ["c01", "c02", "c03", "c04", "c05", "c06"] as const
/** The names of the others: llama, qwen3, qwen2, qwen3moe, gemma3, glm4moe. */
export const families = ["l01", "q01", "w01", "m01", "g01", "z01"] as const
/** The name of a model. */
export type Name = typeof names[number] | typeof families[number]

/** Tokens, and the logits expected after some of them. */
export interface Run {
  readonly name: string
  readonly prompt: ReadonlyArray<number>
  /** What the model answers greedily. */
  readonly continuation: ReadonlyArray<number>
  /** Positions that have logits. */
  readonly rows: ReadonlyArray<number>
  /** A file of them, `[rows, vocabulary]`. */
  readonly logits: string
  readonly argmax: ReadonlyArray<number>
  /** By number of the block, the experts chosen at each position. */
  readonly experts?: Readonly<Record<string, ReadonlyArray<ReadonlyArray<number>>>>
}

/** The runs of a model. */
export const runsOf = (name: Name): ReadonlyArray<Run> =>
  (JSON.parse(readFileSync(fileOf(name, `${name}.json`), "utf8")) as { readonly runs: ReadonlyArray<Run> }).runs

/** All tokens of a run. */
export const tokensOf = (run: Run): ReadonlyArray<number> => [...run.prompt, ...run.continuation]

export const expectedOf = (run: Run): Float32Array =>
  new Float32Array(Uint8Array.from(readFileSync(fileOf(run.logits, run.logits))).buffer)

/** The logits expected after a position that has some. */
export const expectedRow = (run: Run, position: number): Float32Array => {
  const all = expectedOf(run)
  const size = all.length / run.rows.length
  const at = run.rows.indexOf(position)
  return all.subarray(at * size, (at + 1) * size)
}

/** The file of a model. */
export const pathOf = (name: Name): string => fileURLToPath(fileOf(name, `${name}.gguf`))

/** The bytes of a model. */
export const source = (name: Name): ByteSource["Service"] => fromBytes(name, new Uint8Array(readFileSync(pathOf(name))))

/** How a model runs. */
export interface Setting {
  readonly cache: Cache
  readonly device: Devices.Choice
  readonly restrictions?: Restrictions | undefined
  /** Tokens from which a prompt is a batch, if not as the device has it. */
  readonly batchFrom?: number
  /** Numbers of tokens that have a program of their own, if not as the device has them. */
  readonly sizes?: ReadonlyArray<number>
  /** Tokens of a step that gives all logits, if not as usual. */
  readonly chunk?: number
  /** `float` if it is not said. */
  readonly activations?: ActivationPolicy
  /** Opts that kernels have instead of the heuristics' choice. */
  readonly store?: Store
}

/** The engine with a model of the oracle on the device of a choice. */
export const engine = (
  name: Name,
  { activations = "float", batchFrom, cache, chunk, device, restrictions, sizes, store }: Setting
) =>
  Layer.effect(
    Engine,
    Effect.gen(function*() {
      const bytes = source(name)
      return yield* fromModel(bytes, yield* open(bytes), { cache, batchFrom, chunk, sizes, activations })
    })
  ).pipe(Layer.provideMerge(Devices.layer(device, { restrictions, store })))

/** Logits after each of the tokens, row by row. */
export const logitsOf = Effect.fn("logitsOf")(function*(tokens: ReadonlyArray<number>) {
  const pieces = yield* Stream.runCollect((yield* Engine).logits(tokens))
  return rowsOf(pieces, (yield* Engine).model.config.vocabulary)
})

/** The rows of pieces of logits. */
export const rowsOf = (pieces: ReadonlyArray<Float32Array>, vocabulary: number): ReadonlyArray<Float32Array> =>
  pieces.flatMap((piece) =>
    Array.from({ length: piece.length / vocabulary }, (_, i) => piece.subarray(i * vocabulary, (i + 1) * vocabulary))
  )

/** The largest of the logits: where, and how far above the second. */
export const leader = (logits: Float32Array): { readonly id: number; readonly lead: number } => {
  let id = 0
  let second = -Infinity
  for (let i = 1; i < logits.length; i++) {
    if (logits[i]! > logits[id]!) {
      second = logits[id]!
      id = i
    } else second = Math.max(second, logits[i]!)
  }
  return { id, lead: logits[id]! - second }
}

/** How far apart two lists of numbers are. A difference that is no number is infinite. */
export const distance = (
  a: ArrayLike<number>,
  b: ArrayLike<number>
): { readonly rms: number; readonly largest: number } => {
  assert.strictEqual(a.length, b.length)
  let squares = 0
  let largest = 0
  for (let i = 0; i < a.length; i++) {
    const d = Math.abs(a[i]! - b[i]!)
    squares += d * d
    largest = Math.max(largest, Number.isNaN(d) ? Infinity : d)
  }
  return { rms: Math.sqrt(squares / a.length), largest }
}

/**
 * What is asked of `logits` for float32 arithmetic, without and with a cache of half precision. The usual mistakes
 * (pairing of the rotation, scales, biases, gating, norms) move the RMS by 0.07 and more, on logits of deviation 2.
 */
export const limits: Readonly<Record<Cache, { readonly rms: number; readonly largest: number }>> = {
  f32: { rms: 5e-4, largest: 5e-3 },
  f16: { rms: 5e-3, largest: 3e-2 }
}

/** Compares the rows of a run, and how many of them had a token far enough in front to compare it too. */
export const check = (run: Run, rows: ReadonlyArray<Float32Array>, cache: Cache): number => {
  const expected = expectedOf(run)
  const vocabulary = expected.length / run.rows.length
  const picked = run.rows.map((position) => rows[position]!)
  const found = Float32Array.from(picked.flatMap((row) => Array.from(row)))
  const { largest, rms } = distance(found, expected)
  assert.isAtMost(rms, limits[cache].rms, `RMS of ${run.name}`)
  assert.isAtMost(largest, limits[cache].largest, `largest difference of ${run.name}`)
  let compared = 0
  run.argmax.forEach((id, i) => {
    const reference = leader(expected.subarray(i * vocabulary, (i + 1) * vocabulary))
    assert.strictEqual(reference.id, id)
    // a smaller lead may turn without any value being off by more than is allowed
    if (reference.lead <= 2 * limits[cache].largest) return
    compared++
    assert.strictEqual(leader(picked[i]!).id, id, `position ${run.rows[i]} of ${run.name}`)
  })
  return compared
}

/** All runs of a model on one engine. */
export const agrees = (name: Name, setting: Setting) =>
  Effect.gen(function*() {
    for (const run of runsOf(name)) {
      // the tokens of the continuation are all further ahead than that
      assert.isAtLeast(check(run, yield* logitsOf(tokensOf(run)), setting.cache), run.continuation.length)
    }
  }).pipe(Effect.provide(engine(name, setting)))

/** The test of a model. */
export const test = (
  name: Name,
  { what = "", ...setting }: Setting & { readonly what?: string }
) => it.live(`${name}, ${setting.cache} cache${what}`, () => agrees(name, setting))
