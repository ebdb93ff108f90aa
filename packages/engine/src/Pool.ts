/** A pool of pages on a device, and steps that take tokens of several conversations whose caches are in it. */
import type { CacheType } from "@tg/model-parts/Halves"
import { Jit, type JitError } from "@tg/jit/Jit"
import type { Activations } from "@tg/model-parts/Product"
import { Device, type DeviceBuffer, type DeviceError } from "@tg/runtime/Device"
import { Effect, Scope } from "effect"
import * as HostInputs from "./HostInputs.ts"
import type { ModelFile } from "./ModelFile.ts"
import { type PageCopy, pageTokens } from "./Pages.ts"
import { piecesOf, placeIds, poolProgram, type PoolShape } from "./PoolProgram.ts"
import { ids } from "./StepProgram.ts"
import { floatsOf } from "./Words.ts"

/** Tokens of one conversation in a step. */
export interface Entry {
  readonly tokens: ReadonlyArray<number>
  /** Position of the first. */
  readonly start: number
  /** The pages of its conversation, these tokens included. */
  readonly pages: ReadonlyArray<number>
  /** Behind how many of the last tokens logits are wanted. */
  readonly rows: number
}

/** How to make a pool. */
export interface PoolOptions {
  readonly activations: Activations
  readonly cache: CacheType
  /** Tokens that a conversation may have. */
  readonly context: number
  readonly pages: number
  /** Tokens of a step that have a program of their own, rising; where there are none, one program takes up to `tokens`. */
  readonly sizes: ReadonlyArray<number>
  /** Tokens of a step at most. */
  readonly tokens: number
}

/** A pool on a device. */
export interface Pool {
  readonly options: PoolOptions
  /** The logits that entries want, one behind the other. Entries have `options.tokens` tokens at most together. */
  readonly run: (entries: ReadonlyArray<Entry>) => Effect.Effect<Float32Array, JitError | DeviceError>
  /** Copies pages, one after the other. */
  readonly copy: (copies: ReadonlyArray<PageCopy>) => Effect.Effect<void, DeviceError>
  /** Empties pages: rows with NaN would make NaN of whoever has the page next. */
  readonly clear: (pages: ReadonlyArray<number>) => Effect.Effect<void, DeviceError>
  /** Compiles what steps of so many tokens run. */
  readonly prepare: (tokens: number) => Effect.Effect<void, JitError | DeviceError>
}

/** Numbers of a step as they go to the device. */
interface Numbers {
  readonly tokens: Uint32Array
  readonly position: Int32Array
  readonly row: Int32Array
  readonly pieces: Int32Array
  readonly wanted: Int32Array
}

/** Where the tokens of entries stand; what a step of `size` tokens has more repeats the last one. */
const numbersOf = (entries: ReadonlyArray<Entry>, size: number | undefined, columns: number): Numbers => {
  const count = entries.reduce((n, { tokens }) => n + tokens.length, 0)
  const length = size ?? count
  const made = {
    tokens: new Uint32Array(length),
    position: new Int32Array(length),
    row: new Int32Array(length),
    pieces: new Int32Array(length * columns)
  }
  const wanted: Array<number> = []
  let at = 0
  for (const { pages, rows, start, tokens } of entries) {
    for (const [i, id] of tokens.entries()) {
      const position = start + i
      made.tokens[at] = id
      made.position[at] = position
      made.row[at] = pages[Math.floor(position / pageTokens)]! * pageTokens + position % pageTokens
      made.pieces.set(pages, at * columns)
      if (i >= tokens.length - rows) wanted.push(at)
      at++
    }
  }
  for (; at < length; at++) {
    made.tokens[at] = made.tokens[at - 1]!
    made.position[at] = made.position[at - 1]!
    made.row[at] = made.row[at - 1]!
    made.pieces.copyWithin(at * columns, (at - 1) * columns, at * columns)
  }
  return { ...made, wanted: Int32Array.from({ length: size ?? Math.max(1, wanted.length) }, (_, i) => wanted[i] ?? 0) }
}

const bytesOf = (words: Int32Array | Uint32Array): Uint8Array =>
  new Uint8Array(words.buffer, words.byteOffset, words.byteLength)

