/** A pool of pages on a device, and steps that take tokens of several conversations whose caches are in it. */
import type { CacheType } from "@tg/model-parts/Halves"
import { Jit, type JitError, ownOf, type Prepared, settled } from "@tg/jit/Jit"
import type { Model, Storage } from "@tg/model-parts/Family"
import * as Order from "@tg/model-parts/Order"
import type { Activations } from "@tg/model-parts/Product"
import { type Binding, Device, type DeviceError, type Span, type Vars, type Work } from "@tg/runtime/Device"
import { Effect, Fiber, Result, type Scope } from "effect"
import * as DrawRows from "./DrawRows.ts"
import type { RowDraw } from "./DrawRows.ts"
import * as HostInputs from "./HostInputs.ts"
import type * as Loader from "./Loader.ts"
import type { ModelFile } from "./ModelFile.ts"
import { type PageCopy, pagesFor, pageTokens } from "./Pages.ts"
import * as PoolPrediction from "./PoolPrediction.ts"
import { batchProgram, type Draws, placeIds, poolProgram, statesOf } from "./PoolProgram.ts"
import { prepared } from "./Prepared.ts"
import { ids } from "./StepProgram.ts"
import * as TokenRing from "./TokenRing.ts"
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
  /** Where tokens are wanted in place of logits, how that behind the last one is drawn; those in front of it in the same way, each for its place. */
  readonly draw?: RowDraw | undefined
  /** Where the entry's one token is drawn by a step under way: which of its tokens it is. The host's token is then not looked at. */
  readonly from?: TokenRing.Drawn | undefined
}

/** A step that was submitted. */
export interface Flight {
  /** Its number, counted from 0. */
  readonly step: number
  /** Waits for what it leaves. */
  readonly found: Effect.Effect<Found, DeviceError>
}

/** What a step leaves. */
export interface Found {
  /** Of the entries that want logits, one behind the other. */
  readonly logits: Float32Array
  /** Of the entries that want tokens, one behind the other; the vocabulary or more where logits are no distribution. */
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
  /** Whether the model's prediction block guesses for conversations: its weights are among the loaded ones. It does not, if it is not said. */
  readonly predicts?: boolean | undefined
  /** Tokens of prompts' batches at most, and rows of logits at most; where there are no batches, nothing. */
  readonly batch: { readonly tokens: number; readonly rows: number } | undefined
}

/** A pool on a device. */
export interface Pool {
  readonly options: PoolOptions
  /** Submits a step that leaves what entries want; at most `mostAhead` are under way. Entries have `options.tokens` tokens at most together. */
  readonly run: (entries: ReadonlyArray<Entry>) => Effect.Effect<Flight, JitError | DeviceError>
  /** The same of many tokens, `options.batch.tokens` and `rows` at most, whose pages together are no more than those of a whole context. */
  readonly batch: (entries: ReadonlyArray<Entry>) => Effect.Effect<Flight, JitError | DeviceError>
  /** Copies pages, one after the other. */
  readonly copy: (copies: ReadonlyArray<PageCopy>) => Effect.Effect<void, DeviceError>
  /** Empties pages: rows with NaN would make NaN of whoever has the page next. */
  readonly clear: (pages: ReadonlyArray<number>) => Effect.Effect<void, DeviceError>
  /**
   * So many tokens that the prediction block guesses behind each of the texts, all of whose tokens but the last are computed, and whose pages have
   * room for the guesses; nothing where it is not loaded.
   */
  readonly predict?: PoolPrediction.PoolPrediction["predict"] | undefined
  /** Compiles what steps of so many tokens run. */
  readonly prepare: (tokens: number) => Effect.Effect<Prepared, JitError | DeviceError>
}

/** Numbers of a step as they go to the device. */
interface Numbers {
  readonly tokens: Uint32Array
  readonly position: Int32Array
  readonly row: Int32Array
  /** The pages of each token's conversation; in a batch those of all conversations behind one another. */
  readonly pieces: Int32Array
  readonly wanted: Int32Array
  /** Where each token lies in the ring. */
  readonly from: Int32Array
  /** In a batch: where each token stands among the rows of its pages, and where those of its conversation begin. */
  readonly among: Int32Array
  readonly begin: Int32Array
}

/** What each of these is called. */
const names = ["tokens", "position", "row", "pieces", "wanted", "from", "among", "begin"] as const

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

/** The numbers of the tokens whose logits are wanted, as many as the program takes; where it takes any number, at least one. */
const wantedOf = (wanted: ReadonlyArray<number>, rows: number | undefined): Int32Array =>
  Int32Array.from({ length: rows ?? Math.max(1, wanted.length) }, (_, i) => wanted[i] ?? 0)

