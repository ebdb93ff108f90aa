/** A pool of pages on a device, and steps that take tokens of several conversations whose caches are in it. */
import type { CacheType } from "@tg/model-parts/Halves"
import { Jit, type JitError, ownOf, type Prepared } from "@tg/jit/Jit"
import type { Attend } from "@tg/model-parts/Attention"
import * as Order from "@tg/model-parts/Order"
import type { Activations } from "@tg/model-parts/Product"
import { type Binding, Device, type DeviceError } from "@tg/runtime/Device"
import type { TensorProgram } from "@tg/tensor/Program"
import { Effect, Scope } from "effect"
import * as DrawRows from "./DrawRows.ts"
import type { RowDraw } from "./DrawRows.ts"
import * as HostInputs from "./HostInputs.ts"
import type * as Loader from "./Loader.ts"
import type { ModelFile } from "./ModelFile.ts"
import { type PageCopy, pagesFor, pageTokens } from "./Pages.ts"
import { batchProgram, type Draws, placeIds, poolProgram } from "./PoolProgram.ts"
import { attendOf, type AttendPolicy, type Piece } from "./Prompts.ts"
import { ids } from "./StepProgram.ts"
import { bytesOf, floatsOf, wordsOf } from "./Words.ts"

/** Tokens of one conversation in a step. */
export interface Entry {
  readonly tokens: ReadonlyArray<number>
  /** Position of the first. */
  readonly start: number
  /** The pages of its conversation, these tokens included. */
  readonly pages: ReadonlyArray<number>
  /** Behind how many of the last tokens logits are wanted. */
  readonly rows: number
  /** Where the token behind the last one is wanted in place of logits, how it is drawn; then `rows` is 1. */
  readonly draw?: RowDraw | undefined
}

/** What a step leaves. */
export interface Found {
  /** Of the entries that want logits, one behind the other. */
  readonly logits: Float32Array
  /** Of each entry that wants a token; the vocabulary or more where its logits are no distribution. */
  readonly tokens: Uint32Array
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
  /** Whether the device draws the tokens that entries want. */
  readonly draws: Draws
  /** Tokens of a prompt's batch at most, and to what they attend; where there are no batches, nothing. */
  readonly batch: { readonly tokens: number; readonly attend: AttendPolicy } | undefined
}

/** A pool on a device. */
export interface Pool {
  readonly options: PoolOptions
  /** What entries want. They have `options.tokens` tokens at most together. */
  readonly run: (entries: ReadonlyArray<Entry>) => Effect.Effect<Found, JitError | DeviceError>
  /** The same of many tokens of one conversation, `options.batch.tokens` at most, and no row but the last. */
  readonly batch: (entry: Entry) => Effect.Effect<Found, JitError | DeviceError>
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
  /** The pages of each token's conversation, or of the one that all are of. */
  readonly pieces: Int32Array
  readonly wanted: Int32Array
}

/** Where the tokens of entries stand; what a step of `length` tokens has more repeats the last one. */
const standing = (entries: ReadonlyArray<Entry>, length: number): Pick<Numbers, "position" | "row" | "tokens"> => {
  const made = { tokens: new Uint32Array(length), position: new Int32Array(length), row: new Int32Array(length) }
  let at = 0
  for (const { pages, start, tokens } of entries) {
    for (const [i, id] of tokens.entries()) {
      const position = start + i
      made.tokens[at] = id
      made.position[at] = position
      made.row[at++] = pages[Math.floor(position / pageTokens)]! * pageTokens + position % pageTokens
    }
  }
  for (const numbers of [made.tokens, made.position, made.row]) numbers.fill(numbers[at - 1]!, at)
  return made
}

const countOf = (entries: ReadonlyArray<Entry>): number => entries.reduce((n, { tokens }) => n + tokens.length, 0)

/** The numbers of a step of a few tokens. */
const numbersOf = (entries: ReadonlyArray<Entry>, size: number | undefined, columns: number): Numbers => {
  const count = countOf(entries)
  const length = size ?? count
  const pieces = new Int32Array(length * columns)
  const wanted: Array<number> = []
  let at = 0
  for (const { pages, rows, tokens } of entries) {
    for (let i = 0; i < tokens.length; i++, at++) {
      pieces.set(pages, at * columns)
      if (i >= tokens.length - rows) wanted.push(at)
    }
  }
  for (; at < length; at++) pieces.copyWithin(at * columns, (at - 1) * columns, at * columns)
  return {
    ...standing(entries, length),
    pieces,
    wanted: Int32Array.from({ length: size ?? Math.max(1, wanted.length) }, (_, i) => wanted[i] ?? 0)
  }
}