/** A pool for a model whose weights are, or will be, in these buffers. Its memory belongs to the Scope. */
export const make: (
  model: ModelFile,
  weights: ReadonlyMap<string, DeviceBuffer>,
  options: PoolOptions
) => Effect.Effect<Pool, DeviceError, Device | Jit | Scope.Scope> = Effect.fn("Pool.make")(
  function*(model, weights, options) {
    const device = yield* Device
    const jit = yield* Jit
    const scope = yield* Effect.scope
    const { activations, cache, context, pages, sizes, tokens: most } = options
    const { config } = model
    const columns = piecesOf(context)
    const numbers = (count: number, label: string) => device.allocate(4 * count, label)
    const storage = model.caches({ type: cache, context: pageTokens * pages })
    const pageBytes = storage.map(({ shape }) => 4 * pageTokens * Number(shape[1]))
    const caches = yield* Effect.forEach(pageBytes, (bytes, i) => device.allocate(bytes * pages, `cache_${i}`))
    const spare = yield* device.allocate(Math.max(...pageBytes), "page")
    const buffers = {
      tokens: yield* numbers(most, "tokens"),
      position: yield* numbers(most, "position"),
      row: yield* numbers(most, "row"),
      pieces: yield* numbers(most * columns, "pieces"),
      wanted: yield* numbers(most, "wanted")
    }
    const inputs = yield* HostInputs.make(model, weights, most)
    const logits = yield* numbers(most * config.vocabulary, "logits")
    const bound = [
      [ids.tokens, buffers.tokens],
      [placeIds.position, buffers.position],
      [placeIds.row, buffers.row],
      [placeIds.pieces, buffers.pieces],
      [placeIds.wanted, buffers.wanted],
      [ids.logits, logits],
      ...inputs.bound,
      ...caches.map((buffer, i) => [ids.firstCache + i, buffer] as const),
      ...model.weights.all.map((ref, i) => [ids.firstCache + config.layers + i, weights.get(ref.name)!] as const)
    ] as const
    const compile = Effect.fnUntraced(function*(size: number | undefined) {
      const shape: PoolShape = {
        activations,
        cache,
        context,
        pieces: pages,
        tokens: size ?? most,
        rows: size ?? most,
        isWhole: size !== undefined
      }
      return yield* jit.prepare(poolProgram(model, shape).sink, new Map(bound))
    })
    const compiled = new Map<number | undefined, Effect.Effect<Effect.Success<ReturnType<typeof compile>>, JitError>>()
    const programOf = Effect.fnUntraced(function*(count: number) {
      const size = sizes.find((each) => each >= count)
      const made = compiled.get(size) ?? (yield* Effect.cached(Scope.provide(compile(size), scope)))
      compiled.set(size, made)
      return { size, prepared: yield* made }
    })

    return {
      options,
      run: Effect.fn("Pool.run")(function*(entries) {
        const count = entries.reduce((n, { tokens }) => n + tokens.length, 0)
        const rows = entries.reduce((n, entry) => n + entry.rows, 0)
        const { prepared, size } = yield* programOf(count)
        const made = numbersOf(entries, size, columns)
        for (const name of ["tokens", "position", "row", "pieces", "wanted"] as const) {
          yield* device.write(buffers[name], bytesOf(made[name]))
        }
        yield* inputs.write([...made.position])
        const needed = entries.reduce((n, { start, tokens }) => Math.max(n, piecesOf(start + tokens.length)), 1)
        const vars = { T: count, R: Math.max(1, rows), pieces: needed }
        yield* prepared.run(size === undefined ? vars : { pieces: needed })
        if (rows === 0) return new Float32Array(0)
        return floatsOf(yield* device.read(logits, 0, 4 * rows * config.vocabulary))
      }),
      // between different buffers only
      copy: (copies) =>
        Effect.forEach(copies, ({ from, to }) =>
          device.copy(caches.flatMap((buffer, i) => {
            const bytes = pageBytes[i]!
            return [
              { from: buffer, fromOffset: from * bytes, to: spare, toOffset: 0, bytes },
              { from: spare, fromOffset: 0, to: buffer, toOffset: to * bytes, bytes }
            ]
          })), { discard: true }),
      clear: (cleared) =>
        Effect.forEach(
          cleared,
          (page) =>
            Effect.forEach(caches, (buffer, i) =>
              device.write(buffer, new Uint8Array(pageBytes[i]!), page * pageBytes[i]!), { discard: true }),
          {
            discard: true
          }
        ),
      prepare: (tokens) => Effect.asVoid(programOf(tokens))
    }
  }
)
