/**
 * Guesses of a model's prediction block for conversations of a pool, all in the same steps. What the block keeps of tokens lies in the pages of
 * their conversation, beside what the model keeps, and is shared and copied with them.
 */
import { Jit, type JitError, ownOf, type Prepared, settled } from "@tg/jit/Jit"
import { type Binding, Device, type DeviceError, type Span } from "@tg/runtime/Device"
import { Effect, Result } from "effect"
import type * as HostInputs from "./HostInputs.ts"
import type * as Loader from "./Loader.ts"
import type { ModelFile } from "./ModelFile.ts"
import { type PageCopy, pagesFor, pageTokens } from "./Pages.ts"
import type { Entry, PoolOptions } from "./Pool.ts"
import * as PoolPredictionProgram from "./PoolPredictionProgram.ts"
import { placeIds } from "./PoolProgram.ts"
import { draftRoom, predictionIds } from "./PredictionProgram.ts"
import { prepared } from "./Prepared.ts"
import { ids } from "./StepProgram.ts"
import { bytesOf, wordsOf } from "./Words.ts"

/** A conversation whose next tokens are guessed: all tokens but the last are computed, and its pages have room for the guesses. */
export interface Text {
  readonly tokens: ReadonlyArray<number>
  readonly pages: ReadonlyArray<number>
}

/** Tokens that a step writes to pages. */
type Written = Pick<Entry, "from" | "pages" | "start" | "tokens">

/** What guesses for conversations of a pool. */
export interface PoolPrediction {
  /** So many tokens behind each of the texts, which are `options.tokens` at most. */
  readonly predict: (
    texts: ReadonlyArray<Text>,
    guesses: number
  ) => Effect.Effect<ReadonlyArray<ReadonlyArray<number>>, JitError | DeviceError>
  /** What it has read of these places is void: steps have written other tokens there, or may have. */
  readonly written: (entries: ReadonlyArray<Written>) => void
  readonly copied: (copies: ReadonlyArray<PageCopy>) => void
  readonly cleared: (pages: ReadonlyArray<number>) => void
}

/** What it is made for, and what is bound. */
export interface Setting {
  readonly model: ModelFile
  readonly weights: Loader.Tensors
  readonly options: PoolOptions
  readonly inputs: HostInputs.Tables
  /** The states of the model, and the block's cache, page by page. */
  readonly states: Binding
  readonly cache: Binding
}

/** A token that the block has to read. */
interface Unread {
  readonly text: number
  readonly position: number
}

/** How many tokens at the beginning of each page the block has read, and which. */
const readings = (total: number) => {
  const read = new Int32Array(total)
  const known = new Int32Array(total * pageTokens)
  return {
    /** Of a text's tokens those at its beginning that need not be read again. */
    countOf: ({ pages }: Text): number => {
      const first = pages.findIndex((page) => read[page]! < pageTokens)
      return first < 0 ? pages.length * pageTokens : first * pageTokens + read[pages[first]!]!
    },
    /** The first so many tokens of a text have been read. */
    reach: (text: Text): void => {
      for (const [position, id] of text.tokens.entries()) known[rowOf(text, position)] = id
      for (const [i, page] of text.pages.slice(0, pagesFor(text.tokens.length)).entries()) {
        read[page] = Math.max(read[page]!, Math.min(pageTokens, text.tokens.length - i * pageTokens))
      }
    },
    /** Tokens are computed there: from the first other one on, and where nobody knows which it is, nothing has been read. */
    written: ({ from, pages, start, tokens }: Written): void => {
      const isSame = (id: number, i: number): boolean => from === undefined && known[rowOf({ pages }, start + i)] === id
      const same = tokens.findIndex((id, i) => !isSame(id, i))
      if (same < 0) return
      const first = start + same
      for (let i = Math.floor(first / pageTokens); i < pagesFor(start + tokens.length); i++) {
        read[pages[i]!] = Math.min(read[pages[i]!]!, Math.max(0, first - i * pageTokens))
      }
    },
    copied: ({ from, to }: PageCopy): void => {
      read[to] = read[from]!
      known.copyWithin(to * pageTokens, from * pageTokens, (from + 1) * pageTokens)
    },
    cleared: (page: number): void => void (read[page] = 0)
  }
}

/** The row of a position. */
const rowOf = ({ pages }: Pick<Text, "pages">, position: number): number =>
  pages[Math.floor(position / pageTokens)]! * pageTokens + position % pageTokens