/** Tokens that steps have room for. */
export const heldTokens = ({ batch, tokens }: PoolOptions): number =>
  Math.max(tokens, batch === undefined ? 0 : Order.wholeTiles(batch.tokens))

/** What a pool has on its device. */
const storageOf = Effect.fnUntraced(
  function*(model: ModelFile, weights: Loader.Tensors, options: PoolOptions) {
    const device = yield* Device
    const { cache, context, pages, tokens: most } = options
    const { config } = model
    const numbers = (count: number, label: string) => device.allocate(4 * count, label)
    const storage = model.caches({ type: cache, context: pageTokens * pages })
    const pageBytes = storage.map(({ shape }) => 4 * pageTokens * Number(shape[1]))
    const caches = yield* Effect.forEach(pageBytes, (bytes, i) => device.allocate(bytes * pages, `cache_${i}`))
    const held = heldTokens(options)
    const steps = {
      tokens: yield* numbers(held, "tokens"),
      position: yield* numbers(held, "position"),
      row: yield* numbers(held, "row"),
      pieces: yield* numbers(most * pagesFor(context), "pieces"),
      wanted: yield* numbers(most, "wanted")
    }
    const inputs = yield* HostInputs.make(model, weights, held)
    const logits = yield* numbers(most * config.vocabulary, "logits")
    const drawn = yield* numbers(most, "next")
    const bound = new Map<number, Binding>([
      [ids.tokens, steps.tokens],
      [placeIds.position, steps.position],
      [placeIds.row, steps.row],
      [placeIds.pieces, steps.pieces],
      [placeIds.wanted, steps.wanted],
      [ids.logits, logits],
      [ids.next, drawn],
      ...inputs.bound,
      ...caches.map((buffer, i) => [ids.firstCache + i, buffer] as const),
      ...model.weights.all.map((ref, i) => [ids.firstCache + config.layers + i, weights.get(ref.name)!] as const)
    ])
    return { caches, pageBytes, steps, inputs, logits, drawn, bound }
  }
)

type Storage = Effect.Success<ReturnType<typeof storageOf>>

/** The programs of a pool, each compiled when a step first needs it. */
const programsOf = Effect.fnUntraced(function*(model: ModelFile, { bound }: Storage, options: PoolOptions) {
  const jit = yield* Jit
  const { profile } = yield* Device
  const scope = yield* Effect.scope
  const { batch, pages, sizes, tokens: most, ...others } = options
  const shape = { ...others, pieces: pages, profile }
  const made = new Map<number | Attend | undefined, Prepared>()
  const once = Effect.fnUntraced(function*(name: number | Attend | undefined, program: () => TensorProgram) {
    const prepared = made.get(name) ??
      (yield* Effect.suspend(() => jit.prepare(program().sink, bound)).pipe(Scope.provide(scope)))
    made.set(name, prepared)
    return prepared
  })
  return {
    few: (tokens: number) => {
      const size = sizes.find((each) => each >= tokens)
      const own = { tokens: size ?? most, rows: size ?? most, isWhole: size !== undefined }
      return Effect.map(
        once(size, () => poolProgram(model, { ...shape, ...own })),
        (prepared) => ({ size, prepared })
      )
    },
    batch: (piece: Piece) => {
      const { attend: policy, tokens } = batch!
      const attend = attendOf({ model, profile, prompts: { attend: policy } }, piece)
      return once(attend, () => batchProgram(model, { ...shape, attend, tokens }))
    }
  }
})

/** Copies of pages, which go through a page of their own: a device copies between different buffers. */
const copyOf = Effect.fnUntraced(function*({ caches, pageBytes }: Storage) {
  const device = yield* Device
  const spare = yield* device.allocate(Math.max(...pageBytes), "page")
  return (copies: ReadonlyArray<PageCopy>) =>
    Effect.forEach(copies, ({ from, to }) =>
      device.copy(caches.flatMap((buffer, i) => {
        const bytes = pageBytes[i]!
        return [
          { from: buffer, fromOffset: from * bytes, to: spare, toOffset: 0, bytes },
          { from: spare, fromOffset: 0, to: buffer, toOffset: to * bytes, bytes }
        ]
      })), { discard: true })
})

/** Neighbouring rows of logits that entries want, in their order; a row whose token is drawn is not read. */
const rangesOf = (entries: ReadonlyArray<Entry>): ReadonlyArray<{ readonly first: number; readonly rows: number }> => {
  const found: Array<{ first: number; rows: number }> = []
  let at = 0
  for (const { draw, rows } of entries) {
    const last = found.at(-1)
    if (draw === undefined && last !== undefined && last.first + last.rows === at) last.rows += rows
    else if (draw === undefined && rows > 0) found.push({ first: at, rows })
    at += rows
  }
  return found
}