/** The numbers of a batch of so many tokens, those included that only fill up. */
const batchNumbersOf = (
  entries: ReadonlyArray<Entry>,
  { length, rows }: { readonly length: number; readonly rows: number | undefined }
): Omit<Numbers, "from"> => {
  const among = new Int32Array(length)
  const begin = new Int32Array(length)
  const pieces: Array<number> = []
  const wanted: Array<number> = []
  let at = 0
  for (const { pages, rows, start, tokens } of entries) {
    const first = pieces.length * pageTokens
    pieces.push(...pages.slice(0, pagesFor(start + tokens.length)))
    for (let i = 0; i < tokens.length; i++, at++) {
      among[at] = first + start + i
      begin[at] = first
      if (i >= tokens.length - rows) wanted.push(at)
    }
  }
  for (const numbers of [among, begin]) numbers.fill(numbers[at - 1]!, at)
  return {
    ...standing(entries, length),
    among,
    begin,
    pieces: Int32Array.from(pieces),
    wanted: wantedOf(wanted, rows)
  }
}

/** The numbers of a step of a few tokens. */
const numbersOf = (
  entries: ReadonlyArray<Entry>,
  { columns, ring, size }: {
    readonly size: number | undefined
    readonly columns: number
    readonly ring: TokenRing.TokenRing
  }
): Omit<Numbers, "among" | "begin"> => {
  const count = countOf(entries)
  const length = size ?? count
  const pieces = new Int32Array(length * columns)
  const from = new Int32Array(length)
  const wanted: Array<number> = []
  let at = 0
  for (const { from: drawn, pages, rows, tokens } of entries) {
    for (let i = 0; i < tokens.length; i++, at++) {
      pieces.set(pages, at * columns)
      from[at] = drawn === undefined ? at : TokenRing.placeOf(ring, drawn.step) + drawn.row
      if (i >= tokens.length - rows) wanted.push(at)
    }
  }
  from.fill(from[at - 1]!, at)
  for (; at < length; at++) pieces.copyWithin(at * columns, (at - 1) * columns, at * columns)
  return {
    ...standing(entries, length),
    pieces,
    from,
    wanted: wantedOf(wanted, size)
  }
}

/** Tokens that steps have room for. */
export const heldTokens = ({ batch, tokens }: Pick<PoolOptions, "batch" | "tokens">): number =>
  Math.max(tokens, batch === undefined ? 0 : Order.wholeTiles(batch.tokens))

/** Where the tokens of its steps lie. */
export const ringOf = (options: Pick<PoolOptions, "batch" | "draws" | "tokens">): TokenRing.TokenRing => ({
  given: heldTokens(options),
  each: options.draws === "host" ? 0 : options.tokens
})

/** What lies in pages: the cache of each block, and where its prediction block guesses, the model's states and that block's cache. */
export const storedIn = (
  model: Pick<Model, "caches" | "config" | "prediction">,
  { cache, pages, predicts = false }: Pick<PoolOptions, "cache" | "pages" | "predicts">
): ReadonlyArray<Storage> => {
  const size = { type: cache, context: pageTokens * pages }
  const caches = model.caches(size)
  return predicts
    ? [...caches, statesOf(model.config, { cache, pieces: pages }), Result.getOrThrow(model.prediction!).cache(size)]
    : caches
}

/** What a pool has on its device. */
const poolStorage = Effect.fnUntraced(
  function*(model: ModelFile, weights: Loader.Tensors, options: PoolOptions) {
    const device = yield* Device
    const { context, pages, tokens: most } = options
    const { config } = model
    const numbers = (count: number, label: string) => device.allocate(4 * count, label)
    const { predicts = false } = options
    const storage = storedIn(model, options)
    const pageBytes = storage.map(({ shape }) => 4 * pageTokens * Number(shape[1]))
    const caches = yield* Effect.forEach(
      pageBytes,
      (bytes, i) =>
        device.allocate(bytes * pages, i < config.layers ? `cache_${i}` : i === config.layers ? "states" : "cache_mtp")
    )
    const held = heldTokens(options)
    const ring = ringOf(options)
    const steps = {
      tokens: yield* numbers(TokenRing.size(ring), "tokens"),
      position: yield* numbers(held, "position"),
      row: yield* numbers(held, "row"),
      pieces: yield* numbers(most * pagesFor(context), "pieces"),
      wanted: yield* numbers(most, "wanted"),
      from: yield* numbers(most, "from"),
      among: yield* numbers(held, "among"),
      begin: yield* numbers(held, "begin")
    }
    const inputs = yield* HostInputs.tables(model, weights, context)
    const logits = yield* numbers(most * config.vocabulary, "logits")
    const bound = new Map<number, Binding>([
      [ids.tokens, steps.tokens],
      [placeIds.position, steps.position],
      [placeIds.row, steps.row],
      [placeIds.pieces, steps.pieces],
      [placeIds.wanted, steps.wanted],
      [placeIds.from, steps.from],
      [placeIds.among, steps.among],
      [placeIds.begin, steps.begin],
      [ids.logits, logits],
      ...inputs.bound,
      ...caches.slice(0, config.layers).map((buffer, i) => [ids.firstCache + i, buffer] as const),
      ...predicts ? [[ids.states, caches[config.layers]!] as const] : [],
      ...model.weights.all.map((ref, i) => [ids.firstCache + config.layers + i, weights.get(ref.name)!] as const)
    ])
    return { caches, pageBytes, steps, ring, inputs, logits, bound }
  }
)