/**
 * Steps of so many tokens at most that read what is unread. The last one holds the last token of each text, and as many in front of it as there
 * is room for.
 */
export const stepsOf = (
  unread: ReadonlyArray<{ readonly from: number; readonly length: number }>,
  most: number
): ReadonlyArray<ReadonlyArray<Unread>> => {
  const ofText = ({ from, length }: { readonly from: number; readonly length: number }, text: number) =>
    Array.from({ length: length - from }, (_, i): Unread => ({ text, position: from + i }))
  const all = unread.flatMap(ofText)
  const isLast = ({ position, text }: Unread): boolean => position === unread[text]!.length - 1
  let before = all.length - most
  const early: Array<Unread> = []
  const last = all.filter((each) => {
    if (before <= 0 || isLast(each)) return true
    before--
    early.push(each)
    return false
  })
  return [
    ...Array.from({ length: Math.ceil(early.length / most) }, (_, i) => early.slice(i * most, (i + 1) * most)),
    last
  ]
}

/** The buffers of its own. */
const storageOf = Effect.fnUntraced(function*({ model, options: { context, tokens: most } }: Setting) {
  const device = yield* Device
  const words = (count: number, label: string) => device.allocate(4 * count, label)
  return {
    tokens: yield* words(most, "mtp_tokens"),
    position: yield* words(most, "mtp_position"),
    row: yield* words(most, "mtp_row"),
    before: yield* words(most, "mtp_before"),
    wanted: yield* words(most, "mtp_wanted"),
    pieces: yield* words(most * pagesFor(context), "mtp_pieces"),
    guessPosition: yield* words(draftRoom * most, "mtp_guess_position"),
    guessRow: yield* words(draftRoom * most, "mtp_guess_row"),
    drafts: yield* words(draftRoom * most, "drafts"),
    hidden: yield* words(most * model.config.embedding, "hidden")
  }
})

type Storage = Effect.Success<ReturnType<typeof storageOf>>

/** A program of so many tokens, if it takes no other number. */
interface Sized {
  readonly prepared: Prepared
  readonly size: number | undefined
}

/** The programs, each compiled when it is first needed. All have the buffers of steps of most tokens. */
const programsOf = Effect.fnUntraced(function*(setting: Setting, storage: Storage) {
  const { cache, inputs, model, options, states, weights } = setting
  const { profile } = yield* Device
  const block = Result.getOrThrow(model.prediction!)
  const bound = new Map<number, Binding>([
    ...inputs.bound,
    [ids.tokens, storage.tokens],
    [placeIds.position, storage.position],
    [placeIds.row, storage.row],
    [placeIds.pieces, storage.pieces],
    [placeIds.wanted, storage.wanted],
    [PoolPredictionProgram.beforeId, storage.before],
    [placeIds.among, storage.guessPosition],
    [placeIds.begin, storage.guessRow],
    [predictionIds.drafts, storage.drafts],
    [predictionIds.row, storage.hidden],
    [ids.states, states],
    [predictionIds.cache, cache],
    ...block.weights.map(({ name }, i) => [predictionIds.firstWeight + i, weights.get(name)!] as const)
  ])
  const once = yield* prepared(bound)
  const { activations, cache: type, context, pages, sizes, tokens: most } = options
  const sized = (name: string, make: typeof PoolPredictionProgram.readProgram) =>
    Effect.fnUntraced(function*(tokens: number): Effect.fn.Return<Sized, JitError | DeviceError> {
      const size = sizes.find((each) => each >= tokens)
      const shape = { activations, cache: type, context, pieces: pages, profile, most, size }
      return { prepared: yield* once(`${name} ${size}`, () => make({ model, block }, shape)), size }
    })
  return {
    read: sized("read", PoolPredictionProgram.readProgram),
    guess: sized("guess", PoolPredictionProgram.guessProgram)
  }
})

/** As many numbers, of which the last ones repeat the last that is there. */
const filled = (numbers: ReadonlyArray<number>, length: number): Int32Array =>
  Int32Array.from({ length }, (_, i) => numbers[Math.min(i, numbers.length - 1)]!)