/** Draws what entries want, and reads what they want. */
const resultsOf = Effect.fnUntraced(function*(model: ModelFile, { drawn, logits }: Storage, options: PoolOptions) {
  const device = yield* Device
  const settle = (yield* Jit).settle ?? Effect.void
  const { vocabulary } = model.config
  const draw = options.draws === "host"
    ? undefined
    : yield* DrawRows.make({ logits, tokens: drawn, vocabulary, most: options.tokens })
  const rowBytes = 4 * vocabulary
  const logitsOf = Effect.fnUntraced(function*(entries: ReadonlyArray<Entry>) {
    const ranges = rangesOf(entries)
    const read = yield* Effect.forEach(
      ranges,
      ({ first, rows }) => Effect.map(device.read(logits, first * rowBytes, rows * rowBytes), floatsOf),
      { concurrency: "unbounded" }
    )
    if (read.length < 2) return read[0] ?? new Float32Array(0)
    const all = new Float32Array(ranges.reduce((n, { rows }) => n + rows * vocabulary, 0))
    read.reduce((at, values) => (all.set(values, at), at + values.length), 0)
    return all
  })
  return Effect.fnUntraced(function*(entries: ReadonlyArray<Entry>): Effect.fn.Return<Found, JitError | DeviceError> {
    const rows = entries.flatMap(({ draw, rows }) => Array.from({ length: rows }, () => draw))
    const isDrawn = rows.some((row) => row !== undefined)
    if (rows.some((row) => row !== undefined && !DrawRows.isPlain(row))) yield* draw!(rows)
    // one round trip for all of it
    const [found, ids] = yield* Effect.all([
      logitsOf(entries),
      isDrawn ? Effect.map(device.read(drawn, 0, 4 * rows.length), wordsOf) : Effect.succeed(new Uint32Array(0)),
      settle
    ], { concurrency: 3 })
    return { logits: found, tokens: ids.filter((_, i) => rows[i] !== undefined) }
  })
})

/** A pool for a model whose weights are, or will be, in these buffers. Its memory belongs to the Scope. */
export const make: (
  model: ModelFile,
  weights: Loader.Tensors,
  options: PoolOptions
) => Effect.Effect<Pool, DeviceError, Device | Jit | Scope.Scope> = Effect.fn("Pool.make")(
  function*(model, weights, options) {
    const device = yield* Device
    const storage = yield* storageOf(model, weights, options)
    const { caches, inputs, pageBytes, steps } = storage
    const programs = yield* programsOf(model, storage, options)
    const results = yield* resultsOf(model, storage, options)
    const columns = pagesFor(options.context)
    const write = Effect.fnUntraced(function*(numbers: Partial<Numbers> & Pick<Numbers, "position">) {
      for (const name of ["tokens", "position", "row", "pieces", "wanted"] as const) {
        const own = numbers[name]
        if (own !== undefined) yield* device.write(steps[name], bytesOf(own))
      }
      yield* inputs.write([...numbers.position])
    })
    const run = Effect.fn("Pool.run")(function*(entries: ReadonlyArray<Entry>) {
      const count = countOf(entries)
      const rows = entries.reduce((n, entry) => n + entry.rows, 0)
      const { prepared, size } = yield* programs.few(count)
      yield* write(numbersOf(entries, size, columns))
      const pieces = Math.max(...entries.map(({ start, tokens }) => pagesFor(start + tokens.length)))
      yield* prepared.run(ownOf(prepared, { T: count, R: Math.max(1, rows), pieces }))
      return yield* results(entries)
    })
    const batch = Effect.fn("Pool.batch")(function*(entry: Entry) {
      const { pages, start, tokens } = entry
      const prepared = yield* programs.batch({ start, length: tokens.length })
      const tiles = Order.wholeTiles(tokens.length) / Order.tileTokens
      yield* write({ ...standing([entry], tiles * Order.tileTokens), pieces: Int32Array.from(pages) })
      yield* prepared.run({ T: tokens.length, tiles, pieces: pagesFor(start + tokens.length) })
      return yield* results([entry])
    })
    const clear = (page: number) =>
      Effect.forEach(caches, (buffer, i) => {
        const bytes = pageBytes[i]!
        return device.write(buffer, new Uint8Array(bytes), page * bytes)
      }, { discard: true })
    return {
      options,
      run,
      batch,
      copy: yield* copyOf(storage),
      clear: (pages) => Effect.forEach(pages, clear, { discard: true }),
      prepare: (tokens) => Effect.asVoid(programs.few(tokens))
    }
  }
)