type PoolStorage = Effect.Success<ReturnType<typeof poolStorage>>

/** The programs of a pool, each compiled when a step first needs it. */
const programsOf = Effect.fnUntraced(function*(model: ModelFile, { bound, ring }: PoolStorage, options: PoolOptions) {
  const { profile } = yield* Device
  const { batch, pages, predicts: states, sizes, tokens: most, ...others } = options
  const shape = { ...others, pieces: pages, profile, ring, states }
  const once = yield* prepared(bound)
  return {
    few: (tokens: number) => {
      const size = sizes.find((each) => each >= tokens)
      const own = { tokens: size ?? most, rows: size ?? most, isWhole: size !== undefined }
      return Effect.map(
        once(`few ${size}`, () => poolProgram(model, { ...shape, ...own })),
        (prepared) => ({ size, prepared })
      )
    },
    batch: Effect.suspend(() =>
      once("batch", () => batchProgram(model, { ...shape, ...batch!, isWhole: sizes.length > 0 }))
    )
  }
})

/** Copies of pages, which go through a page of their own: a device copies between different buffers. */
const copyOf = Effect.fnUntraced(function*({ caches, pageBytes }: PoolStorage) {
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

/** What is to be read of a step that has run. */
interface Reads {
  readonly spans: ReadonlyArray<Span>
  /** What the step leaves, of what was read. */
  readonly found: (read: ReadonlyArray<Uint8Array>) => Found
}

/** The parts as one array. */
const joined = (parts: ReadonlyArray<Float32Array>): Float32Array => {
  const [first = new Float32Array(0)] = parts
  if (parts.length < 2) return first
  const all = new Float32Array(parts.reduce((n, { length }) => n + length, 0))
  parts.reduce((at, values) => (all.set(values, at), at + values.length), 0)
  return all
}

/** The rows that entries want, in their order, each with how it is drawn. */
const rowsOf = (entries: ReadonlyArray<Entry>): ReadonlyArray<RowDraw | undefined> =>
  entries.flatMap(({ draw, rows }) =>
    Array.from({ length: rows }, (_, i) => draw && { ...draw, position: draw.position - (rows - 1 - i) })
  )

/** What entries want of a step. */
const readsOf = (
  { logits, ring, steps: { tokens } }: PoolStorage,
  { entries, step, vocabulary }: {
    readonly entries: ReadonlyArray<Entry>
    readonly step: number
    readonly vocabulary: number
  }
): Reads => {
  const rows = rowsOf(entries)
  const isDrawn = rows.some((row) => row !== undefined)
  const place = 4 * TokenRing.placeOf(ring, step)
  const ranges = rangesOf(entries).map(({ first, rows }): Span => ({
    buffer: logits,
    offset: 4 * first * vocabulary,
    bytes: 4 * rows * vocabulary
  }))
  // a word at least: whoever waits for a step waits until it has run
  const words = isDrawn ? rows.length : ranges.length === 0 ? 1 : 0
  const drawn = words === 0 ? [] : [{ buffer: tokens, offset: isDrawn ? place : 0, bytes: 4 * words }]
  return {
    spans: [...ranges, ...drawn],
    found: (read) => ({
      logits: joined(read.slice(0, ranges.length).map(floatsOf)),
      tokens: isDrawn ? wordsOf(read[ranges.length]!).filter((_, i) => rows[i] !== undefined) : new Uint32Array(0)
    })
  }
}

/** Submits a step and the draws of what entries want, and reads what they want, all of it in one round trip. */
const submitting = Effect.fnUntraced(function*(model: ModelFile, storage: PoolStorage, options: PoolOptions) {
  const device = yield* Device
  const scope = yield* Effect.scope
  const jit = yield* Jit
  const { vocabulary } = model.config
  const { logits, ring, steps: { tokens } } = storage
  const draw = options.draws === "host"
    ? undefined
    : yield* DrawRows.make({ logits, tokens, ring, vocabulary, most: options.tokens })
  let next = 0
  return Effect.fnUntraced(function*(
    { prepared, vars }: { readonly prepared: Prepared; readonly vars: Vars },
    entries: ReadonlyArray<Entry>
  ): Effect.fn.Return<Flight, JitError | DeviceError> {
    const step = next++
    const rows = rowsOf(entries)
    const work: Array<Work> = [
      { replay: prepared, vars: ownOf(prepared, { ...vars, drawn: TokenRing.placeOf(ring, step) }) }
    ]
    if (rows.some((row) => row !== undefined && !DrawRows.isPlain(row))) work.push(yield* draw!(rows, step))
    const { found, spans } = readsOf(storage, { entries, step, vocabulary })
    const ran = Effect.map(settled({ device, jit }, [...work, ...spans]), found)
    // submitted at once: what comes next stands behind it
    const fiber = yield* Effect.forkIn(ran, scope, { startImmediately: true })
    return { step, found: Fiber.join(fiber) }
  })
})

/** Writes the numbers of steps where they are not those of the step before. */
const writing = Effect.fnUntraced(function*({ inputs, steps }: PoolStorage) {
  const device = yield* Device
  const there = new Map<keyof Numbers, Numbers[keyof Numbers]>()
  const isThere = (name: keyof Numbers, own: Numbers[keyof Numbers]): boolean => {
    const known = there.get(name)
    return known !== undefined && known.length === own.length && known.every((value, i) => value === own[i])
  }
  return Effect.fnUntraced(function*(numbers: Partial<Numbers> & Pick<Numbers, "position">) {
    for (const name of names) {
      const own = numbers[name]
      if (own === undefined || isThere(name, own)) continue
      there.delete(name)
      yield* device.write(steps[name], bytesOf(own))
      there.set(name, own)
    }
    yield* inputs.reach(1 + Math.max(...numbers.position))
  })
})

/** The prediction block over the pages, where it guesses. */
const predictionOf = (
  model: ModelFile,
  weights: Loader.Tensors,
  { options, storage: { caches, inputs } }: { readonly options: PoolOptions; readonly storage: PoolStorage }
) => {
  const [states, cache] = caches.slice(model.config.layers)
  return states === undefined || cache === undefined
    ? Effect.undefined
    : PoolPrediction.make({ model, weights, options, inputs, states, cache })
}

/** A pool for a model whose weights are, or will be, in these buffers. Its memory belongs to the Scope. */
export const make: (
  model: ModelFile,
  weights: Loader.Tensors,
  options: PoolOptions
) => Effect.Effect<Pool, DeviceError, Device | Jit | Scope.Scope> = Effect.fn("Pool.make")(
  function*(model, weights, options) {
    const device = yield* Device
    const storage = yield* poolStorage(model, weights, options)
    const { caches, pageBytes, ring } = storage
    const programs = yield* programsOf(model, storage, options)
    const submit = yield* submitting(model, storage, options)
    const write = yield* writing(storage)
    const columns = pagesFor(options.context)
    const prediction = yield* predictionOf(model, weights, { options, storage })
    const run = Effect.fn("Pool.run")(function*(entries: ReadonlyArray<Entry>) {
      const count = countOf(entries)
      const rows = entries.reduce((n, entry) => n + entry.rows, 0)
      const { prepared, size } = yield* programs.few(count)
      prediction?.written(entries)
      yield* write(numbersOf(entries, { size, columns, ring }))
      const pieces = Math.max(...entries.map(({ start, tokens }) => pagesFor(start + tokens.length)))
      return yield* submit({ prepared, vars: { T: count, R: Math.max(1, rows), pieces } }, entries)
    })
    const batch = Effect.fn("Pool.batch")(function*(entries: ReadonlyArray<Entry>) {
      const count = countOf(entries)
      const rows = entries.reduce((n, entry) => n + entry.rows, 0)
      const prepared = yield* programs.batch
      prediction?.written(entries)
      const length = Order.wholeTiles(count)
      const isWhole = options.sizes.length > 0
      const numbers = batchNumbersOf(entries, { length, rows: isWhole ? options.batch!.rows : undefined })
      yield* write(numbers)
      const vars = { T: count, R: Math.max(1, rows), tiles: length / Order.tileTokens, pieces: numbers.pieces.length }
      return yield* submit({ prepared, vars }, entries)
    })
    const clear = (page: number) =>
      Effect.forEach(caches, (buffer, i) => {
        const bytes = pageBytes[i]!
        return device.write(buffer, new Uint8Array(bytes), page * bytes)
      }, { discard: true })
    const copy = yield* copyOf(storage)
    return {
      options,
      run,
      batch,
      predict: prediction?.predict,
      copy: Effect.fnUntraced(function*(copies) {
        prediction?.copied(copies)
        yield* copy(copies)
      }),
      clear: Effect.fnUntraced(function*(pages) {
        prediction?.cleared(pages)
        yield* Effect.forEach(pages, clear, { discard: true })
      }),
      prepare: (tokens) => Effect.map(programs.few(tokens), ({ prepared }) => prepared)
    }
  }
)