/** The steps of the block: what reads tokens, and what goes on with its own guesses. */
const stepping = Effect.fnUntraced(function*(setting: Setting, storage: Storage) {
  const { inputs, options: { context, tokens: most } } = setting
  const device = yield* Device
  const programs = yield* programsOf(setting, storage)
  const columns = pagesFor(context)
  const piecesOf = (texts: ReadonlyArray<Text>, length: number): Int32Array => {
    const made = new Int32Array(length * columns)
    for (let i = 0; i < length; i++) {
      made.set(texts[Math.min(i, texts.length - 1)]!.pages.slice(0, columns), i * columns)
    }
    return made
  }
  /** Reads tokens of texts, and leaves a guess behind those that are their last ones. */
  const take = Effect.fnUntraced(function*(texts: ReadonlyArray<Text>, tokens: ReadonlyArray<Unread>) {
    const { prepared, size } = yield* programs.read(tokens.length)
    const length = size ?? tokens.length
    const lasts = tokens.flatMap(({ position, text }, i) => position === texts[text]!.tokens.length - 1 ? [i] : [])
    const rows = size ?? Math.max(1, lasts.length)
    const row = (position: number, text: number): number => position < 0 ? 0 : rowOf(texts[text]!, position)
    const numbers = (of: (token: Unread) => number): Uint8Array => bytesOf(filled(tokens.map(of), length))
    yield* device.write(storage.tokens, numbers(({ position, text }) => texts[text]!.tokens[position]!))
    yield* device.write(storage.position, numbers(({ position }) => position))
    yield* device.write(storage.row, numbers(({ position, text }) => row(position, text)))
    yield* device.write(storage.before, numbers(({ position, text }) => row(position - 1, text)))
    yield* device.write(storage.wanted, bytesOf(filled(lasts.length === 0 ? [0] : lasts, rows)))
    yield* device.write(storage.pieces, bytesOf(piecesOf(tokens.map(({ text }) => texts[text]!), length)))
    const end = 1 + Math.max(...tokens.map(({ position }) => position))
    yield* inputs.reach(end)
    yield* prepared.run(ownOf(prepared, { T: tokens.length, R: rows, pieces: pagesFor(end) }))
  })
  /** Goes on with guesses of its own. */
  const guess = Effect.fnUntraced(function*(texts: ReadonlyArray<Text>, guesses: number) {
    if (guesses < 2) return
    const { prepared, size } = yield* programs.guess(texts.length)
    const rows = size ?? texts.length
    const at = (of: (text: Text, position: number) => number): Int32Array => {
      const made = new Int32Array(draftRoom * most)
      for (let i = 0; i < guesses - 1; i++) {
        made.set(filled(texts.map((text) => of(text, text.tokens.length + i)), rows), i * most)
      }
      return made
    }
    yield* device.write(storage.guessPosition, bytesOf(at((_, position) => position)))
    yield* device.write(storage.guessRow, bytesOf(at(rowOf)))
    yield* device.write(storage.pieces, bytesOf(piecesOf(texts, rows)))
    const end = Math.max(...texts.map(({ tokens }) => tokens.length)) + guesses - 1
    yield* inputs.reach(end)
    for (let i = 0; i < guesses - 1; i++) {
      yield* prepared.run(ownOf(prepared, { R: rows, pieces: pagesFor(end), guess: i }))
    }
  })
  return { take, guess }
})

/** The prediction block over a pool. Its memory belongs to the Scope. */
export const make = Effect.fnUntraced(function*(setting: Setting) {
  const { pages, tokens: most } = setting.options
  const device = yield* Device
  const jit = yield* Jit
  const storage = yield* storageOf(setting)
  const { guess, take } = yield* stepping(setting, storage)
  const read = readings(pages)
  const made: PoolPrediction = {
    predict: Effect.fn("PoolPrediction.predict")(function*(texts, guesses) {
      const unread = texts.map((text) => {
        const { length } = text.tokens
        return { from: Math.min(read.countOf(text), length - 1), length }
      })
      for (const step of stepsOf(unread, most)) yield* take(texts, step)
      // behind the last token of each: its guesses are no text yet
      for (const text of texts) read.reach(text)
      yield* guess(texts, guesses)
      const reading: Span = { buffer: storage.drafts, offset: 0, bytes: 4 * guesses * most }
      const [bytes] = yield* settled({ device, jit }, [reading])
      const words = wordsOf(bytes!)
      return texts.map((_, text) => Array.from({ length: guesses }, (_, i) => words[i * most + text]!))
    }),
    written: (entries) => entries.forEach(read.written),
    copied: (copies) => copies.forEach(read.copied),
    cleared: (pages) => pages.forEach(read.cleared)
  }
  return made
})
