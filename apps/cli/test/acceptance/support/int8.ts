/** The oracle's models with activations of 8 bits: as near to the float logits as llama.cpp is with its own. */
import { readFileSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import * as DType from "@tg/core-uop/DType"
import * as Shape from "@tg/core-uop/Shape"
import { Arena } from "@tg/core-uop/UOp"
import * as ActivationPolicy from "@tg/engine/ActivationPolicy"
import * as HostInputs from "@tg/engine/HostInputs"
import * as Loader from "@tg/engine/Loader"
import * as Rings from "@tg/engine/Rings"
import * as StepProgram from "@tg/engine/StepProgram"
import { Jit, ownOf } from "@tg/jit/Jit"
import { piece } from "@tg/model-parts/Attention"
import { weightBuffers } from "@tg/model-parts/Decoder"
import * as Order from "@tg/model-parts/Order"
import { Device } from "@tg/runtime/Device"
import { assign, make } from "@tg/tensor/Program"
import { buffer, type Tensor, variable } from "@tg/tensor/Tensor"
import type { Store } from "@tg/tuner/Store"
import { Effect } from "effect"
import type * as Devices from "../../../src/Devices.ts"
import * as DeviceLayers from "../../../src/Devices.ts"
import { open } from "./open.ts"
import * as Oracle from "./oracle.ts"

/** Of llama.cpp's logits with activations of 8 bits, the RMS distance to its float logits, row by row. */
const distancesIn = (folder: string): Readonly<Record<string, Readonly<Record<string, ReadonlyArray<number>>>>> =>
  JSON.parse(readFileSync(new URL(`../../../../../test/vectors/${folder}/int8.json`, import.meta.url), "utf8"))
const llamaCpp = { ...distancesIn("oracle"), ...distancesIn("oracle-families") }

/**
 * Logits and, for each block with experts, the chosen ones, of all tokens of a run in one step, or in those that a cache that
 * forgets has room for: as few tokens are, or as a batch in tiles.
 */
const forward = Effect.fn("forward")(function*(name: Oracle.Name, tokens: ReadonlyArray<number>, order: Order.Order) {
  const device = yield* Device
  const source = Oracle.source(name)
  const model = yield* open(source)
  const { config, gguf, weights } = model
  const loaded = yield* Loader.load(
    source,
    weights.all.map(({ layout, name }) => ({ layout, tensor: gguf.tensorsByName.get(name)! }))
  )
  const arena = new Arena()
  const context = 192
  const storage = model.caches({ type: "f16", context })
  const steps = Rings.pieces(0, tokens.length, { chunk: tokens.length, ring: Rings.ringOf(storage) })
  const longest = Math.max(...steps.map(({ length }) => length))
  const most = order === "tokens" ? longest : Order.wholeTiles(longest)
  const tiles = variable(arena, "tiles", 1, Math.ceil(most / Order.tileTokens))
  const count = variable(arena, "T", 1, most)
  const length = order === "features" ? tiles.mul(Order.tileTokens) : steps.length === 1 ? most : count
  const ids = buffer(arena, 0, { shape: [most], dtype: DType.u32 })
  const { firstCache } = StepProgram.ids
  const caches = storage.map((each, i) => buffer(arena, firstCache + i, each))
  const firstWeight = firstCache + config.layers
  const firstResult = firstWeight + weights.all.length
  const { effects, experts, logits } = model.forward({
    activations: ActivationPolicy.activationsOn(device.profile, "int8"),
    buffers: weightBuffers(arena, weights, firstWeight),
    tokens: ids.slice(0, 0, length),
    startPos: variable(arena, "startPos", 0, context - 1),
    caches,
    ...StepProgram.hostInputs(arena, model, { context }),
    rows: "all",
    batch: order === "tokens" ? undefined : {
      tiles,
      count,
      keys: variable(arena, "pieces", 1, context / piece).mul(piece)
    },
    experts: "kept"
  })
  const words = (x: Tensor): number => Shape.maxElements(x.shape)
  const allocate = (count: number) => device.allocate(4 * count, "oracle")
  const results = [logits, ...experts]
  const outputs = results.map((x, i) =>
    buffer(arena, firstResult + i, { shape: [most, ...x.shape.slice(1)], dtype: x.dtype }).slice(0, 0, length)
  )
  const memory = yield* Effect.forEach(results, (x) => allocate(words(x)))
  const host = yield* HostInputs.tables(model, loaded, context)
  const given = yield* allocate(most)
  const program = make([...results.map((x, i) => assign(outputs[i]!, x)), ...effects])
  const prepared = yield* (yield* Jit).prepare(
    program.sink,
    new Map([
      [0, given],
      ...host.bound,
      ...(yield* Effect.forEach(caches, (c, i) => Effect.map(allocate(words(c)), (m) => [firstCache + i, m] as const))),
      ...weights.all.map((ref, i) => [firstWeight + i, loaded.get(ref.name)!] as const),
      ...memory.map((m, i) => [firstResult + i, m] as const)
    ])
  )
  const parts = yield* Effect.forEach(steps, ({ length, start }) =>
    Effect.gen(function*() {
      const positions = Array.from({ length: most }, (_, i) => start + i)
      yield* host.reach(start + most)
      yield* device.write(given, new Uint8Array(Uint32Array.from(positions, (at) => tokens[at] ?? 0).buffer))
      yield* prepared.run(ownOf(prepared, StepProgram.variablesOf(order, start, length)))
      return yield* Effect.forEach(memory, (m, i) => {
        const row = Number(results[i]!.shape.at(-1))
        return Effect.map(device.read(m), (b) => new Uint32Array(b.slice().buffer).slice(0, length * row))
      })
    }))
  const joined = results.map((_, i) => Uint32Array.from(parts.flatMap((part) => Array.from(part[i]!))))
  const [first, ...rest] = joined
  return { rows: Oracle.rowsOf([new Float32Array(first!.buffer)], config.vocabulary), experts: rest }
})

const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** The first positions of a run at which a block chose other experts than the reference. */
const flipped = (run: Oracle.Run, experts: ReadonlyArray<Uint32Array>, count: number): ReadonlySet<number> => {
  const expected = Object.values(run.experts ?? {})
  if (run.experts !== undefined) assert.strictEqual(experts.length, expected.length)
  const set = (ids: Iterable<number>): string => [...ids].toSorted((a, b) => a - b).join()
  return new Set(
    Array.from({ length: count }, (_, position) => position).filter((position) =>
      expected.some((block, i) => {
        const used = block[position]!.length
        return set(experts[i]!.subarray(position * used, (position + 1) * used)) !== set(block[position]!)
      })
    )
  )
}

/** What is compared of a run. */
export interface Comparison {
  readonly run: string
  readonly rows: number
  /** Median over the rows of the RMS distance to the float logits. */
  readonly rms: number
  /** The same of llama.cpp. */
  readonly llamaCpp: number
  /** Rows at whose position a block chose other experts than with floats. */
  readonly flips: number
  /** Those of them that are far off for it: more than 4 times the median. */
  readonly far: number
}

/** The RMS distances of rows at positions that a run has logits for. */
const distancesOf = (
  run: Oracle.Run,
  rows: ReadonlyArray<Float32Array>,
  positions = run.rows
): ReadonlyArray<number> => {
  const expected = Oracle.expectedOf(run)
  const vocabulary = expected.length / run.rows.length
  return positions.map((position, i) =>
    Oracle.distance(rows[position]!, expected.subarray(i * vocabulary, (i + 1) * vocabulary)).rms
  )
}

/** The runs of a model, or the first so many tokens of each. */
export const compare = (name: Oracle.Name, order: Order.Order, most = Infinity) =>
  Effect.forEach(Oracle.runsOf(name), (run) =>
    Effect.gen(function*() {
      const tokens = Oracle.tokensOf(run).slice(0, most)
      const { experts, rows } = yield* forward(name, tokens, order)
      const positions = run.rows.filter((position) => position < tokens.length)
      const distances = distancesOf(run, rows, positions)
      const rms = median(distances)
      const others = flipped(run, experts, tokens.length)
      const isFlipped = positions.map((position) => others.has(position))
      const comparison: Comparison = {
        run: run.name,
        rows: positions.length,
        rms,
        llamaCpp: median(llamaCpp[name]![run.name]!),
        flips: isFlipped.filter(Boolean).length,
        far: isFlipped.filter((flip, i) => flip && distances[i]! > 4 * rms).length
      }
      return comparison
    }).pipe(Effect.scoped))

/** The test of a model. */
export const test = (
  name: Oracle.Name,
  { device, order = "tokens", tokens }: {
    readonly device: Devices.Choice
    readonly order?: Order.Order
    readonly tokens?: number | undefined
  }
): void =>
  it.live(name, () =>
    Effect.gen(function*() {
      for (const { far, llamaCpp, rms, rows, run } of yield* compare(name, order, tokens)) {
        assert.isAtMost(rms, 1.25 * llamaCpp, `median RMS of ${run}`)
        // c05 has 26 routers with near ties: its choices flip at a quarter of the positions, and move the logits little
        assert.isAtMost(far, rows / 10, `rows of ${run} that are far off for other experts`)
      }
    }).pipe(Effect.provide(DeviceLayers.layer(device))))

/** A model that reads so many tokens at a time, each by itself: one with the kernels of decoding. */
export const isNear = (
  name: Oracle.Name,
  setting: { readonly device: Devices.Choice; readonly chunk: number; readonly store?: Store }
) =>
  Effect.gen(function*() {
    for (const run of Oracle.runsOf(name)) {
      const distances = distancesOf(run, yield* Oracle.logitsOf(Oracle.tokensOf(run)))
      assert.isAtMost(median(distances), 1.25 * median(llamaCpp[name]![run.name]!), `median RMS of ${run.name}`)
    }
  }).pipe(
    Effect.provide(Oracle.engine(name, { activations: "int8", batchFrom: Infinity, cache: "f16", ...setting }))
  )

/** The test of decoding. */
export const testDecoding = (
  name: Oracle.Name,
  { device }: { readonly device: Devices.Choice }
): void => it.live(`${name}, token by token`, () => isNear(name, { device, chunk: 1 }))
